"""Listening sockets: bind the address of the settings, and enable TCP keep-alive."""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import trio

from carmy_engine import ConfigurationError, Settings
from carmy_engine.abc import PeerProcess
from carmy_engine.transport import InheritedAddress, TcpAddress, UnixAddress, parse_address

from ._access import access_problems
from ._unix import SocketFile, bind_unix, check_directory

DEAD_LINK_SECONDS = 20
"""Limit without an acknowledgement from the client's machine. Without it, a link that fails silently (a sleeping laptop, a lost
mapping in a router) would buffer heartbeats for a quarter of an hour, and a silent call would wait for ever."""

PROBE_SECONDS = 15
"""Silence before the first keep-alive probe."""

BACKLOG = 1024
"""Connections that the kernel queues until they are accepted."""

_PEER = struct.Struct("3i")
"""``struct ucred``: process, user, group."""


class Listener:
    """A listening socket.

    Args:
        sock: The socket; `close` closes it.
        file: The file of a unix socket that this process created.
        is_inherited: See below.
        until: See `InheritedAddress`.

    Attributes:
        socket: The socket as trio wraps it.
        is_inherited: True if the parent process created the socket.
    """

    def __init__(
        self,
        sock: socket.socket,
        file: SocketFile | None = None,
        *,
        is_inherited: bool = False,
        until: int | None = None,
    ) -> None:
        self.is_inherited = is_inherited
        self._until = until
        self._plain = sock
        self.socket = trio.socket.from_stdlib_socket(sock)
        self._listener = trio.SocketListener(self.socket)
        self._file = file

    async def accept(self) -> trio.SocketStream:
        """Wait for the next connection.

        Raises:
            OSError: The connection failed, or accepting did.
        """
        return await self._listener.accept()

    def accept_now(self) -> trio.SocketStream | None:
        """Return the next connection; None if none is queued.

        Raises:
            OSError: See `accept`.
        """
        try:
            connection, _ = self._plain.accept()
        except BlockingIOError:
            return None
        return trio.SocketStream(trio.socket.from_stdlib_socket(connection))

    @property
    def is_sole_acceptor(self) -> bool:
        """True if no other process accepts connections queued on this socket."""
        if self._until is None:
            return not self.is_inherited
        poll = select.poll()
        poll.register(self._until, select.POLLIN)
        return bool(poll.poll(0))

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.socket.fileno()

    def close(self) -> None:
        """Stop listening. The file of a unix socket is removed first, so that no client finds one without a server."""
        if self._file is not None:
            self._file.remove()
        self.socket.close()


async def open_listeners(settings: Settings, *, authenticated: bool) -> list[Listener]:
    """Listen at the address of the settings.

    Args:
        settings: Their ``address``, ``reuse_port`` and ``allow_anonymous``.
        authenticated: An authenticator is set.

    Raises:
        ConfigurationError: The address is malformed, cannot be bound, or is open to other machines without authentication.
    """
    is_protected = authenticated or settings.allow_anonymous
    match parse_address(settings.address):
        case TcpAddress(host, port):
            return await _bind(settings, host, port, is_protected=is_protected)
        case UnixAddress(path):
            try:
                sock, file = bind_unix(path, BACKLOG)
            except OSError as error:
                raise _unusable(settings, error, "another path") from error
            return [Listener(sock, file)]
        case InheritedAddress(descriptors, until):
            return [_inherit(settings, number, until, is_protected=is_protected) for number in descriptors]


async def network_problems(settings: Settings, *, authenticated: bool) -> list[ConfigurationError]:
    """Errors that `Access` and `open_listeners` would raise for the settings, found without listening.

    Ports in use and unusable inherited descriptors show only in `open_listeners`.

    Args:
        settings: Their hosts, origins, ``address`` and ``allow_anonymous``.
        authenticated: An authenticator is set.
    """
    problems = [*access_problems(settings.http)]
    try:
        match parse_address(settings.address):
            case TcpAddress(host, port):
                await _resolve(settings, host, port, is_protected=authenticated or settings.allow_anonymous)
            case UnixAddress(path):
                check_directory(path)
            case InheritedAddress():
                pass
    except ConfigurationError as problem:
        problems.append(problem)
    except OSError as error:
        problems.append(_unusable(settings, error, "another path"))
    return problems


async def _resolve(
    settings: Settings, host: str, port: int, *, is_protected: bool
) -> Sequence[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """Resolve a host to address families and socket addresses."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"address = {settings.address!r}: the host is not known ({error.strerror})") from error
    except UnicodeError as error:  # of a label that is empty or too long
        raise ConfigurationError(f"address = {settings.address!r}: the host is not known (not a host name)") from error
    addresses = list(dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in found))
    if port == 0:
        del addresses[1:]  # each address would get a different port
    if not is_protected:
        _check_local(settings, addresses)
    return addresses


async def _bind(settings: Settings, host: str, port: int, *, is_protected: bool) -> list[Listener]:
    addresses = await _resolve(settings, host, port, is_protected=is_protected)
    listeners: list[Listener] = []
    problem: OSError | None = None
    for family, sockaddr in addresses:
        try:
            listeners.append(_listen(family, sockaddr, reuse_port=settings.reuse_port))
        except OSError as error:
            problem = error
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                break
    else:
        if listeners:
            return listeners  # a machine without IPv6 is no reason to refuse
    for listener in listeners:
        listener.close()
    raise _unusable(settings, problem, "another host or port") from problem


def _listen(family: int, sockaddr: tuple[Any, ...], *, reuse_port: bool) -> Listener:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(sockaddr)
        sock.listen(BACKLOG)
        return Listener(sock)
    except BaseException:
        sock.close()
        raise


def _inherit(settings: Settings, number: int, until: int | None, *, is_protected: bool) -> Listener:
    """Take ownership of the socket with this descriptor."""
    try:
        sock = socket.socket(fileno=number)
    except OSError as error:
        raise ConfigurationError(
            f"address = {settings.address!r}: descriptor {number} is no socket that was passed on to this process"
            f" ({error.strerror})"
        ) from error
    try:
        listens = sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if not listens or sock.family not in {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}:
            raise ConfigurationError(
                f"address = {settings.address!r}: descriptor {number} is a socket, but none that listens for streams"
            )
        if not is_protected:
            _check_local(settings, [(sock.family, sock.getsockname())])
        os.set_inheritable(number, False)  # the child processes of tools must not share it
        return Listener(sock, is_inherited=True, until=until)
    except BaseException:
        sock.close()
        raise


def _check_local(settings: Settings, addresses: Iterable[tuple[int, Any]]) -> None:
    """Refuse addresses that other machines can reach. The mode of a unix socket's file restricts its users."""
    for family, sockaddr in addresses:
        if family == socket.AF_UNIX:
            continue
        if not ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]).is_loopback:
            raise ConfigurationError(
                f"address = {settings.address!r} can be reached from other machines, without credentials:"
                " set an authenticator, or allow_anonymous = true"
            )


def _unusable(settings: Settings, problem: OSError | None, other: str) -> ConfigurationError:
    reason = "no address" if problem is None else problem.strerror or str(problem)
    return ConfigurationError(f"address = {settings.address!r}: cannot listen there ({reason}); choose {other}")


def listener_address(listener: Listener) -> str:
    """Return ``HOST:PORT`` of a listener; ``unix:PATH`` for a unix socket."""
    name = listener.socket.getsockname()
    if listener.socket.family == socket.AF_UNIX:
        return f"unix:{os.fsdecode(name)}"
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def listener_url(listener: Listener, scheme: str, path: str = "") -> str:
    """Return the URL of a listener; for a unix socket as proxies write it, ``http://unix:FILE:PATH``."""
    behind = f":{path}" if path and listener.socket.family == socket.AF_UNIX else path
    return f"{scheme}://{listener_address(listener)}{behind}"


def process_of(sock: trio.socket.SocketType | socket.socket) -> PeerProcess | None:
    """Return the process at the other end of a unix socket, as it was when it connected. None for TCP, and where Linux is not."""
    if sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    try:
        return PeerProcess(*_PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)))
    except OSError:
        return None


def enable_keepalive(sock: trio.socket.SocketType) -> None:
    """Enable TCP keep-alive, so that the kernel detects a dead link. Options that the platform lacks are skipped."""
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
