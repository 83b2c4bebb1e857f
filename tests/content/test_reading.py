"""Resources and prompts: declared as tools are, listed and read under the same rules."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    DeclarationError,
    Engine,
    ExecutionRequest,
    ExecutionResult,
    RequireToolPermission,
    StartupError,
    State,
)
from carmy_engine.abc import Completer, PromptReader, ResourceReader, Watchable
from carmy_engine.content import (
    Change,
    Completion,
    File,
    Image,
    Message,
    PromptResult,
    ReadResult,
    ResourceContents,
    Text,
)
from carmy_engine.testing import RecordingSink


class Order(msgspec.Struct):
    """An order."""

    id: int
    total: int


class Tone(enum.Enum):
    """How to write."""

    FRIENDLY = "friendly"
    FORMAL = "formal"


class Orders(dict[int, Order]):
    pass


def complete(argument: str, value: str, given: Mapping[str, str]) -> Iterable[str]:
    """The completion of a test: enough values for two pages."""
    if argument == "fail":
        raise RuntimeError("secret")
    return [f"{argument}{number}" for number in range(150)]


def shop() -> App:
    app = App("shop", timeout=5).state(Orders({7: Order(7, 100)}))

    @app.resource("orders://{number}", title="An order", completion=complete)
    async def order(number: int, orders: State[Orders], ctx: AgentContext) -> Order:
        """One order.

        Args:
            number: Its number.
        """
        if number not in orders:
            raise AgentError("NO_ORDER", "there is no such order", "not_found")
        return orders[number]

    @app.resource("config://shop", mime_type="text/x-config")
    def config() -> str:
        """The configuration."""
        return "currency = EUR"

    @app.resource("logo://{+path}{?size}")
    async def logo(path: str, size: int = 1) -> Image:
        """A logo."""
        return Image(f"{path}*{size}".encode(), "image/png")

    @app.resource("files://all")
    async def files() -> list[File]:
        """Two files."""
        return [File(uri="files://a", text="A"), File(uri="files://b", mime_type="x/y", data=b"B")]

    @app.resource("raw://bytes")
    async def raw() -> bytes:
        """Bytes."""
        return b"\0\1"

    @app.resource("slow://forever")
    async def slow() -> str:
        """Never ready."""
        await trio.sleep_forever()
        return ""

    @app.prompt
    async def greet(name: str) -> str:
        """Greet a person."""
        return f"Say hello to {name}."

    @app.prompt(name="review", title="Review", completion=complete)
    def review_code(code: str, tone: Tone = Tone.FORMAL, lines: int | None = None) -> list[str | Message | Image]:
        """Review code."""
        return [
            f"Review {lines} lines, {tone.value}: {code}",
            Image(b"1", "image/png"),
            Message(Text("Yes."), "assistant"),
        ]

    @app.tool(effect="read")
    async def search(query: str) -> str:
        """Search."""
        return query

    return app


async def read(engine: Any, uri: str) -> tuple[ResourceContents, ...]:
    result: ExecutionResult = await engine.read_resource(uri)
    result.unwrap()
    return msgspec.json.decode(result.data_json or b"", type=ReadResult).contents


async def code_of(call: Any) -> str | None:
    result: ExecutionResult = await call
    return None if result.error is None else result.error.code


async def test_what_can_be_read_is_listed() -> None:
    """Resources and templates apart, with their schemas; the version changes with the document only."""
    async with shop().open() as engine:
        for protocol in (ResourceReader, PromptReader, Completer, Watchable):
            assert isinstance(engine, protocol)
        found = await engine.resources()
        assert [spec.uri for spec in found.resources] == [
            "config://shop",
            "files://all",
            "raw://bytes",
            "slow://forever",
        ]
        assert [spec.uri_template for spec in found.templates] == ["logo://{+path}{?size}", "orders://{number}"]
        order = found.templates[1]
        assert (order.name, order.title, order.description) == ("order", "An order", "One order.")
        assert order.arguments is not None
        assert order.arguments["properties"] == {"number": {"type": "integer", "description": "Its number."}}
        document = msgspec.json.decode(found.document)
        assert document["resources"][0] == {
            "name": "config",
            "uri": "config://shop",
            "description": "The configuration.",
            "mime_type": "text/x-config",
        }
        assert found.version == (await engine.resources()).version
        prompts = await engine.prompts()
        assert [(spec.name, spec.title) for spec in prompts.prompts] == [("greet", None), ("review", "Review")]
        assert prompts.prompts[0].arguments["required"] == ["name"]


async def test_resources_are_read() -> None:
    """Variables become typed parameters; what the function returns decides on text, bytes, JSON or several parts."""
    async with shop().open() as engine:
        assert await read(engine, "orders://7") == (
            ResourceContents(uri="orders://7", mime_type="application/json", text='{"id":7,"total":100}'),
        )
        assert await read(engine, "config://shop") == (
            ResourceContents(uri="config://shop", mime_type="text/x-config", text="currency = EUR"),
        )
        (logo,) = await read(engine, "logo://a/b%20c.png?size=2")
        assert (logo.data, logo.mime_type) == (b"a/b c.png*2", "image/png")
        assert (await read(engine, "logo://a"))[0].data == b"a*1"
        assert await read(engine, "raw://bytes") == (
            ResourceContents(uri="raw://bytes", mime_type="application/octet-stream", data=b"\0\1"),
        )
        assert await read(engine, "files://all") == (
            ResourceContents(uri="files://a", text="A"),
            ResourceContents(uri="files://b", mime_type="x/y", data=b"B"),
        )


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("orders://8", "NO_ORDER"),
        ("orders://seven", "INVALID_ARGUMENTS"),
        ("orders://7/8", "RESOURCE_NOT_FOUND"),
        ("orders://", "RESOURCE_NOT_FOUND"),
        ("orders://%zz", "RESOURCE_NOT_FOUND"),
        ("orders://%ff", "RESOURCE_NOT_FOUND"),
        ("logo://a?size=1&size=2", "RESOURCE_NOT_FOUND"),
        ("logo://a?other=1", "RESOURCE_NOT_FOUND"),
        ("resource:order", "RESOURCE_NOT_FOUND"),
        ("search", "RESOURCE_NOT_FOUND"),
        ("config://shop" + "x" * 9000, "RESOURCE_NOT_FOUND"),
        ("", "RESOURCE_NOT_FOUND"),
    ],
)
async def test_other_addresses_are_refused(uri: str, code: str) -> None:
    """An address of any form gives a result, and only the name of the resource is recorded."""
    sink = RecordingSink()
    async with shop().sink(sink).open() as engine:
        assert await code_of(engine.read_resource(uri)) == code
    (record,) = sink.records
    assert record.tool in ("resource:order", "resource:")


async def test_a_read_is_an_execution() -> None:
    """It has a record and a deadline, can be cancelled by id, and is refused while the engine drains."""
    sink = RecordingSink()
    async with shop().sink(sink).open() as engine:
        bound = engine.bind(principal="ana")
        await bound.read_resource("config://shop")
        assert await code_of(bound.read_resource("slow://forever", timeout_ms=1)) == "TIMEOUT"
        assert [(record.tool, record.principal) for record in sink.records] == [
            ("resource:config", "ana"),
            ("resource:slow", "ana"),
        ]
        async with trio.open_nursery() as nursery:
            codes: list[str | None] = []

            async def cancelled() -> None:
                codes.append(await code_of(bound.read_resource("slow://forever")))

            nursery.start_soon(cancelled)
            await trio.testing.wait_all_tasks_blocked()
            assert bound.cancel(bound.running()[0])
        assert codes == ["CANCELLED"]
        engine.stop()
        assert await code_of(bound.read_resource("config://shop")) == "SHUTTING_DOWN"


async def test_prompts_are_rendered() -> None:
    """A text is a message of the user; texts for other types are read as JSON, and arguments are checked."""
    async with shop().open() as engine:
        result = await engine.get_prompt("greet", {"name": "Ana"})
        assert result.data == {
            "description": "Greet a person.",
            "messages": [{"content": {"type": "text", "text": "Say hello to Ana."}, "role": "user"}],
        }
        for lines in (3, "3"):
            result = await engine.get_prompt("review", {"code": "1", "tone": "friendly", "lines": lines})
            found = msgspec.json.decode(result.data_json or b"", type=PromptResult)
            assert found.messages == (
                Message(Text("Review 3 lines, friendly: 1")),
                Message(Image(b"1", "image/png")),
                Message(Text("Yes."), "assistant"),
            )
        assert await code_of(engine.get_prompt("greet")) == "INVALID_ARGUMENTS"
        assert await code_of(engine.get_prompt("greet", {"name": "A", "age": "1"})) == "INVALID_ARGUMENTS"
        assert await code_of(engine.get_prompt("review", {"code": "1", "lines": "many"})) == "INVALID_ARGUMENTS"
        result = await engine.get_prompt("gret", {"name": "A"})
        assert result.error is not None
        assert (result.error.code, result.error.message) == (
            "PROMPT_NOT_FOUND",
            "there is no prompt of that name; did you mean greet?",
        )


async def test_what_may_not_be_read_is_not_listed() -> None:
    """One rule for tools, resources and prompts: policies and subsets hide what they refuse."""
    async with shop().policy(RequireToolPermission()).open() as engine:
        ana = engine.bind(permissions={"tool:resource:config", "tool:prompt:greet"})
        assert [spec.name for spec in (await ana.resources()).resources] == ["config"]
        assert (await ana.resources()).templates == ()
        assert [spec.name for spec in (await ana.prompts()).prompts] == ["greet"]
        assert await code_of(ana.read_resource("config://shop")) is None
        assert await code_of(ana.read_resource("orders://7")) == "FORBIDDEN"
        with ana.watch() as changes, pytest.raises(AgentError, match="RESOURCE_NOT_FOUND"):
            await changes.subscribe("orders://7")
        with pytest.raises(AgentError, match="RESOURCE_NOT_FOUND"):
            await ana.complete("resource", "order", "number", "")
    async with shop().open() as engine:
        some = engine.subset("search", "resource:order", "prompt:greet")
        assert [spec.name for spec in (await some.catalog()).tools] == ["search"]
        assert [spec.name for spec in (await some.resources()).templates] == ["order"]
        assert [spec.name for spec in (await some.prompts()).prompts] == ["greet"]
        assert await code_of(some.read_resource("config://shop")) == "TOOL_NOT_PERMITTED"
        assert await code_of(some.get_prompt("review", {"code": "1"})) == "TOOL_NOT_PERMITTED"
        with pytest.raises(DeclarationError, match="there is no tool resource:config here"):
            some.subset("resource:config")


async def test_arguments_are_completed() -> None:
    """Choices come from the types, other values from the function; at most a hundred are sent."""
    async with shop().open() as engine:
        assert await engine.complete("prompt", "review", "tone", "FOR") == Completion(
            values=("formal",), total=1, has_more=False
        )
        found = await engine.complete("resource", "orders://{number}", "number", "number1")
        assert (found.values[:2], found.total, found.has_more) == (("number1", "number10"), 61, False)
        found = await engine.complete("resource", "order", "number", "")
        assert (len(found.values), found.total, found.has_more) == (100, 150, True)
        assert (await engine.complete("prompt", "greet", "name", "A")).values == ()
        for kind, name, code in (("prompt", "none", "PROMPT_NOT_FOUND"), ("resource", "a:{b}", "RESOURCE_NOT_FOUND")):
            with pytest.raises(AgentError, match=code):
                await engine.complete(kind, name, "x", "")  # type: ignore[arg-type]
        with pytest.raises(AgentError, match="TOOL_PANIC") as raised:
            await engine.complete("prompt", "review", "fail", "")
        assert "secret" not in str(raised.value)


async def test_tools_resources_and_prompts_are_switched() -> None:
    """What is disabled is unknown to all callers; the version of the list changes, and watchers receive one change."""
    async with shop().open() as engine:
        before = await engine.catalog()
        bound = engine.bind(principal="ana").subset("search", "prompt:greet")
        with engine.watch() as changes:
            assert engine.disable("search")
            assert not engine.disable("search")
            assert engine.disable("prompt:greet")
            assert engine.disable("resource:order")
            assert engine.enable("prompt:greet")
            assert {(await changes.receive()).kind for _ in range(3)} == {"tools", "prompts", "resources"}
            await trio.testing.wait_all_tasks_blocked()
        assert (await engine.catalog()).tools == ()
        assert (await bound.catalog()).tools == ()
        assert (await engine.catalog()).version != before.version
        result = await call_search(engine)
        assert await code_of(bound.get_prompt("greet", {"name": "A"})) is None
        assert result == "TOOL_NOT_FOUND"
        assert await code_of(engine.read_resource("orders://7")) == "RESOURCE_NOT_FOUND"
        assert engine.enable("search")
        assert (await engine.catalog()).version == before.version
        assert await call_search(engine) is None
        with pytest.raises(DeclarationError, match="did you mean 'search'"):
            engine.disable("serch")


async def call_search(engine: Engine) -> str | None:
    return await code_of(engine.execute(ExecutionRequest(tool="search", arguments={"query": "x"})))


async def test_changes_of_resources_reach_subscribers() -> None:
    """Once until received, from the loop and from threads, and not after the subscription has ended."""
    app = shop()
    async with app.open() as engine:
        with engine.watch() as changes, engine.watch() as others:
            await changes.subscribe("orders://7")
            await changes.subscribe("orders://7")
            for _ in range(3):
                app.notify_resource("orders://7")
            app.notify_resource("orders://8")
            assert await changes.receive() == Change("resource", "orders://7")
            await trio.to_thread.run_sync(app.notify_resource, "orders://7")
            async for change in changes:
                assert change == Change("resource", "orders://7")
                break
            app.notify_resource("orders://7")
            changes.unsubscribe("orders://7")
            app.notify_resource("orders://7")
            engine.disable("search")
            assert await changes.receive() == Change("tools")
            assert await others.receive() == Change("tools")
            with pytest.raises(AgentError, match="RESOURCE_NOT_FOUND"):
                await changes.subscribe("nothing://here")
    app.notify_resource("orders://7")


async def test_subscriptions_have_a_bound() -> None:
    """One watcher subscribes to so many resources, and its end frees them."""
    async with shop().open() as engine:
        with engine.watch() as changes:
            for number in range(1000):
                await changes.subscribe(f"orders://{number}")
            with pytest.raises(AgentError, match="OVERLOADED"):
                await changes.subscribe("orders://1000")
        with engine.watch() as changes:
            await changes.subscribe("orders://1000")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("orders", "begins with a scheme"),
        ("orders://{number", "brace is not closed"),
        ("orders://{number}{other}", "side by side"),
        ("orders://{number*}", "is not supported"),
        ("orders://{number}/{number}", "occurs twice"),
        ("orders://{?number}/x", "stands at the end"),
        ("orders://{other}", "no parameter takes the variable other"),
        ("orders://all", "no variable for the parameter number"),
        ("orders://x{?number}", "may leave number out"),
        ("orders:// {number}", "without spaces"),
    ],
)
def test_a_wrong_address_is_refused(uri: str, says: str) -> None:
    """The declaration names the place and the remedy."""
    with pytest.raises(DeclarationError, match=says):

        @App("shop").resource(uri)
        async def order(number: int) -> str:
            return str(number)


def test_wrong_declarations_are_refused() -> None:
    """A prompt returns messages, and attributes are those of reads."""
    app = App("shop")
    with pytest.raises(DeclarationError, match="a prompt returns messages"):

        @app.prompt
        async def count() -> int:
            return 1

    with pytest.raises(DeclarationError, match="there is no attribute effect"):

        @app.prompt(effect="write")  # type: ignore[call-overload]
        async def other() -> str:
            return ""


def test_all_problems_are_reported_at_start() -> None:
    """State that is missing, and names and addresses that occur twice, come together with those of tools."""
    app = App("shop")

    @app.resource("a://{key}")
    async def one(key: Literal["x"], orders: State[Orders]) -> str:
        return key

    @app.resource("a://{key}", name="two")
    async def two(key: str) -> str:
        return key

    @app.prompt(name="same")
    async def three() -> str:
        return ""

    @app.prompt(name="same")
    async def four(orders: State[Orders]) -> str:
        return ""

    problems = app.check()
    assert [problem.code for problem in problems if isinstance(problem, AgentError)] == [
        "MISSING_STATE",
        "MISSING_STATE",
        "DUPLICATE_TOOL",
        "DUPLICATE_TOOL",
    ]

    async def start() -> None:
        async with app.open():
            pass

    with pytest.raises(StartupError):
        trio.run(start)
