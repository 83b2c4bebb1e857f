"""What type checkers see of typed calls in process. Never run: mypy and pyright read it in ``make check``."""

from __future__ import annotations

from typing import assert_type

from carmy_engine import INJECTED, AgentContext, Engine, ModelCall, ModelResult, State, ToolRegistry, tool


class Database:
    """Some state."""


class Inventory:
    """A provider."""

    @tool(effect="read")
    def lookup(self, sku: str, warehouse: str | None = None) -> int:
        """Count."""
        return len(sku)


@tool(effect="read", register=False)
async def search(query: str, limit: int = 10) -> list[str]:
    """Search."""
    return [query] * limit


@tool(effect="read", register=False)
async def count(ctx: AgentContext, table: str, db: State[Database] = INJECTED) -> int:
    """Count rows."""
    return len(table)


@tool(effect="write", register=False)
def clear(ctx: AgentContext) -> None:
    """Remove all rows."""


async def uses(engine: Engine, inventory: Inventory) -> None:
    """Arguments and results are those of the function; what the engine injects is left out."""
    assert_type(await engine.call(search, query="mouse"), list[str])
    assert_type(await engine.call(search, "mouse", 3), list[str])
    assert_type(await engine.call(count, table="people"), int)
    assert_type(await engine.call(clear), None)
    assert_type(await engine.call(inventory.lookup, "AB-12"), int)
    await engine.call(search)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]  # query is missing
    await engine.call(search, query=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]  # not a text
    await engine.call(count, table="a", nothing=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]  # unknown
    assert_type(await engine.run_calls([ModelCall(tool="search", call_id="1")]), list[ModelResult])
    assert_type(ToolRegistry().register(search, inventory).subset("search"), ToolRegistry)
