"""The link over Streamable HTTP: the SDK's transport over connections that never fail.

A failed connection would end the SDK's transport, and with it every other call. Each request therefore gets a response: if the
server sent none, one that carries the failure, under a random mark that no server can forge.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import mcp_types as types
import msgspec
import trio
from mcp.client._transport import ReadStream, WriteStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from carmy_engine import ErrorInfo, grace
from carmy_engine.transport import parse_server_url, reason_of
from carmy_http.client.http_io import NOT_SENT, headers_with, transport_to
from carmy_net import EventReader

from .limits import McpClientLimits
from .link import Call, Failure, Hear, Incoming, Sent

_EVENTS = "text/event-stream"
_SESSION = "mcp-session-id"


@asynccontextmanager
async def open_url(url: str, token: str | None, limits: McpClientLimits) -> AsyncIterator[HttpLink]:
    """Speak to a server for the length of a block. Nothing is sent yet.

    Raises:
        ConfigurationError: The URL or the token is malformed.
    """
    connections = Connections(transport_to(url), name_of(url), limits)
    # A call may be silent for as long as its caller waits.
    timeout = httpx2.Timeout(connect=limits.connect_secs, read=None, write=limits.write_secs, pool=limits.connect_secs)
    async with httpx2.AsyncClient(
        transport=connections, headers=headers_with(token), timeout=timeout, trust_env=False
    ) as http:
        try:
            async with streamable_http_client(url, http_client=http) as streams, trio.open_nursery() as nursery:
                nursery.start_soon(connections.pass_on, streams[0])
                yield HttpLink(streams[1], connections)
                nursery.cancel_scope.cancel()
        finally:
            with grace():
                await connections.aclose()


def name_of(url: str) -> str:
    """The URL of a server as messages may have it: its query may be a secret.

    Raises:
        ConfigurationError: It is not one.
    """
    parts = parse_server_url(url, schemes=("http", "https"), example="http://127.0.0.1:3000/mcp")
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


class HttpLink:
    """See `carmy_mcp.client.link.Link`."""

    def __init__(self, send: WriteStream[SessionMessage], connections: Connections) -> None:
        self.listeners: dict[str | int, Hear] = {}
        self.streams = Incoming(connections.receive, self.listeners), Sent(send.send)
        self._connections = connections

    def failure(self, error: MCPError, call: Call) -> tuple[Failure, str] | None:
        """See `carmy_mcp.client.link.Link.failure`."""
        told = self._connections.failure(error.error.data)
        if told is None and error.code == types.CONNECTION_CLOSED:
            return "lost", f"{self._connections.what}: {error.message}"  # the SDK's own: a stream has ended
        return told


class Connections(httpx2.AsyncBaseTransport):
    """Connections on which every request is answered, and every call by a single message.

    What comes before the answer in a stream goes past the SDK's transport, which leaves such a stream to the garbage
    collector half-read.

    Args:
        inner: They.
        what: The server, for messages.
        limits: In time and bytes.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, what: str, limits: McpClientLimits) -> None:
        self.what = what
        self._limits = limits
        self._inner = inner
        self._mark = secrets.token_hex(16)
        self._put, self._get = trio.open_memory_channel[SessionMessage | Exception](0)

    async def aclose(self) -> None:
        """Close them all."""
        await self._inner.aclose()

    async def pass_on(self, stream: ReadStream[SessionMessage | Exception]) -> None:
        """Take what the SDK's transport has received."""
        async for item in stream:
            await self._put.send(item)

    async def receive(self) -> SessionMessage | Exception:
        """The next message of the server."""
        return await self._get.receive()

    def failure(self, data: object) -> tuple[Failure, str] | None:
        """The failure in the data of an error that was made here; None for a server's error."""
        if not isinstance(data, dict) or cast("dict[str, Any]", data).get("mark") != self._mark:
            return None
        told = cast("dict[str, Any]", data)
        return told["failure"], f"{self.what}: {told['why']}"

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return its response, or one that carries the failure."""
        try:
            if request.method != "DELETE" and (request.method != "POST" or _is_call(request.content)):
                return await self._answer(request)
            with trio.move_on_after(self._limits.notice_secs):
                return await self._answer(request)
            return self._without("lost", f"there was no answer within {self._limits.notice_secs:g} s")
        except NOT_SENT as error:
            return self._without("not_sent", f"cannot connect ({reason_of(error)})")
        except UnicodeError as error:
            if isinstance(error, UnicodeDecodeError):
                raise
            # A host with a label that is empty or too long.
            return self._without("not_sent", f"cannot connect ({reason_of(error)})")
        except httpx2.TransportError as error:
            return self._without("lost", f"the connection was lost ({reason_of(error)})")

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        status = response.status_code
        kind = response.headers.get("content-type", "").lower()
        if status < 300 and kind.startswith("text/event-stream"):
            return response if request.method == "GET" else await self._answer_in(request, response)
        body = await _read(response, self._limits.max_answer_bytes)
        if body is None or response.headers.get("content-encoding", "identity") != "identity":
            return self._without(
                "lost", f"the answer is encoded, or has more than {self._limits.max_answer_bytes} bytes"
            )
        if status < 400 or _is_error(body):
            return httpx2.Response(status, headers=response.headers, content=body)
        refusal = _refusal(body)
        if refusal is not None:
            return _error(types.INVALID_REQUEST, refusal.message, {"error": msgspec.to_builtins(refusal)}, status)
        return self._without("lost" if status >= 500 else "not_sent", f"it answered {status}", status)

    async def _answer_in(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The answer in a stream, or in those that continue it."""
        headers = {"content-type": "application/json"}
        if (session := response.headers.get(_SESSION)) is not None:
            headers[_SESSION] = session
        position = ""
        for _ in range(self._limits.max_resumed + 1):
            reader = EventReader(self._limits.max_answer_bytes)
            try:
                async with _chunks(response) as chunks:
                    async for chunk in chunks:
                        for event in reader.feed(chunk):
                            if await self._is_answer(event.data):
                                return httpx2.Response(200, headers=headers, content=event.data)
            except httpx2.TransportError:
                pass  # as if it had ended: it may be continued
            except ValueError as problem:
                return self._without("lost", str(problem))
            position = reader.last_id or position
            if not position:
                break
            await trio.sleep(self._limits.resume_secs)
            again = httpx2.Request("GET", request.url, headers=_resuming(request.headers, position))
            again.extensions = request.extensions
            response = await self._inner.handle_async_request(again)
            if response.status_code != 200 or not response.headers.get("content-type", "").startswith(_EVENTS):
                await cast("httpx2.AsyncByteStream", response.stream).aclose()
                break
        return self._without("lost", "the stream ended without an answer")

    async def _is_answer(self, data: bytes) -> bool:
        """Whether an event has the answer. Anything else is passed on."""
        try:
            message = jsonrpc_message_adapter.validate_json(data, by_name=False)
        except ValidationError:
            return False
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            return True
        await self._put.send(SessionMessage(message))
        return False

    def _without(self, failure: Failure, why: str, status: int = 503) -> httpx2.Response:
        return _error(types.CONNECTION_CLOSED, why, {"mark": self._mark, "failure": failure, "why": why}, status)


async def _read(response: httpx2.Response, max_bytes: int) -> bytes | None:
    """The whole body; None when it is over the limit."""
    body = bytearray()
    async with _chunks(response) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > max_bytes:
                return None
    return bytes(body)


@asynccontextmanager
async def _chunks(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """The body of an answer, piece by piece; see `carmy_http.client.http_io.chunks_of`."""
    stream = cast("httpx2.AsyncByteStream", response.stream)
    chunks = stream.__aiter__()
    try:
        yield chunks
    finally:
        with grace(), contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
            await stream.aclose()
            async for _ in chunks:
                pass


def _resuming(headers: httpx2.Headers, position: str) -> dict[str, str]:
    kept = {name: value for name, value in headers.items() if name not in ("content-length", "content-type", "accept")}
    return kept | {"accept": _EVENTS, "last-event-id": position}


def _error(code: int, message: str, data: dict[str, Any], status: int) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": data}}
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=msgspec.json.encode(body))


class _Call(msgspec.Struct):
    id: str | int
    method: str


class _JsonRpcError(msgspec.Struct):
    code: int
    message: str


class _Failed(msgspec.Struct):
    error: _JsonRpcError


class _Refused(msgspec.Struct):
    error: ErrorInfo


def _is_call(body: bytes) -> bool:
    """Whether a message has an answer to wait for."""
    return _convert(body, _Call) is not None


def _is_error(body: bytes) -> bool:
    return _convert(body, _Failed) is not None


def _refusal(body: bytes) -> ErrorInfo | None:
    """The error with which a server of this package refuses what is no call yet, such as one without credentials."""
    refused = _convert(body, _Refused)
    return None if refused is None else refused.error


def _convert(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
