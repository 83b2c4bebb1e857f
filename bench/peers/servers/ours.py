"""This engine: ``ours.py native|hypercorn|stdio|mcp|mcp-http|mcp-native PORT [TOOLS]``."""

from __future__ import annotations

import sys
from typing import Any

import pydantic
import trio

from bench.peers.servers.catalog import PRODUCTS
from carmy_engine import AgentContext, App, MemoryStore, Settings, tool


class Product(pydantic.BaseModel):
    sku: str
    name: str
    price_cents: int


CATALOG = [Product(**product) for product in PRODUCTS]


@tool(effect="read", parallel_safe=True, register=False)
async def search(query: str, limit: int = 10) -> list[Product]:
    """Search the catalog.

    Args:
        query: Words to look for.
        limit: Most results to return.
    """
    return [product for product in CATALOG if query in product.name][:limit]


@tool(effect="read", parallel_safe=True, register=False)
async def echo(text: str) -> str:
    """Give back the text."""
    return text


@tool(effect="read", parallel_safe=True, timeout=600, register=False)
async def wait(ctx: AgentContext) -> str:
    """Wait for as long as the caller does."""
    ctx.progress.report(0)
    await trio.sleep_forever()
    return ""


MAX_EXECUTIONS = 2000
"""Room for other calls beside a thousand open streams."""

MAX_IDS = 10_000_000
"""Room for a run in which every call has an id of its own: a full store refuses new ones, and a second of load is as much as an hour."""


def named(name: str) -> Any:
    """The search under another name."""

    @tool(effect="read", parallel_safe=True, register=False, name=name)
    async def another(query: str, limit: int = 10) -> list[Product]:
        """Search the catalog."""
        return await search(query, limit)

    return another


def main(way: str, port: str = "0", tools: str = "3") -> None:
    app = App("bench", settings=Settings(max_executions=MAX_EXECUTIONS)).add(search, echo, wait)
    app.store(MemoryStore(max_entries=MAX_IDS, max_bytes=MAX_IDS * 1024))
    for number in range(int(tools) - 3):
        app.add(named(f"search_{number}"))
    address = ["--address", f"127.0.0.1:{port}"]
    app.run(
        {
            "native": ["serve", "--server", "native", *address],
            "hypercorn": ["serve", "--server", "hypercorn", *address],
            "stdio": ["stdio"],
            "mcp": ["mcp"],
            "mcp-http": ["mcp", "--http", *address],
            "mcp-native": ["mcp", "--http", "--server", "native", *address],
        }[way]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
