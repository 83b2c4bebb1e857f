"""Accepting and draining: what surrounds the connections, whatever is spoken on them."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from typing import Protocol

import trio

from carmy_engine.transport import RateLimitedLogger, contain

from ._listening import Listener, enable_keepalive
from ._send_queue import DEFAULT_LOGGER

FLUSH_SECONDS = 2.0
"""For writing what is left once the last execution has ended. A client that does not read cannot hold the process."""

ACCEPT_PAUSE_SECONDS = 0.1
"""After running out of descriptors or memory: until some connection ends, trying again at once would only spin."""

MAX_ACCEPTED_AT_ONCE = 16
"""Connections that are accepted before other tasks have their turn. One at a time, a busy server would keep the last of a hundred
newcomers waiting for a hundred of its rounds."""

RESERVED_CONNECTIONS = 8
"""Beyond the limit, where the front end can tell questions about health from the rest. Each is over at once."""

_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}

_FAULTS = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.EFAULT}
"""Of accepting, that are ours. All others are those of one connection that died in the queue (accept(2))."""


class ServedConnection(Protocol):
    """One connection, as the server sees it."""

    async def run(self) -> None:
        """Serve it to its end, and close the stream. What it raises ends this connection only, and is logged."""
        ...

    def drain(self) -> None:
        """The server is going away: end soon, but answer what runs."""
        ...


class Server:
    """Accepts connections up to a limit and sees them to their end.

    Args:
        connect: Makes a connection of an accepted stream.
        max_connections: More than these wait in the kernel's backlog.
        reserve: Makes the few more connections that are accepted all the same (`RESERVED_CONNECTIONS`); None for no more.
        log: The transport's logger.
    """

    def __init__(
        self,
        connect: Callable[[trio.SocketStream], ServedConnection],
        max_connections: int,
        reserve: Callable[[trio.SocketStream], ServedConnection] | None = None,
        *,
        log: logging.Logger = DEFAULT_LOGGER,
    ) -> None:
        self._connect = connect
        self._reserve = reserve
        self._max = max_connections
        self._slots = trio.Semaphore(max_connections + (0 if reserve is None else RESERVED_CONNECTIONS))
        self._connections: set[ServedConnection] = set()
        self._draining = False
        self._log = RateLimitedLogger(log)

    async def run(
        self,
        listeners: list[Listener],
        stopping: trio.Event,
        stopped: trio.Event,
        ready: Callable[[], None],
    ) -> None:
        """Serve until `stopped`. Closes the listeners."""
        try:
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(self._accept, listener, connections)
                    ready()
                    await stopping.wait()
                    accepting.cancel_scope.cancel()
                self._draining = True
                for listener in listeners:
                    if listener.is_sole_acceptor:
                        self._accept_waiting(listener, connections)
                    listener.close()
                for connection in list(self._connections):
                    connection.drain()
                await stopped.wait()
                connections.cancel_scope.deadline = trio.current_time() + FLUSH_SECONDS
        finally:
            for listener in listeners:
                listener.close()

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        at_once = 0
        while True:
            try:
                self._slots.acquire_nowait()
            except trio.WouldBlock:
                await self._slots.acquire()
            at_once += 1
            try:
                stream = listener.accept_now() if at_once < MAX_ACCEPTED_AT_ONCE else None
                if stream is None:
                    at_once = 0
                    stream = await listener.accept()
            except OSError as error:
                self._slots.release()
                if error.errno in _FAULTS:
                    raise
                if error.errno in _OUT_OF_RESOURCES:
                    self._log.warning("cannot accept connections for now: %s", error.strerror)
                    await trio.sleep(ACCEPT_PAUSE_SECONDS)
            else:
                nursery.start_soon(self._serve, stream)
                # Where several processes take from one queue, the next one is another's; else the first awake would take all.
                os.sched_yield()

    def _accept_waiting(self, listener: Listener, nursery: trio.Nursery) -> None:
        """Accept those who have connected already, if there is room: closing would reset them, whatever they have sent."""
        with contextlib.suppress(OSError, trio.WouldBlock):
            while True:
                self._slots.acquire_nowait()
                stream = None
                try:
                    stream = listener.accept_now()
                finally:
                    if stream is None:
                        self._slots.release()
                if stream is None:
                    return
                nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            with contextlib.suppress(OSError):  # reset already, as reading will find; or no TCP
                enable_keepalive(stream.socket)
            is_full = len(self._connections) >= self._max
            connection = self._reserve(stream) if is_full and self._reserve is not None else self._connect(stream)
            del stream  # a connection may keep something smaller
            self._connections.add(connection)
            if self._draining:
                connection.drain()  # it was accepted in the last moment
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection: all others have the same nursery
            contain(error, self._log, "a connection failed")
        finally:
            self._slots.release()
