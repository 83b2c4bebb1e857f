"""Requests over httpx2: to a server, or to an application in process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import httpx2
import trio

from carmy_engine import AgentError

from ._request import WrittenRequest

CONNECT_SECONDS = 10.0
"""For a connection. The deadline of the call ends everything after that."""

ASGI_URL = "http://app.internal"
"""The address of an application in process; no name of a server."""

_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.LocalProtocolError,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


class NotSent(Exception):  # noqa: N818 - a signal, like trio.WouldBlock
    """No byte of the request was sent."""


class Unanswered(Exception):  # noqa: N818 - the same
    """The connection was lost after the request may have been sent."""


@asynccontextmanager
async def open_client(asgi: Any = None) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that follows no redirects, so that credentials stay with the server they are for.

    Args:
        asgi: An application in process, in place of a server.
    """
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    transport = None if asgi is None else httpx2.ASGITransport(asgi, raise_app_exceptions=False)
    client = httpx2.AsyncClient(timeout=timeout, transport=transport, follow_redirects=False, trust_env=False)
    async with client:
        yield client


async def send(client: Any, request: WrittenRequest, max_bytes: int) -> tuple[int, httpx2.Headers, bytes]:
    """Send a request and read the answer.

    Raises:
        NotSent: The server cannot be reached.
        Unanswered: The connection was lost.
        AgentError: ``OUTPUT_TOO_LARGE``: the answer is larger than `max_bytes`, or compressed.
    """
    headers = [("accept", "application/json, */*;q=0.5"), ("accept-encoding", "identity"), *request.headers]
    try:
        async with client.stream(
            request.method, request.url, headers=headers, content=request.body, follow_redirects=False
        ) as response:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                # A few bytes of it can stand for gigabytes.
                raise AgentError.standard("OUTPUT_TOO_LARGE", "the answer is compressed, although it must not be")
            body = bytearray()
            # A transport in memory may have the whole answer already.
            found = response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw()
            chunks = cast("AsyncGenerator[bytes, None]", found)
            async with aclosing(chunks):
                async for chunk in chunks:
                    body += chunk
                    if len(body) > max_bytes:
                        message = f"the answer of the API is larger than {max_bytes} bytes"
                        raise AgentError.standard("OUTPUT_TOO_LARGE", message, details={"limit_bytes": max_bytes})
            return response.status_code, response.headers, bytes(body)
    except _NOT_SENT as error:
        raise NotSent(type(error).__name__) from error
    except httpx2.InvalidURL as error:
        raise NotSent("the address is not valid") from error
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        raise Unanswered(type(error).__name__) from error


async def fetch(client: Any, url: str, max_bytes: int, seconds: float) -> bytes:
    """A document at an address.

    Raises:
        NotSent: It cannot be fetched; the text is the reason.
    """
    request = WrittenRequest(method="GET", url=url, headers=(), body=None)
    try:
        with trio.fail_after(seconds):
            status, _, body = await send(client, request, max_bytes)
    except trio.TooSlowError:
        raise NotSent(f"no answer within {seconds:g} s") from None
    except Unanswered as error:
        raise NotSent(str(error)) from None
    except AgentError as error:
        raise NotSent(error.message) from None
    if status != 200:
        raise NotSent(f"the answer has the status {status}")
    return body
