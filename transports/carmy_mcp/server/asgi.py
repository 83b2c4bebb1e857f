"""Pieces of ASGI: what goes between a request and the SDK, and answers that are made without it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TypeAlias

import mcp_types as types
import trio
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.inbound import decode_header_value
from mcp_types.jsonrpc import JSONRPCRequest
from starlette.requests import Request

from carmy_engine import AgentError
from carmy_engine.codec import escape_line_ends, invalid_request
from carmy_http.api.content_negotiation import MAX_CACHED_HEADERS
from carmy_http.api.mounts import Message, Receive, Send

from ..protocol.messages import error_reply

Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")


class Paced:
    """Sends what the SDK writes on one stream, and lets one report after the other onto it.

    The SDK hands on the messages of a session one after the other, each stream with a few in its queue: more reports than a
    slow reader takes would hold up all other streams. And its comments in silent streams do not wait for an event that
    is on its way.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = trio.Lock()
        self._out = trio.Event()
        self._out.set()
        self._closed = False

    async def send(self, message: Message) -> None:
        """Send a message, whole."""
        async with self._lock:
            await self._send(message)
        if not message.get("body", b":").startswith(b":"):
            self._out.set()

    async def wait_report(self) -> None:
        """See `Exchange.wait_report`."""
        await self._out.wait()
        if not self._closed:
            self._out = trio.Event()

    def close(self) -> None:
        """End the stream, and wake the reports that wait for it."""
        self._closed = True
        self._out.set()


def first(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of a header, None when it is absent."""
    return next((value for key, value in headers if key == name), None)


def names_task(message: JSONRPCRequest, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether ``Mcp-Name`` names the task of a request about one, or is absent: the SDK's clients do not send it there."""
    if not message.method.startswith("tasks/"):
        return True
    name = first(headers, b"mcp-name")
    return name is None or decode_header_value(name.decode("latin-1")) == (message.params or {}).get("taskId")


def without(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> Headers:
    """All other headers."""
    return [(key, value) for key, value in headers if key != name]


@functools.lru_cache(MAX_CACHED_HEADERS)
def accepts_both(accept: bytes | None) -> bool:
    """Whether an ``Accept`` allows what the SDK may answer with."""
    headers = [] if accept is None else [(b"accept", accept)]
    return all(check_accept_headers(Request({"type": "http", "headers": headers})))


def again(message: Message, receive: Receive) -> Receive:
    """Gives a message that has been taken, and then what follows."""
    left = [message]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again


def until(end: trio.Event) -> Receive:
    """Gives no message until the end, and then that of a client that has gone."""

    async def receive() -> Message:
        await end.wait()
        return {"type": "http.disconnect"}

    return receive


def unless(is_silent: Callable[[], bool], send: Send) -> Send:
    """Sends a stream without the events that come while it is silent."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body" and is_silent():
            message = {**message, "body": b""}
        await send(message)

    return sending


def escaping(send: Send) -> Send:
    """Widely used readers of events split lines where Unicode, but not the standard of events, has their ends."""

    async def escaping(message: Message) -> None:
        body = message.get("body", b"")
        if not body.isascii():
            message = {**message, "body": escape_line_ends(body)}
        await send(message)

    return escaping


async def refuse(send: Send, status: int, error: AgentError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with one error, to no request in particular."""
    await send_document(send, status, error_reply(None, types.INVALID_REQUEST, error), headers)


async def send_document(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with one JSON document."""
    await send({"type": "http.response.start", "status": status, "headers": [JSON, *headers]})
    await send({"type": "http.response.body", "body": body})


def no_session() -> AgentError:
    """The answer to a request in a session that has ended."""
    return invalid_request("there is no such session any more; begin with 'initialize'")


def no_sessions() -> AgentError:
    """The answer to what only a session would have."""
    return AgentError.standard("METHOD_NOT_ALLOWED", "there are no sessions here; this address answers to POST only")
