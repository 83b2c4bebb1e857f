"""One soak: the servers, the load, the faults, and the checks at the end."""

from __future__ import annotations

import json
import sqlite3
import statistics
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import trio

from carmy_engine import ExecutionRequest
from carmy_http import open_http
from carmy_mcp import open_mcp
from carmy_stdio import open_stdio
from carmy_websocket import open_websocket
from tests.faults.processes import CARMY

from . import clients, faults
from .clients import Caller
from .servers import APP, Served, environment, served
from .tally import Tally

HTTP_TOOLS = ("echo", "add", "wrong", "panic", "late", "parts", "leave", "note", "note")
ISOLATED_TOOLS = ("square", "square", "square", "die", "spin")
PLAIN_TOOLS = ("echo", "add", "wrong", "panic", "late", "square", "parts", "leave")
MCP_TOOLS = ("echo", "add", "square")

CALLERS = 6
"""Of each transport."""

QUIET_SECONDS = 60
"""In which a server must be back at its state before the load."""

TREND_SECONDS = 120
"""A shorter run states no trend of memory: caches fill during the first minute."""

GROWTH = 1.10
GROWTH_MB = 12.0
"""Memory at the end, over memory after a third of the run. What a leak of one connection's buffers a second would exceed in ten minutes."""


async def soak(seconds: float, directory: Path, say: Callable[[str], None], seed: int = 1) -> Tally:
    """Run the load for a time; return what was seen."""
    tally = Tally()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(served("serve", directory, "http"))
        ws = await stack.enter_async_context(served("ws", directory, "ws"))
        servers = {"http": http, "ws": ws}
        await _warm_up(http, ws, tally)
        before = {name: await _vitals(server) for name, server in servers.items()}
        say(f"before the load: {before}")
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            for name, server in servers.items():
                nursery.start_soon(_watch, name, server, tally, stop)
            nursery.start_soon(_load, http, ws, directory, tally, stop, seed)
            nursery.start_soon(faults.kill_workers, http, tally, stop, seed)
            nursery.start_soon(faults.lock_store, directory / "http.db", tally, stop, seed)
            nursery.start_soon(faults.kill_servers, directory, tally, stop, seed + 1000)
            await _progress(seconds, tally, say)
            stop.set()
        for name, server in servers.items():
            await _is_quiet(name, server, before[name], tally)
        http.process.terminate()
        ws.process.terminate()
        with trio.move_on_after(QUIET_SECONDS) as scope:
            for name, server in servers.items():
                tally.expect(name, "exit code", await server.process.wait(), 0)
        if scope.cancelled_caught:
            tally.complain("a server has not ended after SIGTERM")
    check_records(directory / "http.db", tally)
    check_ledgers(directory, tally)
    check_memory(tally, seconds)
    return tally


async def _warm_up(http: Served, ws: Served, tally: Tally) -> None:
    """Call each kind of tool once: pools and caches are filled then."""
    async with open_http(http.url) as client:
        caller = Caller("warm-up", client, tally, 0)
        for tool in ("echo", "add", "parts", "square", "square", "note"):
            await getattr(caller, f"call_{tool}")()
    async with open_websocket(ws.url) as client:
        caller = Caller("warm-up", client, tally, 0)
        for tool in ("echo", "add", "parts", "square", "square"):
            await getattr(caller, f"call_{tool}")()


async def _load(http: Served, ws: Served, directory: Path, tally: Tally, stop: trio.Event, seed: int) -> None:
    stdio = [*CARMY, "stdio", APP]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_call, "http", lambda: open_http(http.url), HTTP_TOOLS, tally, stop, seed, True)
        nursery.start_soon(_call, "http", lambda: open_http(http.url), ISOLATED_TOOLS, tally, stop, seed + 1, True)
        nursery.start_soon(_call, "ws", lambda: open_websocket(ws.url), PLAIN_TOOLS, tally, stop, seed, False)
        nursery.start_soon(_call, "mcp", lambda: open_mcp(f"{http.url}/mcp"), MCP_TOOLS, tally, stop, seed, False)
        child = {**environment(directory, "stdio"), "CARMY_STORE_URL": "memory:"}
        nursery.start_soon(
            partial(
                _call, "stdio", lambda: open_stdio(stdio, env=child), PLAIN_TOOLS, tally, stop, seed, False, reopen=10.0
            )
        )
        for number in range(3):
            nursery.start_soon(clients.drop_connections, http.url, tally, stop, seed + number)
            nursery.start_soon(clients.read_slowly, http.url, tally, stop, seed + number)


async def _call(
    transport: str,
    open_client: Callable[[], Any],
    tools: tuple[str, ...],
    tally: Tally,
    stop: trio.Event,
    seed: int,
    records: bool,
    *,
    reopen: float = 30.0,
) -> None:
    """Callers on one client, which is opened anew from time to time."""
    round_ = 0
    while not stop.is_set():
        round_ += 1
        over = trio.Event()
        async with open_client() as client, trio.open_nursery() as nursery:
            for number in range(CALLERS):
                caller = Caller(transport, client, tally, hash((seed, number, round_)), records=records)
                nursery.start_soon(caller.run, tools, over)
            with trio.move_on_after(reopen):
                await stop.wait()
            over.set()


async def _watch(name: str, server: Served, tally: Tally, stop: trio.Event) -> None:
    """Sample the vitals of a server each second."""
    async with _client(server) as client:
        while not stop.is_set():
            tally.sample(name, (await client.execute(ExecutionRequest(tool="vitals"))).unwrap())
            with trio.move_on_after(1):
                await stop.wait()


def _client(server: Served) -> Any:
    return open_websocket(server.url) if server.url.startswith("ws") else open_http(server.url)


async def _vitals(server: Served) -> dict[str, float]:
    async with _client(server) as client:
        vitals: dict[str, float] = (await client.execute(ExecutionRequest(tool="vitals"))).unwrap()
        return vitals


async def _progress(seconds: float, tally: Tally, say: Callable[[str], None]) -> None:
    for _ in range(int(seconds // 30)):
        await trio.sleep(30)
        say(f"{tally.calls} calls, {tally.wrong_count} wrong, faults: {dict(tally.faults)}")
    await trio.sleep(seconds % 30)


async def _is_quiet(name: str, server: Served, before: dict[str, float], tally: Tally) -> None:
    """Complain if tasks, descriptors or processes are left behind."""
    now: dict[str, float] = {}
    with trio.move_on_after(QUIET_SECONDS):
        while True:
            now = await _vitals(server)
            tally.sample(name, now)
            if all(now[kind] <= before[kind] for kind in ("tasks", "descriptors", "children")):
                return
            await trio.sleep(0.5)
    left = {kind: (before[kind], now.get(kind)) for kind in ("tasks", "descriptors", "children")}
    tally.complain(f"{name} has not come to rest: before and after the load {left}")


def check_records(path: Path, tally: Tally) -> None:
    """Every answer has a record in the file."""
    with closing(sqlite3.connect(path)) as connection:
        recorded = {json.loads(row[0])["execution_id"] for row in connection.execute("SELECT record FROM records")}
    lost = tally.answered - recorded
    if lost:
        tally.complain(f"{len(lost)} of {len(tally.answered)} answers have no record, such as {sorted(lost)[:3]}")
    tally.faults["records checked"] = len(tally.answered)


def check_ledgers(directory: Path, tally: Tally) -> None:
    """Every note was written once; one in doubt at most once."""
    written = Counter(
        key for path in sorted(directory.glob("*.ledger")) for key in path.read_text(encoding="utf-8").split()
    )
    twice = [key for key, count in written.items() if count > 1]
    lost = tally.notes - written.keys()
    if twice:
        tally.complain(f"{len(twice)} notes were written twice, such as {twice[:3]}")
    if lost:
        tally.complain(f"{len(lost)} notes were answered and not written, such as {sorted(lost)[:3]}")


def check_memory(tally: Tally, seconds: float) -> None:
    """Memory is flat after the first third."""
    for name, samples in tally.samples.items():
        loaded = [vitals["rss_mb"] for at, vitals in samples if at < seconds]
        if seconds < TREND_SECONDS or len(loaded) < 30:
            continue
        third = len(loaded) // 3
        early = statistics.median(loaded[third : third + len(loaded) // 6])
        late = statistics.median(loaded[-len(loaded) // 6 :])
        if late > early * GROWTH + GROWTH_MB:
            tally.complain(f"the memory of {name} grew from {early:.0f} to {late:.0f} MB")
