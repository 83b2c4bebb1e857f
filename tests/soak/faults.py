"""Faults of a soak: processes that are killed, and a store that is locked."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sqlite3
import time
from functools import partial
from pathlib import Path

import trio

from carmy_engine.transport import descendants
from carmy_http import open_http

from .clients import Caller
from .servers import Served, served
from .tally import Tally

VICTIM = "victim"
CALLERS_OF_VICTIM = 6


async def kill_workers(server: Served, tally: Tally, stop: trio.Event, seed: int) -> None:
    """Kill a worker process of a server now and then."""
    rng = random.Random(seed)
    while not await _stopped(stop, 1 + 4 * rng.random()):
        workers = descendants(server.process.pid)
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)
                tally.faults["worker processes killed"] += 1


async def lock_store(path: Path, tally: Tally, stop: trio.Event, seed: int) -> None:
    """Hold the lock of the store's file, sometimes for longer than the store waits for it."""
    rng = random.Random(seed)
    while not await _stopped(stop, 5 + 5 * rng.random()):
        seconds = rng.choice([0.5, 2, 7])
        await trio.to_thread.run_sync(_hold_lock, path, seconds)
        tally.faults["store locked"] += 1


def _hold_lock(path: Path, seconds: float) -> None:
    with (
        contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as connection,
        contextlib.suppress(sqlite3.OperationalError),
    ):
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        connection.execute("ROLLBACK")


async def kill_servers(directory: Path, tally: Tally, stop: trio.Event, seed: int) -> None:
    """Serve, and kill the server again and again. Its callers retry under the same request_id, as their listener lives on."""
    rng = random.Random(seed)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        finished = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_call_victim, url, tally, stop, seed, finished)
            while not finished.is_set():
                async with served("serve", directory, VICTIM, listener) as server:
                    with trio.move_on_after(1 + 3 * rng.random()):
                        await finished.wait()
                    if not finished.is_set():
                        server.process.kill()
                        tally.faults["servers killed"] += 1


async def _call_victim(url: str, tally: Tally, stop: trio.Event, seed: int, finished: trio.Event) -> None:
    try:
        async with open_http(url) as client, trio.open_nursery() as nursery:
            for number in range(CALLERS_OF_VICTIM):
                caller = Caller("http to a killed server", client, tally, seed + number)
                nursery.start_soon(partial(caller.run, ("note",), stop))
    finally:
        finished.set()


async def _stopped(stop: trio.Event, seconds: float) -> bool:
    """Wait; True at the end of the load."""
    with trio.move_on_after(seconds):
        await stop.wait()
    return stop.is_set()
