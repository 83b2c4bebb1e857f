"""Serving all idle connections in one task."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from carmy_engine.transport import RateLimitedLogger
from carmy_http.native import leader_follower
from carmy_http.native.leader_follower import MAX_AT_ONCE, Dispatcher
from tests.boundary.escapes import ESCAPES, made

LIMIT = 10.0
"""Seconds, for what takes a fraction of one."""


class Connection:
    """A connection whose client asks again and again: what it has sent is never all read."""

    def __init__(self, dispatcher: Dispatcher, answer: Callable[[Connection], Awaitable[None]]) -> None:
        self.ours, self._theirs = socket.socketpair()
        self.dispatcher = dispatcher
        self.asked = 0
        self.failures = 0
        self.scope: trio.CancelScope | None = None
        self.sent: list[bytes] = []
        self._answer = answer
        self._theirs.send(b"asks")

    def on_readable(self) -> Coroutine[Any, Any, None] | None:
        self.asked += 1
        return self._reply()

    async def _reply(self) -> None:
        await self._answer(self)

    def on_failure(self) -> None:
        self.failures += 1
        self.dispatcher.remove(self.ours.fileno())

    def on_blocked(self, scope: trio.CancelScope) -> None:
        self.scope = scope

    def send_deferred(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.dispatcher.remove(self.ours.fileno())
        self.ours.close()
        self._theirs.close()


@asynccontextmanager
async def dispatching(
    count: int,
    answer: Callable[[Connection], Awaitable[None]],
    max_round_seconds: float = leader_follower.MAX_ROUND_SECONDS,
) -> AsyncIterator[list[Connection]]:
    dispatcher = Dispatcher(RateLimitedLogger(logging.getLogger("carmy.http")), max_round_seconds)
    connections = [Connection(dispatcher, answer) for _ in range(count)]
    try:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                await nursery.start(dispatcher.run)
                for connection in connections:
                    dispatcher.add(connection.ours.fileno(), connection)
                yield connections
                nursery.cancel_scope.cancel()
    finally:
        for connection in connections:
            connection.close()


async def at_once(connection: Connection) -> None:
    assert connection.dispatcher.defer_send(connection, b"%d" % connection.asked)


async def after_a_moment(connection: Connection) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("answer", [at_once, after_a_moment])
@pytest.mark.parametrize("count", [5, MAX_AT_ONCE, 3 * MAX_AT_ONCE])
async def test_nobody_is_served_twice_before_others(
    answer: Callable[[Connection], Awaitable[None]], count: int
) -> None:
    """Clients that ask without a pause take turns, also where each call waits, and so ends a round."""
    async with dispatching(count, answer) as connections:
        while sum(connection.asked for connection in connections) < 10 * count:
            asked = [connection.asked for connection in connections]
            assert max(asked) - min(asked) <= 1
            await trio.lowlevel.checkpoint()


async def test_a_round_that_takes_long_is_over() -> None:
    """Once a round has taken its time, what is held is sent and other tasks have their turn before the next call."""

    async def answer(connection: Connection) -> None:
        assert [len(other.sent) for other in connections] == [
            other.asked - (other is connection) for other in connections
        ]
        await at_once(connection)

    async with dispatching(MAX_AT_ONCE, answer, max_round_seconds=0.0) as connections:
        before = 0
        while before < 3 * MAX_AT_ONCE:
            await trio.lowlevel.checkpoint()
            asked = sum(connection.asked for connection in connections)
            assert asked - before <= 2  # tasks take turns in any order
            before = asked
    assert all(connection.sent[:3] == [b"1", b"2", b"3"] for connection in connections)


async def test_a_connection_that_was_removed_is_not_served() -> None:
    """A connection that was found ready, and is released before its turn, is not served."""

    async def answer(connection: Connection) -> None:
        for other in connections:
            if other is not connection:
                other.dispatcher.remove(other.ours.fileno())

    async with dispatching(3, answer, max_round_seconds=0.0) as connections:
        while max(connection.asked for connection in connections) < 5:
            await trio.lowlevel.checkpoint()
    assert sorted(connection.asked for connection in connections)[:2] == [0, 0]


async def on_reading(escape: str) -> None:
    """Stands for a `IdleConnection.on_readable` that raises."""
    raise AssertionError


async def at_once_raises(escape: str) -> None:
    raise made(escape)


async def after_a_wait_raises(escape: str) -> None:
    await trio.lowlevel.checkpoint()
    raise made(escape)


@pytest.mark.parametrize("where", [on_reading, at_once_raises, after_a_wait_raises])
@pytest.mark.parametrize("escape", ESCAPES)
async def test_a_failure_ends_its_connection_only(
    where: Callable[[str], Awaitable[None]],
    escape: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any exception of `on_readable` or its call ends that connection, with one line in the log; the others are served on."""

    async def answer(connection: Connection) -> None:
        if connection is connections[0]:
            connection.dispatcher.remove(connection.ours.fileno())
            await where(escape)
        await at_once(connection)

    async with dispatching(3, answer) as connections:
        if where is on_reading:

            def on_readable() -> None:
                raise made(escape)

            monkeypatch.setattr(connections[0], "on_readable", on_readable)
        while min(connection.asked for connection in connections[1:]) < 5:
            await trio.lowlevel.checkpoint()
        assert [connection.failures for connection in connections] == [1, 0, 0]
    assert [record.getMessage() for record in caplog.records] == ["a connection failed"]


async def test_a_cancel_of_a_waiting_call_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The cancel that a connection asks for by its scope ends the call, without a line in the log or a call of `on_failure`."""

    async def answer(connection: Connection) -> None:
        if connection is connections[0] and connection.asked == 1:
            await trio.sleep_forever()
        await at_once(connection)

    async with dispatching(3, answer) as connections:
        while connections[0].scope is None:
            await trio.lowlevel.checkpoint()
        connections[0].scope.cancel()
        before = connections[0].asked
        while connections[0].asked == before:
            await trio.lowlevel.checkpoint()
        assert connections[0].failures == 0
    assert caplog.records == []


async def test_a_cancel_from_outside_ends_the_dispatcher_with_a_failure_beside_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A call that turns its cancel into a group still ends with the dispatcher; what else is in the group is logged."""

    async def answer(connection: Connection) -> None:
        connection.dispatcher.remove(connection.ours.fileno())
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            raise BaseExceptionGroup("both", [error, SystemExit(1)]) from None

    async with dispatching(1, answer) as connections:
        while connections[0].scope is None:
            await trio.lowlevel.checkpoint()
    (record,) = caplog.records
    assert record.exc_info is not None
    failures = record.exc_info[1]
    assert isinstance(failures, BaseExceptionGroup)
    assert [type(failure) for failure in failures.exceptions] == [SystemExit]
