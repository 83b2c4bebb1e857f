"""Listening, accepting and draining: what surrounds the connections, whichever front end speaks on them."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import Protocol

import trio

from carmy_engine._engine import Engine
from carmy_engine._settings import Settings, split_address
from carmy_engine.errors import ConfigurationError

from ._asgi import application
from ._guard import SECURITY_HEADERS
from ._hypercorn import connector
from ._native_connector import NativeConnector

log = logging.getLogger("carmy_http")

FLUSH_SECONDS = 2.0
"""For writing what is left once the last execution has ended. A client that does not read cannot hold the process."""

ACCEPT_PAUSE_SECONDS = 0.1
"""After running out of descriptors or memory: until some connection ends, trying again at once would only spin."""

DEAD_LINK_SECONDS = 20
"""Without a sign of life from the client's machine. Where a link fails without a word (a sleeping laptop, a lost mapping in
a router), the kernel would go on buffering heartbeats for a quarter of an hour, and a silent call would wait for ever."""

PROBE_SECONDS = 15
"""Silence after which the client's machine is asked for a sign of life."""

RESERVED_CONNECTIONS = 8
"""Beyond the limit, where the front end can tell questions about health from the rest. Each is over at once."""

_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}

_FAULTS = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.EFAULT}
"""Of accepting, that are ours. All others are those of one connection that died in the queue (accept(2))."""


class _Served(Protocol):
    """One connection, as the server sees it."""

    async def run(self) -> None: ...

    def drain(self) -> None: ...


async def serve(engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve an engine over HTTP until it has stopped, or until cancelled.

    Once ``engine.stopping`` is set, the listener closes, idle connections close, and every answer is the last of its
    connection. Once ``engine.stopped`` is set, answers get `FLUSH_SECONDS` to leave. When cancelled, nothing is left
    open and nothing is waited for.

    Args:
        engine: An open engine; its settings say where and how.
        task_status: Started with a line for people, which ends in the address, once connections are accepted.

    Raises:
        ConfigurationError: The settings do not allow it, or the address cannot be had.
    """
    settings = engine.settings
    always = SECURITY_HEADERS if settings.http.security_headers else ()
    native = NativeConnector(engine, always) if settings.http.server == "native" else None
    if native is None:
        plain = connector(application(engine), settings.http.header_timeout_secs, engine.stopping.is_set, always)
        server = Server(plain, settings.http.max_connections)
    else:
        server = Server(native.connect, settings.http.max_connections, reserve=native.connect_reserved)
    listeners = await open_listeners(settings, authenticated=engine.authenticator is not None)
    line = f"http listening on http://{address_of(listeners[0])}"
    async with contextlib.AsyncExitStack() as keeping:
        if native is not None:
            await keeping.enter_async_context(native.kept())
        await server.run(listeners, engine.stopping, engine.stopped, lambda: task_status.started(line))


async def open_listeners(settings: Settings, *, authenticated: bool) -> list[trio.SocketListener]:
    """Bind the address of the settings.

    Args:
        settings: ``address`` and ``allow_anonymous`` count.
        authenticated: Whether callers have to show credentials.

    Raises:
        ConfigurationError: The address is malformed, cannot be bound, or is open to others without authentication.
    """
    host, port = split_address(settings.address)
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"address = {settings.address!r}: the host is not known ({error.strerror})") from error
    addresses = list(dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in found))
    if port == 0:
        del addresses[1:]  # each would get a port of its own
    if not authenticated and not settings.allow_anonymous:
        for _, sockaddr in addresses:
            if not ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]).is_loopback:
                raise ConfigurationError(
                    f"address = {settings.address!r} can be reached from other machines, and anybody could call the"
                    " tools: set an authenticator, or allow_anonymous = true if that is what you want"
                )
    listeners: list[trio.SocketListener] = []
    problem: OSError | None = None
    for family, sockaddr in addresses:
        try:
            listeners.append(await _listen(family, sockaddr))
        except OSError as error:
            problem = error
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                break
    else:
        if listeners:
            return listeners  # a family that the machine does not have is no reason to refuse
    for listener in listeners:
        listener.socket.close()
    reason = "no address" if problem is None else problem.strerror
    raise ConfigurationError(
        f"address = {settings.address!r}: cannot listen there ({reason}); choose another host or port"
    ) from problem


async def _listen(family: int, sockaddr: tuple[object, ...]) -> trio.SocketListener:
    sock = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        await sock.bind(sockaddr)
        sock.listen(1024)
        return trio.SocketListener(sock)
    except BaseException:
        sock.close()
        raise


def address_of(listener: trio.SocketListener) -> str:
    """``HOST:PORT`` of a listener."""
    name = listener.socket.getsockname()
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def watch_link(sock: trio.socket.SocketType) -> None:
    """Let the kernel notice a dead link; options that it does not have are left out."""
    options = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", PROBE_SECONDS),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_LINK_SECONDS * 1000),
    ]
    for level, name, value in options:
        if hasattr(socket, name):
            sock.setsockopt(level, getattr(socket, name), value)


class Server:
    """Accepts connections up to a limit and sees them to their end.

    Args:
        connect: Makes a connection of an accepted stream.
        max_connections: More than these wait in the kernel's backlog.
        reserve: Makes the few more connections that are accepted all the same (`RESERVED_CONNECTIONS`); None for no more.
    """

    def __init__(
        self,
        connect: Callable[[trio.SocketStream], _Served],
        max_connections: int,
        reserve: Callable[[trio.SocketStream], _Served] | None = None,
    ) -> None:
        self._connect = connect
        self._reserve = reserve
        self._max = max_connections
        self._slots = trio.Semaphore(max_connections + (0 if reserve is None else RESERVED_CONNECTIONS))
        self._connections: set[_Served] = set()
        self._draining = False

    async def run(
        self,
        listeners: list[trio.SocketListener],
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
                for listener in listeners:
                    listener.socket.close()
                self._draining = True
                for connection in list(self._connections):
                    connection.drain()
                await stopped.wait()
                connections.cancel_scope.deadline = trio.current_time() + FLUSH_SECONDS
        finally:
            for listener in listeners:
                listener.socket.close()

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            await self._slots.acquire()
            try:
                stream = await listener.accept()
            except OSError as error:
                self._slots.release()
                if error.errno in _FAULTS:
                    raise
                if error.errno in _OUT_OF_RESOURCES:
                    log.warning("cannot accept connections for now: %s", error.strerror)
                    await trio.sleep(ACCEPT_PAUSE_SECONDS)
            else:
                nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            with contextlib.suppress(OSError):  # it has been reset already, as reading will find
                watch_link(stream.socket)
            is_full = len(self._connections) >= self._max
            connection = self._reserve(stream) if is_full and self._reserve is not None else self._connect(stream)
            self._connections.add(connection)
            if self._draining:
                connection.drain()  # it was accepted in the last moment
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)
        finally:
            self._slots.release()
