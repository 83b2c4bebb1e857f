"""An upgrade under load, and a backup under load: no answer is lost."""

from __future__ import annotations

import itertools
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import trio

from carmy_engine import ExecutionRequest
from carmy_http import open_http

from .conftest import TOKEN, environment, serving

PATIENCE_SECONDS = 50
CALLERS = 8


class Load:
    """Callers that order without a pause.

    Attributes:
        answers: The execution of each answer, by its request_id.
    """

    def __init__(self, url: str, nursery: trio.Nursery) -> None:
        self.answers: dict[str, str] = {}
        self._url = url
        self._numbers = itertools.count()
        self._stop = trio.Event()
        self._ended = trio.Event()
        self._running = CALLERS
        for _ in range(CALLERS):
            nursery.start_soon(self._call)

    async def _call(self) -> None:
        async with open_http(self._url, token=TOKEN) as client:
            while not self._stop.is_set():
                id_ = f"order-{next(self._numbers)}"
                request = ExecutionRequest(tool="order", arguments={"sku": id_}, request_id=id_)
                result = await client.execute(request)
                while result.error is not None and result.error.code == "SHUTTING_DOWN":  # and was never started
                    assert result.error.retryable
                    result = await client.execute(request)
                assert result.unwrap() == f"1 x {id_}"
                self.answers[id_] = result.execution_id
        self._running -= 1
        if not self._running:
            self._ended.set()

    async def grows(self, by: int = 30) -> None:
        """Wait for more answers."""
        wanted = len(self.answers) + by
        while len(self.answers) < wanted:  # noqa: ASYNC110 - any of the callers may add them
            await trio.sleep(0.005)

    async def end(self) -> None:
        """Wait for the last answers."""
        self._stop.set()
        await self._ended.wait()


async def test_an_upgrade_loses_no_answer(installed: Path) -> None:
    """The new process takes the socket while the old one drains: every call is answered once, by one of them.

    A call on a connection to the old one may be refused as ``SHUTTING_DOWN``; sent again at once, it reaches the new one.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener, trio.fail_after(PATIENCE_SECONDS):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = ("carmy", "serve", "--address", f"fd://{listener.fileno()}")
        given: dict[str, Any] = {"pass_fds": [listener.fileno()], "env": environment(installed, CARMY_ADDRESS="")}
        async with serving(installed, *command, **given) as old, trio.open_nursery() as nursery:
            load = Load(url, nursery)
            await load.grows()
            async with serving(installed, *command, **given) as new:
                await load.grows()
                old.process.terminate()
                assert await old.process.wait() == 0
                await load.grows()
                new.process.terminate()
                assert await new.process.wait() == 0
                # The queue of the socket keeps the calls that come now, as while systemd restarts a service.
                async with serving(installed, *command, **given):
                    await load.grows()
                    await load.end()
    assert len(set(load.answers.values())) == len(load.answers) >= 4 * 30


async def test_a_backup_of_a_store_in_use_can_be_restored(installed: Path, tmp_path: Path) -> None:
    """The copy has every answer from before it was begun; a server on the copy replays them."""
    copy = tmp_path / "copy.db"
    store = tmp_path / "data" / "shop.db"
    with trio.fail_after(PATIENCE_SECONDS):
        async with serving(installed, "carmy", "serve") as server, trio.open_nursery() as nursery:
            load = Load(server.url, nursery)
            await load.grows()
            before = dict(load.answers)
            await trio.run_process([sys.executable, str(installed / "backup.py"), str(store), str(copy)])
            await load.grows()
            await load.end()
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.stat().st_mode & 0o077 == 0
        restored = environment(installed, CARMY_STORE_URL=f"sqlite:{copy}")
        async with (
            serving(installed, "carmy", "serve", env=restored) as server,
            open_http(server.url, token=TOKEN) as client,
        ):
            for id_, execution_id in before.items():
                request = ExecutionRequest(tool="order", arguments={"sku": id_}, request_id=id_)
                result = await client.execute(request)
                assert (result.execution_id, result.replayed) == (execution_id, True)
