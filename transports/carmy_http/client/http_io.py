"""One request and its answer over httpx2, whose exceptions become `Lost`."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import trio

from carmy_engine import ConfigurationError, grace
from carmy_engine.transport import check_token, reason_of

from .limits import DEFAULT_LIMITS, HttpClientLimits
from .retries import Failure, Lost

NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.LocalProtocolError,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Exceptions that are raised before any byte of a request was sent."""


def connections(
    base: str,
    token: str | None,
    file: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    limits: HttpClientLimits = DEFAULT_LIMITS,
) -> httpx2.AsyncClient:
    """The connections to a server; none is opened yet. The caller closes them.

    Raises:
        ConfigurationError: The token is malformed, or the file of authorities holds no certificates.
    """
    transport = transport_to(base, file, ca_file, limits)
    return httpx2.AsyncClient(transport=transport, headers=headers_with(token), trust_env=False)


def headers_with(token: str | None) -> dict[str, str]:
    """The headers of every request.

    Raises:
        ConfigurationError: The token is malformed.
    """
    headers = {"accept-encoding": "identity", "user-agent": "carmy-engine"}
    if token is not None:
        check_token(token)
        headers["authorization"] = f"Bearer {token}"
    return headers


def _authorities(base: str, ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext | bool:
    """What httpx2 verifies a server's certificate by. Without TLS, loading certificates would take longer than many calls."""
    if ca_file is None or not base.startswith("https"):
        return base.startswith("https")
    try:
        return ssl.create_default_context(cafile=os.fspath(ca_file))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(
            f"ca_file = {os.fspath(ca_file)!r} holds no certificates: {reason_of(error)}"
        ) from None


def transport_to(
    base: str,
    file: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    limits: HttpClientLimits = DEFAULT_LIMITS,
) -> httpx2.AsyncHTTPTransport:
    """The connections to a server, or to the file of its socket, below the client that uses them.

    Raises:
        ConfigurationError: The file of authorities holds no certificates.
    """
    return httpx2.AsyncHTTPTransport(
        verify=_authorities(base, ca_file),
        limits=httpx2.Limits(
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_idle_connections,
            keepalive_expiry=limits.idle_secs,
        ),
        uds=file,
        socket_options=_keep_alive() if file is None else None,
    )


def _keep_alive() -> list[tuple[int, int, int]]:
    """Socket options that find a dead link within about a minute, however long a call is silent."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # not everywhere
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


async def send(
    http: httpx2.AsyncClient,
    method: str,
    url: str,
    headers: dict[str, str],
    seconds: float,
    content: bytes | None = None,
    *,
    limits: HttpClientLimits = DEFAULT_LIMITS,
) -> httpx2.Response:
    """Send a request, and return the answer before its body.

    Args:
        http: See `connections`.
        method: The method.
        url: The whole address.
        headers: Beside those of every request.
        seconds: Until the head of the answer has come, and of silence after it; may be infinite.
        content: The body.
        limits: For connecting and for sending.

    Raises:
        Lost: There was no answer.
    """
    timeout = httpx2.Timeout(
        connect=limits.connect_secs,
        read=None if math.isinf(seconds) else seconds,
        write=limits.write_secs,
        pool=limits.connect_secs,
    )
    request = http.build_request(method, url, headers=headers, content=content, timeout=timeout)
    try:
        with trio.move_on_after(seconds):  # interim answers do not extend the time
            return await http.send(request, stream=True)
        raise Lost(Failure.LOST, f"there was no answer within {seconds:g} seconds")
    except NOT_SENT as error:
        raise Lost(Failure.NOT_SENT, f"cannot connect ({reason_of(error)})") from error
    except UnicodeError as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        # A host with a label that is empty or too long.
        raise Lost(Failure.NOT_SENT, f"cannot connect ({reason_of(error)})") from error
    except httpx2.TransportError as error:
        raise _broken(error) from error


async def read(response: httpx2.Response, max_bytes: int) -> bytes:
    """The whole body, of at most `max_bytes`. The answer is closed afterwards.

    Raises:
        Lost: The connection broke, or the body is over the limit.
    """
    body = bytearray()
    async with chunks_of(response) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > max_bytes:
                raise Lost(Failure.LOST, f"the answer has more than {max_bytes} bytes", math.inf)
    return bytes(body)


@asynccontextmanager
async def chunks_of(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """The body of an answer, piece by piece, for the length of a block. Then the answer is closed.

    Raises:
        Lost: The connection broke.
    """
    chunks = response.aiter_raw()
    try:
        yield chunks
    except httpx2.TransportError as error:
        raise _broken(error) from error
    finally:
        with grace(), contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
            await response.aclose()
            # The library nests generators. Closing the outermost one leaves the others to the garbage collector, so all of
            # them are run to their end, which the closed connection gives them.
            async for _ in chunks:
                pass


def _broken(error: httpx2.TransportError) -> Lost:
    return Lost(Failure.LOST, f"the connection was lost ({reason_of(error)})")
