"""Calls without a wire: ``python -m bench.peers.in_process NAME SECONDS`` prints calls per second and latencies as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pydantic
import trio

from bench.peers.line_load import percentiles
from bench.peers.servers.catalog import EXPECTED, QUERY

Call = Callable[[], Awaitable[Any]]


class Search(pydantic.BaseModel):
    query: str
    limit: int = 10


async def timed(call: Call, products: Callable[[Any], Any], seconds: float) -> None:
    """Check, warm up, measure, print."""
    found = products(await call())
    assert found == EXPECTED, found
    for _ in range(200):
        await call()
    taken: list[float] = []
    started = latest = time.perf_counter()
    cpu = time.process_time()
    while latest < started + seconds:
        await call()
        now = time.perf_counter()
        taken.append((now - latest) * 1000)
        latest = now
    cpu = time.process_time() - cpu
    rate = len(taken) / (latest - started)
    print(json.dumps({"rate": rate, **percentiles(taken), "cpu_us": cpu / len(taken) * 1e6}))


async def engine(seconds: float) -> None:
    """``engine.execute``, from the arguments as JSON to the output as JSON."""
    import msgspec  # noqa: PLC0415 - each contender has only its own imports

    from bench.peers.servers.ours import search  # noqa: PLC0415
    from carmy_engine import App, ExecutionRequest  # noqa: PLC0415

    async with App("bench").add(search).open() as opened:
        request = ExecutionRequest(tool="search", arguments=msgspec.Raw(b'{"query":"%s"}' % QUERY.encode()))
        await timed(lambda: opened.execute(request), lambda result: result.unwrap(), seconds)


async def fastmcp(seconds: float) -> None:
    """FastMCP's client on its own server, in memory."""
    import fastmcp as library  # noqa: PLC0415 - as above

    from bench.peers.servers.mcp_app import fastmcp_server  # noqa: PLC0415

    async with library.Client(fastmcp_server()) as client:
        call = lambda: client.call_tool("search", {"query": QUERY})  # noqa: E731
        await timed(call, lambda result: result.structured_content["result"], seconds)


async def bare(seconds: float) -> None:
    """A function whose input pydantic checks and whose output it renders, and nothing else."""
    from bench.peers.servers.ours import CATALOG, Product  # noqa: PLC0415 - as above

    read = pydantic.TypeAdapter(Search).validate_json
    write = pydantic.TypeAdapter(list[Product]).dump_json
    data = json.dumps({"query": QUERY}).encode()

    async def search(query: str, limit: int) -> list[Product]:
        return [product for product in CATALOG if query in product.name][:limit]

    async def call() -> bytes:
        given = read(data)
        return write(await search(given.query, given.limit))

    await timed(call, json.loads, seconds)


def main(name: str, seconds: str) -> None:
    if name == "fastmcp":
        asyncio.run(fastmcp(float(seconds)))
    else:
        trio.run({"engine": engine, "bare": bare}[name], float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
