"""What type checkers see of the public interface. Never run: mypy and pyright read it in ``make check``."""

from __future__ import annotations

from typing import Annotated, assert_type

import trio

from carmy_engine import (
    AgentContext,
    App,
    BoundEngine,
    Engine,
    ExecutionEvent,
    ExecutionRequest,
    ExecutionResult,
    State,
    tool,
)
from carmy_engine.abc import Executor


class Database:
    """Some state."""

    rows: int = 0


@tool(effect="read", idempotent=True, parallel_safe=True, register=False)
async def count(db: State[Database], ctx: AgentContext, table: Annotated[str, "Which table."], limit: int = 10) -> int:
    """Count rows."""
    assert_type(db, Database)
    assert_type(ctx.principal, str | None)
    assert_type(table, str)
    return min(db.rows, limit)


@tool(effect="write", register=False)
def clear(db: State[Database]) -> None:
    """Remove all rows."""
    db.rows = 0


app = App("typed", timeout=5)


@app.tool(effect="none")
async def ping() -> str:
    """Answer."""
    return "pong"


async def uses() -> None:
    """A decorated function stays what it was; executors are executors."""
    assert_type(await ping(), str)
    assert_type(clear(Database()), None)
    assert_type(await count(Database(), AgentContext(), "people"), int)
    assert_type(app.add(count, clear).state(Database()), App)
    async with app.open() as engine:
        assert_type(engine, Engine)
        bound = engine.bind(principal="ana", permissions={"confirm:clear"}).subset("count")
        assert_type(bound, BoundEngine)
        executors: list[Executor] = [engine, bound]
        for executor in executors:
            assert_type(await executor.execute(ExecutionRequest(tool="ping")), ExecutionResult)
            async with executor.stream(ExecutionRequest(tool="ping", arguments={"a": 1})) as events:
                assert_type(events, trio.abc.ReceiveChannel[ExecutionEvent])
