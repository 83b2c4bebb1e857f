"""The application behind the tools of every framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from carmy_engine import AgentContext, AgentError, App, ErrorCategory


def make_app() -> tuple[App, list[str]]:
    """An application, and what its tools have done."""
    done: list[str] = []
    app = App("shop")

    @app.tool(effect="read", parallel_safe=True)
    async def search(query: str, limit: int = 2) -> list[dict[str, Any]]:
        """Search the catalog.

        Args:
            query: Words to look for.
            limit: Most results.
        """
        done.append(f"search {query}")
        return [{"name": f"{query} {number}"} for number in range(limit)]

    @app.tool(effect="write", name="order.create")
    async def order(sku: str, count: int) -> str:
        """Place an order."""
        done.append(f"order {count} {sku}")
        return f"ordered {count} x {sku}"

    @app.tool(effect="destructive")
    async def delete_all() -> str:
        """Delete everything."""
        done.append("delete")
        return "deleted"

    @app.tool(effect="read")
    async def fails() -> str:
        """Always fails."""
        raise AgentError("SOLD_OUT", "nothing is left", ErrorCategory.CONFLICT, suggested_action="Try another shop.")

    @app.tool(effect="read")
    async def configure(config: str, run_manager: int = 0) -> str:
        """Has arguments that frameworks use themselves."""
        return f"{config} {run_manager}"

    @app.tool(effect="write", timeout=20)
    async def wait(ctx: AgentContext) -> str:
        """Wait for a long time."""
        done.append("waiting")
        try:
            await trio.sleep_forever()
        finally:
            done.append(f"ended {ctx.cancellation.cause}")
        return ""

    return app, done


REPAIR = "invalid arguments: argument 'count' must be an integer"
ARGUMENTS: Mapping[str, Any] = {"sku": "MO-1", "count": 2}
WRONG: Mapping[str, Any] = {"sku": "MO-1", "count": "two"}
