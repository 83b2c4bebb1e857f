"""The accept loop: accepts connections of any protocol, limits their number and drains them."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import trio

from carmy_engine import HttpSettings
from carmy_engine.transport import RateLimitedLogger, contain

from ._listening import Listener, enable_keepalive
from ._send_queue import DEFAULT_LOGGER

FLUSH_SECONDS = 2.0
"""Limit for writing the last answers at shutdown. A client that does not read cannot hold the process."""

ACCEPT_PAUSE_SECONDS = 0.1
"""Pause after running out of descriptors or memory, so that the loop does not spin until a connection ends."""

MAX_ACCEPTED_AT_ONCE = 16
"""Connections that are accepted before other tasks run. At one per round, the last of a hundred new connections would wait for a
hundred rounds of a busy server."""

RESERVED_CONNECTIONS = 8
"""Connections beyond the limit, for front ends that serve health checks on them. Each of these ends at once."""

_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}

_FAULTS = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.EFAULT}
"""Errors of the listening socket itself. All others concern one connection that died in the queue (accept(2))."""


class ServedConnection(Protocol):
    """One accepted connection."""

    async def run(self) -> None:
        """Serve the connection to its end, and close its stream. An exception is logged and ends this connection only."""
        ...

    def drain(self) -> None:
        """Shutdown has begun: end soon, but answer the calls that run."""
        ...


class Server:
    """Accepts connections up to a limit, serves each in a task, and drains them at shutdown.

    Args:
        connect: Makes a connection from an accepted stream.
        limits: The number of connections, of all clients and of one, and the time for the last answers to leave. Connections
            beyond the first number wait in the kernel's backlog.
        reserve: Makes the `RESERVED_CONNECTIONS` beyond the limit; None for none.
        log: The transport's logger.
    """

    def __init__(
        self,
        connect: Callable[[trio.SocketStream], ServedConnection],
        limits: HttpSettings,
        reserve: Callable[[trio.SocketStream], ServedConnection] | None = None,
        *,
        log: logging.Logger = DEFAULT_LOGGER,
    ) -> None:
        self._connect = connect
        self._reserve = reserve
        self._limits = limits
        self._max = limits.max_connections
        self._per_address: Counter[str] = Counter()
        self._slots = trio.Semaphore(self._max + (0 if reserve is None else RESERVED_CONNECTIONS))
        self._connections: set[ServedConnection] = set()
        self._draining = False
        self._log = RateLimitedLogger(log)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def run(
        self,
        listeners: list[Listener],
        stopping: trio.Event,
        stopped: trio.Event,
        ready: Callable[[], None],
    ) -> None:
        """Serve until `stopped`, and close the listeners."""
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
                connections.cancel_scope.deadline = trio.current_time() + self._limits.flush_timeout_secs
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
                # Processes that share the socket get a turn; otherwise the first one awake would take every connection.
                os.sched_yield()

    def _accept_waiting(self, listener: Listener, nursery: trio.Nursery) -> None:
        """Accept the queued connections while there is room: closing the listener would reset them."""
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
        address: str | None = None
        try:
            if self._limits.max_connections_per_address is not None:
                address = self._count_address(stream)
                if address == "":
                    return
            with contextlib.suppress(OSError):  # a reset connection, or no TCP
                enable_keepalive(stream.socket)
            is_full = len(self._connections) >= self._max
            connection = self._reserve(stream) if is_full and self._reserve is not None else self._connect(stream)
            del stream  # a connection may keep a smaller object
            self._connections.add(connection)
            if self._draining:
                connection.drain()  # accepted at the last moment
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection: all others have the same nursery
            contain(error, self._log, "a connection failed")
        finally:
            if address:
                self._per_address[address] -= 1
                if not self._per_address[address]:
                    del self._per_address[address]
            self._slots.release()

    def _count_address(self, stream: trio.SocketStream) -> str | None:
        """Count a connection for its client's address, and return the address; None for a unix socket.

        An address that has as many as it may gets an empty one: the connection is closed and not counted.
        """
        address = _address_of(stream)
        most = self._limits.max_connections_per_address
        if address is None or most is None:
            return None
        if self._per_address[address] >= most:
            self._log.warning(
                "closing a connection: its address has %d already (http.max_connections_per_address); the last is of %s",
                most,
                address,
            )
            stream.socket.close()
            return ""
        self._per_address[address] += 1
        return address


def _address_of(stream: trio.SocketStream) -> str | None:
    """The client's address; None for a unix socket, and once the client has gone."""
    try:
        name: tuple[object, ...] | str = stream.socket.getpeername()
    except OSError:
        return None
    return None if isinstance(name, str) else str(name[0])
