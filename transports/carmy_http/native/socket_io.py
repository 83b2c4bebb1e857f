"""Reading from and writing to a client's socket, within limits of time and bytes."""

from __future__ import annotations

import socket

import trio

from carmy_engine import HttpSettings
from carmy_engine.transport import RateLimitedLogger

from ..limits import READ_BYTES


def send_now(sock: socket.socket, data: bytes) -> int:
    """Send without waiting, in most cases all of `data`. Returns the number of bytes, -1 when the client has gone."""
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0
    except OSError:
        return -1


def has_data(sock: socket.socket) -> bool:
    """True if there are bytes to read."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


async def send_all(sock: socket.socket, data: bytes, seconds: float, log: RateLimitedLogger) -> bool:
    """Send everything. False when the client has gone, or took nothing for `seconds`.

    A checkpoint only if it has to wait. When cancelled, a part may have been sent.
    """
    sent = send_now(sock, data)
    return sent == len(data) or await send_rest(sock, data, sent, seconds, log)


async def send_rest(sock: socket.socket, data: bytes, sent: int, seconds: float, log: RateLimitedLogger) -> bool:
    """`send_all`, after `send_now` has returned `sent`."""
    if sent < 0:
        return False
    view = memoryview(data)[sent:]
    while view:
        with trio.move_on_after(seconds) as limit:
            await trio.lowlevel.wait_writable(sock)
        if limit.cancelled_caught:
            log.info("closing a connection: the client took nothing for %g seconds", seconds)
            return False
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            continue
        except OSError:
            return False
    return True


async def linger(sock: socket.socket, limits: HttpSettings) -> None:
    """Shut down sending, and read until the client closes its side, within limits. Closing with unread bytes would reset.

    Raises:
        OSError: The client has reset the connection.
    """
    with trio.move_on_after(limits.linger_timeout_secs):
        sock.shutdown(socket.SHUT_WR)
        discarded = 0
        while discarded < limits.max_linger_bytes:
            await trio.lowlevel.wait_readable(sock)
            try:
                data = sock.recv(READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                return
            discarded += len(data)
