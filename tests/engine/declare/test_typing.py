"""What type checkers see. The assertions are checked when mypy runs over the tests; here they only have to run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from carmy_engine import State, tool


class Database:
    def find(self) -> int:
        return 1


@tool(effect="read", register=False)
async def search(db: State[Database], query: str, limit: int = 10) -> list[str]:
    assert_type(db, Database)
    return [query] * min(limit, db.find())


@tool(effect="none", register=False)
def add(a: int, b: int) -> int:
    return a + b


async def test_a_declared_function_keeps_its_type() -> None:
    """Parameters and results of a decorated function are what they were, and ``State[T]`` is a ``T``."""
    found: Callable[[Database, str, int], Coroutine[Any, Any, list[str]]] = search
    assert await found(Database(), "a", 2) == ["a"]
    assert_type(await search(Database(), "a"), list[str])
    assert_type(add(1, 2), int)
