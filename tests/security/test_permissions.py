"""Permissions for tools by name, pattern and effect, policies that see arguments, and the share of one principal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    AuthSettings,
    BoundEngine,
    Effect,
    Engine,
    ExecutionRequest,
    LimitSettings,
    RequireToolPermission,
    Settings,
    ToolSpec,
)

_NAMES = {
    "orders.list": "read",
    "orders.cancel": "destructive",
    "stock.list": "read",
    "echo": "none",
    "ordersX": "write",
}
NAMES: dict[str, Effect] = {name: Effect(effect) for name, effect in _NAMES.items()}


def shop(**settings: Any) -> App:
    """An application with a tool of each name."""
    app = App("shop", settings=Settings(**settings))

    async def run() -> str:
        """Run."""
        return "done"

    for name, effect in NAMES.items():
        app.tool(name=name, effect=effect)(_copy(run))
    return app


def _copy(function: Any) -> Any:
    async def run() -> str:
        """Run."""
        return await function()

    return run


async def code(caller: BoundEngine, name: str) -> str | None:
    """The code of a call's error, None if it completed."""
    error = (await caller.execute(ExecutionRequest(tool=name))).error
    return None if error is None else error.code


@pytest.mark.parametrize(
    ("permissions", "granted"),
    [
        (set[str](), set[str]()),
        ({"tool:echo"}, {"echo"}),
        ({"tool:orders.*"}, {"orders.list", "orders.cancel"}),
        ({"tool:*.list"}, {"orders.list", "stock.list"}),
        ({"tool:*"}, set(NAMES)),
        ({"tool:o*.l*t", "tool:e*"}, {"orders.list", "echo"}),
        ({"effect:read"}, {"orders.list", "stock.list"}),
        ({"effect:none", "tool:ordersX"}, {"echo", "ordersX"}),
        # Nothing else is a pattern, and nothing is granted by half.
        ({"tool:order?.list", "tool:[eo]cho", "tool:ech", "tool:", "*", "orders.*", "effect:*", "tool:Echo*"}, set()),
        ({"tool:orders.list*x", "tool:(echo)", "tool:echo|*x", "tool:.*cho"}, set()),
    ],
)
async def test_grants(permissions: set[str], granted: set[str]) -> None:
    """A tool is listed and runs for callers with its permission, by name, pattern or effect, and for no others."""
    async with shop(auth=AuthSettings(require_permissions=True)).open() as engine:
        caller = engine.bind(principal="ana", permissions={*permissions, "confirm:orders.cancel"})
        assert {tool.name for tool in (await caller.catalog()).tools} == granted
        for name in NAMES:
            assert await code(caller, name) == (None if name in granted else "FORBIDDEN"), name


async def test_patterns_do_not_confirm() -> None:
    """A pattern of tools grants no confirmation: that of each tool has to be granted by its name."""
    async with shop().policy(RequireToolPermission()).open() as engine:
        for permissions in ({"tool:*", "confirm:*"}, {"tool:*", "effect:destructive"}):
            assert await code(engine.bind(permissions=permissions), "orders.cancel") == "CONFIRMATION_REQUIRED"


async def test_the_missing_permission_is_named() -> None:
    """The refusal has the permission that would grant the tool, for a host that can ask for it."""
    async with shop(auth=AuthSettings(require_permissions=True)).open() as engine:
        error = (await engine.bind(principal="ana").execute(ExecutionRequest(tool="echo"))).error
        assert error is not None
        assert error.details == {"permission": "tool:echo"}


async def test_long_patterns_take_linear_time() -> None:
    """A pattern with many stars is no way to hold the event loop."""
    async with shop(auth=AuthSettings(require_permissions=True)).open() as engine:
        caller = engine.bind(permissions={"tool:" + "*a" * 200 + "*b"})
        assert (await caller.catalog()).tools == ()


class OwnOrders:
    """A caller may cancel its own orders only."""

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Allow."""

    def check_arguments(self, context: AgentContext, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Refuse the orders of others."""
        if arguments["owner"] != context.principal:
            raise AgentError.standard("FORBIDDEN", "the order is another caller's")


async def test_policies_see_validated_arguments() -> None:
    """A policy decides by arguments that fit the schema, defaults included; a caller that may not call learns nothing of them."""
    app = App("shop").policy(OwnOrders())

    @app.tool(effect="write")
    async def cancel(number: int, owner: str = "ben") -> str:
        """Cancel an order."""
        return f"cancelled {number}"

    async with app.open() as engine:

        async def ask(principal: str, **arguments: Any) -> str | None:
            request = ExecutionRequest(tool="cancel", arguments=arguments)
            error = (await engine.bind(principal=principal).execute(request)).error
            return None if error is None else error.code

        assert await ask("ana", number=1, owner="ana") is None
        assert await ask("ana", number=1, owner="ben") == "FORBIDDEN"
        assert await ask("ana", number=1) == "FORBIDDEN"
        assert await ask("ben", number=1) is None
        assert await ask("ben", number="x", owner="ana") == "INVALID_ARGUMENTS"


@asynccontextmanager
async def holding(engine: Engine, callers: list[BoundEngine], running: trio.Event) -> AsyncIterator[None]:
    """One running execution of the tool `hold` for each of the callers, until the end of the block."""
    async with trio.open_nursery() as nursery:
        for caller in callers:
            nursery.start_soon(caller.execute, ExecutionRequest(tool="hold"))
        await trio.testing.wait_all_tasks_blocked()
        yield
        running.set()


async def test_share_of_a_principal() -> None:
    """A principal at its limit is refused and may retry; other callers are not affected, and each end makes room."""
    release = trio.Event()
    app = App("shop", settings=Settings(max_executions=7, limits=LimitSettings(per_principal_executions=2)))

    @app.tool(effect="none", parallel_safe=True)
    async def hold() -> None:
        """Wait."""
        await release.wait()

    @app.tool(effect="none", parallel_safe=True)
    async def echo() -> str:
        """Return."""
        return "echo"

    async with app.open() as engine:
        ana, ben = engine.bind(principal="ana"), engine.bind(principal="ben")
        again = engine.bind(principal="ana", session="another", transport="websocket")
        one, other = engine.bind(session="one"), engine.bind(session="two")
        async with holding(engine, [ana, again, one, one, engine.bind()], release):
            for caller, expected in ((ana, "RATE_LIMITED"), (again, "RATE_LIMITED"), (one, "RATE_LIMITED")):
                error = (await caller.execute(ExecutionRequest(tool="echo"))).error
                assert error is not None
                assert (error.code, error.retryable, error.retry_after) == (expected, True, 1)
            for caller in (ben, other, engine.bind()):
                assert await code(caller, "echo") is None
        assert await code(ana, "echo") is None
        release = trio.Event()
        # The limit of the engine counts as before.
        callers = [engine.bind(principal=f"caller {number}") for number in range(7)]
        async with holding(engine, callers, release):
            assert await code(ben, "echo") == "OVERLOADED"
        release = trio.Event()
        async with holding(engine, [ana, ana], release):
            assert await code(ana, "echo") == "RATE_LIMITED"


async def test_refusals_use_no_share() -> None:
    """A call that is refused, cancelled or fails leaves its share free."""
    app = App("shop", settings=Settings(limits=LimitSettings(per_principal_executions=1)))

    @app.tool(effect="none", parallel_safe=True)
    async def fail() -> None:
        """Fail."""
        raise ValueError

    @app.tool(effect="none", parallel_safe=True)
    async def wait() -> None:
        """Wait."""
        await trio.sleep_forever()

    async with app.open() as engine:
        ana = engine.bind(principal="ana")
        for _ in range(3):
            assert await code(ana, "unknown") == "TOOL_NOT_FOUND"
            assert await code(ana, "fail") == "TOOL_PANIC"
            with trio.CancelScope() as scope:
                scope.cancel()
                await ana.execute(ExecutionRequest(tool="wait"))
            assert (await ana.execute(ExecutionRequest(tool="wait", timeout_ms=1))).error is not None
