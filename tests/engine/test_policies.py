"""Who may call what."""

from __future__ import annotations

from typing import Any

import pytest

from carmy_engine import AgentContext, RateLimit, RequireToolPermission, tool
from carmy_engine.transport import unknown_tool
from tests.engine.kit import bench, code, told


async def test_destructive_tools_need_a_confirmation():
    """A destructive tool needs ``confirm:<tool>``, and with it runs; other permissions do not help."""
    async with bench() as b:
        result = await b.call("destructive", {"tag": "t"})
        assert code(result) == "CONFIRMATION_REQUIRED"
        assert told(result)["permission"] == "confirm:destructive"
        assert result.error.category == "permission"
        (action,) = result.next_actions
        assert action.tool == "destructive"
        for permissions in ({"confirm:write"}, {"confirm:"}, {"destructive"}, {"confirm:destructiv"}, {"confirm:*"}):
            assert await b.on(b.engine.bind(permissions=permissions)).code("destructive") == "CONFIRMATION_REQUIRED"
        assert await b.effects("t") == 0
        allowed = b.on(b.engine.bind(permissions={"confirm:destructive"}))
        assert (await allowed.call("destructive", {"tag": "t"})).data == "done"


async def test_a_tool_may_ask_for_confirmation():
    """``confirmation="required"`` asks for the permission whatever the effect; a destructive tool cannot do without it."""

    @tool(effect="read", confirmation="required", register=False)
    async def careful() -> str:
        return "done"

    @tool(effect="destructive", confirmation="none", register=False)
    async def careless() -> str:
        return "done"

    async with bench(careful, careless) as b:
        for name in ("careful", "careless"):
            assert await b.code(name) == "CONFIRMATION_REQUIRED"
            assert await b.on(b.engine.bind(permissions={f"confirm:{name}"})).code(name) == "ok"


async def test_tool_permissions():
    """With `RequireToolPermission` a tool needs ``tool:<name>``; what may not be called is not listed."""
    async with bench(policies=[RequireToolPermission()]) as b:
        assert await b.code("echo", {"text": "a"}) == "FORBIDDEN"
        assert (await b.engine.catalog()).tools == ()
        some = b.engine.bind(permissions={"tool:echo", "tool:destructive"})
        assert await b.on(some).code("echo", {"text": "a"}) == "ok"
        assert await b.on(some).code("write") == "FORBIDDEN"
        assert [spec.name for spec in (await some.catalog()).tools] == ["destructive", "echo"]


async def test_suggestions_keep_to_the_list():
    """A misspelt name is answered with near names that the caller can see, and never with one that is not listed."""
    async with bench(policies=[RequireToolPermission()]) as b:
        some = b.on(b.engine.bind(permissions={"tool:echo"}))
        assert told(await some.call("ecko"))["near"] == ["echo"]
        for hidden in ("destructiv", "writ"):
            result = await some.call(hidden)
            assert code(result) == "TOOL_NOT_FOUND"
            assert result.error.message == "there is no tool of that name"
            assert result.error.details is None


@pytest.mark.parametrize("count", [30, 400, 1900])
def test_suggestions_among_many(count):
    """However many tools have similar names, the one that was meant is among the suggestions."""
    names = [f"search_{number}_products" for number in range(count)]
    for wanted in (0, 17, count - 1):
        for misspelt in (f"serch_{wanted}_products", f"search_{wanted}_prodcts", f"search{wanted}_products"):
            details = unknown_tool(misspelt, names).details
            assert details is not None
            assert f"search_{wanted}_products" in details["near"]


async def test_rate_limit(mock_clock):
    """So many calls in a window, then ``RATE_LIMITED`` with the whole seconds to wait; afterwards a new window."""
    async with bench(policies=[RateLimit(2, 10)]) as b:
        ana = b.on(b.engine.bind(principal="ana"))
        assert [await ana.code("read") for _ in range(2)] == ["ok", "ok"]
        mock_clock.jump(3.5)
        result = await ana.call("read")
        assert code(result) == "RATE_LIMITED"
        assert result.error.category == "capacity"
        assert result.error.retryable
        assert result.error.retry_after == 7
        assert [action.after_ms for action in result.next_actions] == [7000]
        mock_clock.jump(6.4)
        assert (await ana.call("read")).error.retry_after == 1
        mock_clock.jump(0.1)
        assert [await ana.code("read") for _ in range(3)] == ["ok", "ok", "RATE_LIMITED"]


async def test_rate_limit_windows(mock_clock):
    """Each principal has a window, else each session; anonymous callers share one, over all transports."""
    async with bench(policies=[RateLimit(1, 10)]) as b:
        for who in ({"principal": "ana"}, {"principal": "bo"}, {"session": "ana"}, {"session": "s"}, {}):
            assert await b.of(**who).code("read") == "ok"
        for who in ({"principal": "ana", "session": "new"}, {"session": "s"}, {}, {"transport": "http"}):
            assert await b.of(**who).code("read") == "RATE_LIMITED"


async def test_rate_limit_beats_arguments_and_not_the_lookup(mock_clock):
    """A limited caller is refused before its arguments are checked, but an unknown tool is refused first and costs nothing."""
    async with bench(policies=[RateLimit(2, 10)]) as b:
        assert await b.code("nobody") == "TOOL_NOT_FOUND"
        assert await b.code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"
        assert await b.code("echo", {"x": 1}) == "INVALID_ARGUMENTS"
        assert await b.code("echo", {"x": 1}) == "RATE_LIMITED"


async def test_looking_costs_nothing(mock_clock):
    """The catalog spends no budget."""
    async with bench(policies=[RateLimit(1, 10)]) as b:
        for _ in range(5):
            await b.engine.catalog()
        assert await b.code("read") == "ok"


async def test_rate_limit_remembers_a_bounded_number_of_callers(mock_clock):
    """Many callers cost bounded memory; a caller with an open window is not forgotten for an expired one."""
    limit = RateLimit(1, 10)
    spec: Any = None
    for number in range(RateLimit.MAX_WINDOWS + 50):
        limit.check(AgentContext(principal=str(number)), spec)
        assert len(limit._windows) <= RateLimit.MAX_WINDOWS
    mock_clock.jump(11)
    limit.check(AgentContext(principal="new"), spec)
    assert len(limit._windows) == 1


@pytest.mark.parametrize(("calls", "seconds"), [(0, 1), (-1, 1), (1, 0), (1, -1), (1, float("nan")), (1, float("inf"))])
def test_a_rate_limit_is_checked_when_it_is_made(calls, seconds):
    """A limit that lets nothing through, or has no window, is refused when it is built."""
    with pytest.raises(ValueError, match="RateLimit needs"):
        RateLimit(calls, seconds)


async def test_policies_are_asked_in_order():
    """Policies are asked in the order in which they were added, up to the first that refuses."""
    from tests.engine.kit import Refuse

    first, second = Refuse("FIRST"), Refuse("SECOND")
    async with bench(policies=[first, second]) as b:
        assert await b.code("read") == "FIRST"
    assert (first.asked, second.asked) == (["read"], [])
