"""Listening: the address of the settings, bound, and links that the kernel watches."""

from __future__ import annotations

import errno
import ipaddress
import socket

import trio

from carmy_engine import ConfigurationError, Settings
from carmy_engine._settings import split_address

DEAD_LINK_SECONDS = 20
"""Without a sign of life from the client's machine. Where a link fails without a word (a sleeping laptop, a lost mapping in
a router), the kernel would go on buffering heartbeats for a quarter of an hour, and a silent call would wait for ever."""

PROBE_SECONDS = 15
"""Silence after which the client's machine is asked for a sign of life."""


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
