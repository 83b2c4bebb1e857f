"""Policies of any colour: what they answer decides, whether tools are called or listed."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, AgentError, DeclarationError, RateLimit, RequireToolPermission, ToolSpec, tool
from carmy_engine._execution.policy import POLICY_SECONDS
from carmy_engine.providers import provider
from tests.boundary.escapes import ESCAPES, RARE_ESCAPES, made
from tests.engine.kit import Bench, bench, code, told

ALL = [*ESCAPES, *RARE_ESCAPES]

Answer = Callable[..., Any]


def plain(answer: Answer) -> Answer:
    def ask(*args: Any) -> Any:
        return answer(*args)

    return ask


def coroutine(answer: Answer) -> Answer:
    async def ask(*args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return answer(*args)

    return ask


def partial(answer: Answer) -> Answer:
    async def ask(_: int, *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return answer(*args)

    return functools.partial(ask, 1)


class Asking:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, *args: Any) -> Any:
        return self._answer(*args)


def delegate(answer: Answer) -> Answer:
    made = coroutine(answer)
    return lambda *args: made(*args)


COLOURS = [plain, coroutine, partial, Asking, delegate]


def policy(**methods: Answer) -> Any:
    """An object with these methods; it allows everything unless it says otherwise."""
    names = {"check": plain(lambda *_: None), **methods}
    return type("Own", (), {name: staticmethod(method) for name, method in names.items()})()


def refuse_writes(context: AgentContext, spec: ToolSpec, *_: Any) -> None:
    if spec.name == "write":
        raise AgentError("NO", "no", "permission")


async def listed(b: Bench) -> set[str]:
    return {spec.name for spec in (await b.engine.catalog()).tools}


@pytest.mark.parametrize("colour", COLOURS, ids=lambda colour: colour.__name__)
async def test_a_check_of_any_colour_refuses(colour):
    """``check`` is awaited when it has to be: what it refuses cannot be called, and is not listed."""
    async with bench(policies=[policy(check=colour(refuse_writes))]) as b:
        assert await b.code("write", {"tag": "t"}) == "NO"
        assert await b.code("read") == "ok"
        assert await b.effects("t") == 0
        names = await listed(b)
        assert "read" in names
        assert "write" not in names


@pytest.mark.parametrize("colour", COLOURS, ids=lambda colour: colour.__name__)
async def test_what_is_hidden_cannot_be_called(colour):
    """A tool that ``is_listed`` hides is not listed, is not suggested, and a call to it looks like one to no tool at all."""

    def is_listed(context: AgentContext, spec: ToolSpec) -> bool:
        return spec.name != "write"

    async with bench(policies=[policy(is_listed=colour(is_listed))]) as b:
        assert "write" not in await listed(b)
        hidden, unknown = await b.call("write", {"tag": "t"}), await b.call("wrxte", {"tag": "t"})
        assert code(hidden) == "TOOL_NOT_FOUND"
        assert hidden.error == unknown.error
        assert await b.effects("t") == 0
        assert await b.code("read") == "ok"


@pytest.mark.parametrize("colour", COLOURS, ids=lambda colour: colour.__name__)
async def test_a_check_of_arguments_refuses(colour):
    """``check_arguments`` is awaited when it has to be, and refuses one call without hiding the tool."""

    def check(context: AgentContext, spec: ToolSpec, arguments: Any) -> None:
        if arguments.get("text") == "bad":
            raise AgentError("BAD", "bad", "permission")

    async with bench(policies=[policy(check_arguments=colour(check))]) as b:
        assert await b.code("echo", {"text": "bad"}) == "BAD"
        assert await b.code("echo", {"text": "good"}) == "ok"
        assert "echo" in await listed(b)


async def test_what_a_check_of_arguments_is_given():
    """It sees the arguments after validation: by their names in the schema, as JSON values, with defaults, read-only."""
    seen: list[Any] = []

    @tool(effect="read", parallel_safe=True, register=False)
    async def look(ids: list[int], limit: int = 10) -> None: ...

    def check(context: AgentContext, spec: ToolSpec, arguments: Any) -> None:
        seen.append(arguments)
        with pytest.raises(TypeError, match="read-only"):
            arguments["ids"].append(4)
        with pytest.raises(TypeError, match="read-only"):
            arguments["limit"] = 1000

    async with bench(look, policies=[policy(check_arguments=check)]) as b:
        assert await b.code("look", {"ids": "x"}) == "INVALID_ARGUMENTS"
        assert seen == []
        assert await b.code("look", {"ids": [1]}) == "ok"
        assert seen == [{"ids": [1], "limit": 10}]


async def test_arguments_are_refused_before_a_person_is_asked():
    """A person is asked only about what everything else has let pass."""
    asked: list[str] = []

    async def confirm(spec: ToolSpec, arguments: bytes) -> bool:
        asked.append(spec.name)
        return True

    def check(*_: Any) -> None:
        raise AgentError("NO", "no", "permission")

    async with bench(policies=[policy(check_arguments=check)]) as b:
        assert await b.of(confirm=confirm).code("destructive", {"tag": "t"}) == "NO"
    assert asked == []


@pytest.mark.parametrize("answer", [True, False, 1, "no", AgentError("NO", "no", "permission")], ids=repr)
@pytest.mark.parametrize("method", ["check", "check_arguments"])
@pytest.mark.parametrize("colour", [plain, coroutine], ids=lambda colour: colour.__name__)
async def test_an_answer_that_is_none_allows_nothing(colour, method, answer, caplog):
    """A policy allows by returning None. Anything else is a fault of the policy, and the call is not made."""
    async with bench(policies=[policy(**{method: colour(lambda *_: answer)})]) as b:
        assert await b.code("write", {"tag": "t"}) == "TOOL_PANIC"
        assert await b.effects("t") == 0
    assert f"Own.{method} returned a {type(answer).__name__}" in caplog.text


@pytest.mark.parametrize("answer", [None, 1, "yes"], ids=repr)
async def test_is_listed_returns_a_bool(answer, caplog):
    """Anything else is a fault of the policy: the tool can be neither called nor seen."""
    async with bench(policies=[policy(is_listed=lambda *_: answer)]) as b:
        assert await b.code("write", {"tag": "t"}) == "TOOL_PANIC"
        assert await listed(b) == set()
    assert "it returns a bool" in caplog.text


async def test_what_counts_calls_hides_nothing(mock_clock):
    """A rate limit that is used up, or any policy that counts calls, still lists its tools, and listing spends nothing."""
    asked: list[str] = []
    counting = policy(check=lambda context, spec: asked.append(spec.name))
    type(counting).counts_calls = True
    async with bench(policies=[RateLimit(1, 10), counting]) as b:
        everything = await listed(b)
        assert await b.code("read") == "ok"
        assert await b.code("read") == "RATE_LIMITED"
        assert await listed(b) == everything
    assert asked == ["read"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("method", ["check", "is_listed", "check_arguments"])
@pytest.mark.parametrize("colour", [plain, coroutine], ids=lambda colour: colour.__name__)
async def test_a_policy_ends_nothing(colour, method, name, caplog):
    """Whatever a policy raises is an outcome of that call; the tool does not run, and the log has the cause."""
    error = made(name)

    def fail(*_: Any) -> Any:
        raise error

    async with bench(policies=[policy(**{method: colour(fail)})]) as b:
        result = await b.call("write", {"tag": "t"}, request_id="r")
        assert code(result) == "TOOL_PANIC"
        assert told(result)["error_id"] in caplog.text
        assert await b.state("r") == "free"
        assert await b.effects("t") == 0
        assert b.running == 0
        if method == "check_arguments":
            assert "write" in await listed(b)
            return
        assert await listed(b) == set()
        assert "whether to list" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("colour", [plain, coroutine], ids=lambda colour: colour.__name__)
async def test_a_function_that_asks_a_person_ends_nothing(colour, name, caplog):
    """Whatever it raises is no yes."""
    error = made(name)

    def fail(*_: Any) -> Any:
        raise error

    async with bench() as b:
        result = await b.of(confirm=colour(fail)).call("destructive", {"tag": "t"}, request_id="r")
        assert code(result) == "TOOL_PANIC"
        assert told(result)["error_id"] in caplog.text
        assert await b.effects("t") == 0
        assert b.running == 0


async def test_a_person_can_be_asked_by_a_plain_function():
    """What asks a person may be sync."""
    async with bench() as b:
        assert await b.of(confirm=lambda spec, arguments: True).code("destructive", {"tag": "t"}) == "ok"
        assert (
            await b.of(confirm=lambda spec, arguments: 1).code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"
        )


async def test_a_policy_that_never_answers(autojump_clock, caplog):
    """It costs the call its limit, not more, and allows nothing."""

    async def check(*_: Any) -> None:
        await trio.sleep_forever()

    async with bench(policies=[policy(check=check)]) as b:
        start = trio.current_time()
        assert await b.code("write", {"tag": "t"}) == "TOOL_PANIC"
        assert trio.current_time() - start == pytest.approx(POLICY_SECONDS)
        assert await b.effects("t") == 0


async def test_the_caller_leaves_a_policy():
    """A caller's cancel reaches a policy that waits, and goes on its way."""
    waiting = trio.Event()

    async def check(*_: Any) -> None:
        waiting.set()
        await trio.sleep_forever()

    async with bench(policies=[policy(check=check)]) as b, trio.open_nursery() as nursery:
        call = b.start(nursery, "write", {"tag": "t"}, request_id="r")
        await waiting.wait()
        call.scope.cancel()
        await call.done.wait()
        assert [record.error_code for record in b.sink] == ["CANCELLED"]


async def test_a_policy_that_leaves_a_scope_open(caplog):
    """Its call fails, and the caller's own scopes are as they were."""

    async def check(*_: Any) -> None:
        trio.CancelScope().__enter__()
        await trio.lowlevel.checkpoint()

    async with bench(policies=[policy(check=check)]) as b:
        with trio.CancelScope():
            assert await b.code("read") == "TOOL_PANIC"


async def test_a_provider_waits_for_no_policy():
    """``engine.provider`` is sync: async policies that answer at once work, those that wait are refused with what to write."""

    async def at_once(context: AgentContext, spec: ToolSpec) -> None:
        refuse_writes(context, spec)

    async with bench(policies=[policy(check=at_once)]) as b:
        names = {one["function"]["name"] for one in b.engine.provider("openai").tools}
        assert "read" in names
        assert "write" not in names
    async with bench(policies=[policy(check=coroutine(refuse_writes))]) as b:
        with pytest.raises(DeclarationError, match=r"await engine\.catalog\(\)"):
            b.engine.provider("openai")
        names = {one["function"]["name"] for one in provider("openai", await b.engine.catalog()).tools}
        assert "write" not in names


async def test_only_the_engine_advises_to_confirm():
    """A tool's own error with the engine's code gets no advice of the engine's."""

    @tool(effect="read", parallel_safe=True, register=False)
    async def own() -> None:
        raise AgentError("CONFIRMATION_REQUIRED", "the owner has to agree", "permission")

    async with bench(own) as b:
        for request_id in (None, "r", "r"):
            result = await b.call("own", request_id=request_id)
            assert code(result) == "CONFIRMATION_REQUIRED"
            assert result.next_actions == ()
        assert (await b.call("destructive", {"tag": "t"})).next_actions


async def test_a_permission_decides_listing_and_calling():
    """What `RequireToolPermission` refuses is not listed."""
    async with bench(policies=[RequireToolPermission()]) as b:
        some = b.of(permissions={"tool:echo"})
        assert [spec.name for spec in (await some.executor.catalog()).tools] == ["echo"]
        assert await some.code("read") == "FORBIDDEN"


async def test_a_failing_policy_hides_only_its_tool(caplog):
    """The others are listed, and one entry of the log states for how many tools it failed."""

    def check(context: AgentContext, spec: ToolSpec) -> None:
        if spec.name in ("read", "write", "echo"):
            raise SystemExit

    async with bench() as b:
        everything = await listed(b)
    async with bench(policies=[policy(check=check)]) as b:
        assert await listed(b) == everything - {"read", "write", "echo"}
    assert [record.getMessage().partition("error_id")[0] for record in caplog.records] == [
        "asking the policies whether to list echo and 2 more failed ("
    ]
