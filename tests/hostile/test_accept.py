"""Connections that cannot be accepted: too many for the process, or dead before their turn."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from carmy_engine import HttpSettings
from carmy_engine.transport import BURST_LINES
from carmy_net import Server
from carmy_net._server import MAX_ACCEPTED_AT_ONCE
from tests.hostile.siege import LAST, RECOVERY_SECONDS, no_fault
from tests.hostile.test_shutdown import loaded

__all__ = ["no_fault"]


class Listener:
    """Gives what it is told to, and then nothing."""

    is_sole_acceptor = True

    def __init__(self, outcomes: Iterator[object]) -> None:
        self._outcomes = outcomes
        self.turns = [0]
        """How many were taken each time before other tasks had a turn."""

    def close(self) -> None:
        pass

    async def accept(self) -> object:
        self.turns.append(0)
        await trio.lowlevel.checkpoint()
        outcome = self.accept_now()
        if outcome is None:
            await trio.sleep_forever()
        return outcome

    def accept_now(self) -> object:
        outcome = next(self._outcomes, None)
        if isinstance(outcome, int):
            raise OSError(outcome, os.strerror(outcome))
        self.turns[-1] += 1
        return outcome


class Peer:
    """A connection that ends at once."""

    def __init__(self, drained: list[object]) -> None:
        self._drained = drained

    async def run(self) -> None:
        await trio.lowlevel.checkpoint()

    def drain(self) -> None:
        self._drained.append(self)


async def accept(listener: Listener, limit: int = 10) -> int:
    """How many connections are served of what a listener gives."""
    served: list[object] = []

    def connect(stream: object) -> Peer:
        served.append(stream)
        return Peer([])

    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        server = Server(connect, HttpSettings(max_connections=limit))  # type: ignore[arg-type] # a double
        nursery.start_soon(server.run, [listener], stop, stop, lambda: None)  # type: ignore[arg-type]
        await trio.sleep(10)  # of the tests' own clock
        stop.set()
    return len(served)


class Stream:
    """An accepted connection."""

    class socket:
        """Its socket, already gone."""

        @staticmethod
        def setsockopt(*_: object) -> None:
            raise OSError(errno.ENOTCONN, "gone")


@pytest.mark.parametrize(
    "code",
    [errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EMFILE, errno.ENOBUFS],
)
async def test_connections_that_died_in_the_queue(code: int, autojump_clock: trio.testing.MockClock) -> None:
    """An error of one connection, or a lack of resources, does not end the accepting of others."""
    assert await accept(Listener(iter([code, Stream(), code, code, Stream()]))) == 2


async def test_many_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """Connections that wait together are accepted together, in lots that leave other tasks their turn; also with little room."""
    for limit in (1000, 3):
        listener = Listener(iter([Stream()] * 500))
        assert await accept(listener, limit) == 500
        assert max(listener.turns) <= MAX_ACCEPTED_AT_ONCE
        if limit == 1000:
            assert len(listener.turns) <= 500 / MAX_ACCEPTED_AT_ONCE + 2


@pytest.mark.parametrize(("limit", "is_sole_acceptor", "served"), [(1000, True, 100), (40, True, 40), (1000, False, 0)])
async def test_who_waits_when_the_server_stops(limit: int, is_sole_acceptor: bool, served: int) -> None:
    """They are accepted before the listener closes, as far as there is room; unless others may accept them there."""
    listener = Listener(iter([Stream()] * 100))
    listener.is_sole_acceptor = is_sole_acceptor
    peers: list[Peer] = []

    def connect(_: object) -> Peer:
        peers.append(Peer([]))
        return peers[-1]

    stop = trio.Event()
    stop.set()
    server = Server(connect, HttpSettings(max_connections=limit))  # type: ignore[arg-type] # a double
    await server.run([listener], stop, stop, lambda: None)  # type: ignore[list-item]
    # The first ones may have gone already, and made room.
    assert len(peers) in range(served, min(served + MAX_ACCEPTED_AT_ONCE, 100) + 1)


async def test_a_listener_that_is_broken(autojump_clock: trio.testing.MockClock) -> None:
    """An error of the listener itself is no reason to spin."""
    with pytest.RaisesGroup(pytest.RaisesGroup(pytest.RaisesGroup(OSError))):
        await accept(Listener(iter([errno.EBADF])))


async def test_a_lack_of_descriptors_is_logged_a_few_times(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Accepting is tried ten times a second without descriptors; the log gets a few lines a minute of it."""
    assert await accept(Listener(iter([errno.EMFILE] * 80))) == 0
    assert 1 <= sum("cannot accept" in message for message in caplog.messages) <= BURST_LINES


async def test_out_of_descriptors() -> None:
    """A process without descriptors keeps its connections, accepts none, and goes on when it has some again."""
    async with loaded(1, descriptors=64) as server:
        async with server.client() as first:
            assert (await first.request("GET", "/health")).status == 200
            streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(100)]
            await server.says(b"cannot accept")
            assert (await first.request("GET", "/health")).status == 200
            for stream in streams:
                await stream.aclose()
            with trio.fail_after(RECOVERY_SECONDS):
                async with server.client() as client:
                    await client.send(LAST)
                    assert (await client.answer()).status == 200
        server.process.send_signal(signal.SIGTERM)
        assert await server.ends() == 0
