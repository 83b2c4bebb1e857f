"""A leaked thing is an error of the test that leaks it."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.leaks import no_leaks


@pytest.fixture(autouse=True)
def leaks() -> None:
    """In place of the check of the whole suite: these tests leak on purpose."""


def never_awaited() -> None:
    """Drop a coroutine."""

    async def nothing() -> None: ...

    coroutine = nothing()
    del coroutine


def destroyed() -> None:
    """Drop a task and its loop."""
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        loop.create_task(wait())  # noqa: RUF006 - dropped
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    loop.close()


def unclosed() -> None:
    """Drop a connection."""
    loop = asyncio.new_event_loop()

    async def connect() -> None:
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        server.close()

    loop.run_until_complete(connect())
    loop.close()


def never_retrieved() -> None:
    """Drop a task that has failed."""

    async def fail() -> None:
        raise ValueError("dropped")

    async def main() -> None:
        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("leak", "message"),
    [
        (never_awaited, "was never awaited"),
        (destroyed, "Task was destroyed but it is pending"),
        (unclosed, "unclosed transport"),
        (never_retrieved, "Task exception was never retrieved"),
    ],
)
def test_a_leak_is_an_error(leak: Callable[[], None], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a warning, which is an error in this suite, or as what asyncio logs."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: found.append(str(raised.exc_value)))

    def check() -> None:
        with no_leaks():
            leak()
            gc.collect()

    assert ("error", None, Warning, None, 0) in warnings.filters
    try:
        check()
    except AssertionError as error:
        found.append(str(error))
    assert message in "\n".join(found)


def test_the_check_finds_nothing_in_good_code() -> None:
    """A task that has ended, and one that was cancelled, are no errors."""

    async def main() -> Any:
        task = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(0)
        task.cancel()
        return await asyncio.gather(task, return_exceptions=True)

    with no_leaks():
        assert isinstance(asyncio.run(main())[0], asyncio.CancelledError)
        gc.collect()
