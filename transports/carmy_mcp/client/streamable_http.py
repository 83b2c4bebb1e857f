"""The link to a server over Streamable HTTP: each request has a connection to itself, and one that fails harms no other."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import msgspec
import trio

from carmy_engine import ErrorInfo, grace
from carmy_engine.transport import parse_server_url, reason_of
from carmy_http.client.http_io import NOT_SENT, headers_with, transport_to
from carmy_net import EventReader

from ..protocol.connection import key_of
from ..protocol.errors import INVALID_REQUEST
from ..protocol.headers import LAST_EVENT_ID, SESSION_ID
from ..protocol.messages import (
    ErrorObject,
    ErrorResponse,
    Notification,
    Request,
    Response,
    decode_leniently,
    id_in_unreadable,
)
from .limits import McpClientLimits
from .link import LostError, NotSentError, Outgoing, Receiver, RefusedError, SessionEndedError, UnreadableError

MIN_RESUME_SECONDS = 0.05
"""Before each continuation of a stream, also where the server asks for less: it may end every stream at once."""

_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,2000}[\x21-\x7e])?")
_EVENTS = "text/event-stream"
_SESSION = SESSION_ID.decode()
_POSITION = LAST_EVENT_ID.decode()
_POST = {"accept": f"application/json, {_EVENTS}", "content-type": "application/json"}


@asynccontextmanager
async def open_url(url: str, token: str | None, limits: McpClientLimits) -> AsyncIterator[HttpLink]:
    """Call a server for the length of a block. Nothing is sent yet.

    Raises:
        ConfigurationError: The URL or the token is malformed.
    """
    transport = transport_to(url)
    link = HttpLink(transport, url, headers_with(token), limits)
    try:
        yield link
    finally:
        link.close()
        with grace(limits.notice_secs):
            await link.end_session()
        with grace():
            await transport.aclose()


def name_of(url: str) -> str:
    """The URL of a server for messages: its query may be a secret.

    Raises:
        ConfigurationError: It is not one.
    """
    parts = parse_server_url(url, schemes=("http", "https"), example="http://127.0.0.1:3000/mcp")
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


class HttpLink:
    """See `carmy_mcp.client.link.Link`.

    Args:
        transport: The connections.
        url: The address of the server.
        headers: Of every request.
        limits: In time and bytes.
    """

    has_headers = True

    def __init__(
        self, transport: httpx2.AsyncBaseTransport, url: str, headers: Mapping[str, str], limits: McpClientLimits
    ) -> None:
        self.session = ""
        self._transport = transport
        self._url = url
        self._what = name_of(url)
        self._headers = dict(headers)
        self._limits = limits
        self._receiver: Receiver | None = None
        self._scopes: set[trio.CancelScope] = set()
        self._closed = False
        # A call may be silent for as long as its caller waits.
        timeout = httpx2.Timeout(
            connect=limits.connect_secs, read=None, write=limits.write_secs, pool=limits.connect_secs
        )
        self._extensions = {"timeout": timeout.as_dict()}

    async def run(self, receiver: Receiver) -> None:
        """See `Link.run`: each request receives its own messages."""
        self._receiver = receiver
        await trio.sleep_forever()

    def close(self) -> None:
        """See `Link.close`."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()

    async def request(self, outgoing: Outgoing) -> Response | ErrorResponse:
        """See `Link.request`."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._closed:
                scope.cancel()
            try:
                return await self._request(outgoing)
            except NOT_SENT as error:
                raise NotSentError(f"{self._what}: cannot connect ({reason_of(error)})") from error
            except UnicodeError as error:
                if isinstance(error, UnicodeDecodeError):
                    raise
                # A host with a label that is empty or too long.
                raise NotSentError(f"{self._what}: cannot connect ({reason_of(error)})") from error
            except httpx2.TransportError as error:
                raise LostError(f"{self._what}: the connection was lost ({reason_of(error)})") from error
            finally:
                self._scopes.discard(scope)
        raise LostError(f"the client of {self._what} was closed")

    async def _request(self, outgoing: Outgoing) -> Response | ErrorResponse:
        session = self.session
        response = await self._send("POST", {**_POST, **outgoing.headers}, outgoing.data)
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        if _is_stream(response) and response.status_code < 300 and is_plain:
            self._note_session(response)
            return await self._answer_in(response, outgoing)
        body = await self._read(response)
        if body is None or not is_plain:
            limit = self._limits.max_answer_bytes
            raise LostError(f"{self._what}: the answer is encoded, or has more than {limit} bytes")
        return self._answer(response, body, outgoing, session)

    def _answer(
        self, response: httpx2.Response, body: bytes, outgoing: Outgoing, session: str
    ) -> Response | ErrorResponse:
        """The answer in one document."""
        status = response.status_code
        message = decode_leniently(body)
        if status == 404 and session:
            raise SessionEndedError(f"{self._what}: it has ended the session", session)
        if _is_answer_to(message, outgoing):
            self._note_session(response)
            return cast("Response | ErrorResponse", message)
        if status < 300:
            raise UnreadableError(f"the answer of {self._what} cannot be read")
        refusal = _refusal(body)
        if refusal is not None:
            data = {"error": msgspec.to_builtins(refusal)}
            return ErrorResponse(outgoing.id, ErrorObject(INVALID_REQUEST, refusal.message, data))
        raise (LostError if status >= 500 else RefusedError)(f"{self._what}: it answered {status}")

    def _note_session(self, response: httpx2.Response) -> None:
        session = str(response.headers.get(_SESSION, ""))
        if not self.session and _VISIBLE.fullmatch(session):
            self.session = session

    async def _answer_in(self, response: httpx2.Response, outgoing: Outgoing) -> Response | ErrorResponse:
        """The answer in a stream, or in those that continue it.

        A server may end its streams at any time, and have its clients ask again (2025-11-25, "Streamable HTTP").
        """
        stream = _Stream(self._limits)
        failures = 0
        while True:
            answer = await self._receive_from(response, stream, outgoing)
            if answer is not None:
                return answer
            if not stream.position:
                raise LostError(f"{self._what}: the stream ended without an answer")
            while True:
                await trio.sleep(stream.delay)
                try:
                    response = await self._send("GET", {**_without_body(outgoing.headers), **stream.headers()})
                except httpx2.TransportError as error:
                    why = reason_of(error)
                else:
                    if response.status_code == 200 and _is_stream(response):
                        failures = 0
                        break
                    await self._read(response)
                    why = f"it answered {response.status_code}"
                    failures = self._limits.max_resumed  # the stream is no more
                failures += 1
                if failures > self._limits.max_resumed:
                    raise LostError(f"{self._what}: the stream ended, and could not be resumed ({why})")

    async def _receive_from(
        self, response: httpx2.Response, stream: _Stream, outgoing: Outgoing | None
    ) -> Response | ErrorResponse | None:
        """Receive the events of one stream. Returns the answer to a request; None if the stream ends before.

        Raises:
            LostError: An event is over the limit.
            UnreadableError: The answer cannot be read.
        """
        reader = EventReader(self._limits.max_answer_bytes)
        try:
            async with _chunks(response) as chunks:
                async for chunk in chunks:
                    for event in reader.feed(chunk):
                        answer = await self._take(event.data, outgoing)
                        if answer is not None:
                            return answer
        except httpx2.TransportError:
            pass  # as if it had ended: it may be resumed
        except ValueError as problem:
            raise LostError(f"{self._what}: {problem}") from None
        finally:
            stream.note(reader)
        return None

    async def _take(self, data: bytes, outgoing: Outgoing | None) -> Response | ErrorResponse | None:
        """The answer in an event. Other messages are passed on."""
        if not data:
            return None
        message = decode_leniently(data)
        if isinstance(message, Request | Notification):
            assert self._receiver is not None
            await self._receiver.receive(message, None if outgoing is None else outgoing.id)
        elif outgoing is not None and message is None:
            if id_in_unreadable(data) == outgoing.id:
                raise UnreadableError(f"the answer of {self._what} cannot be read")
        elif outgoing is not None and _is_answer_to(message, outgoing):
            return message
        return None

    async def send(self, data: bytes, headers: Mapping[str, str]) -> None:
        """See `Link.send`."""
        with trio.move_on_after(self._limits.notice_secs), contextlib.suppress(httpx2.TransportError, UnicodeError):
            await self._read(await self._send("POST", {**_POST, **headers}, data))

    async def listen(self, headers: Mapping[str, str]) -> None:
        """See `Link.listen`."""
        stream = _Stream(self._limits)
        while not self._closed:
            with contextlib.suppress(httpx2.TransportError, LostError):
                response = await self._send("GET", {**headers, **stream.headers()})
                if response.status_code != 200 or not _is_stream(response):
                    await self._read(response)
                    return  # most servers have no such stream
                await self._receive_from(response, stream, None)
            await trio.sleep(max(stream.delay, self._limits.resume_secs))

    async def end_session(self) -> None:
        """End the session, if there is one."""
        if self.session:
            with contextlib.suppress(httpx2.TransportError, UnicodeError):
                await self._read(await self._send("DELETE", {}))

    async def _send(self, method: str, headers: Mapping[str, str], content: bytes | None = None) -> httpx2.Response:
        session = {_SESSION: self.session} if self.session else {}
        sent = {**self._headers, **session, **headers}
        request = httpx2.Request(method, self._url, headers=sent, content=content, extensions=self._extensions)
        return await self._transport.handle_async_request(request)

    async def _read(self, response: httpx2.Response) -> bytes | None:
        """The whole body; None if it is over the limit."""
        body = bytearray()
        async with _chunks(response) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > self._limits.max_answer_bytes:
                    return None
        return bytes(body)


class _Stream:
    """The position in a stream, and the time before it is resumed."""

    def __init__(self, limits: McpClientLimits) -> None:
        self.position = ""
        self.delay = limits.resume_secs

    def note(self, reader: EventReader) -> None:
        """Take both from what was read."""
        if _VISIBLE.fullmatch(reader.last_id):  # no header can hold another one
            self.position = reader.last_id
        if reader.retry_secs is not None:
            self.delay = max(reader.retry_secs, MIN_RESUME_SECONDS)

    def headers(self) -> dict[str, str]:
        """The headers that ask for the rest of the stream."""
        return {"accept": _EVENTS, **({_POSITION: self.position} if self.position else {})}


def _is_stream(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith(_EVENTS)


def _is_answer_to(message: object, outgoing: Outgoing) -> bool:
    """Whether a message answers a request; an error without an id does, as it came over the connection of the request."""
    if isinstance(message, ErrorResponse) and message.id is None:
        return True
    if not isinstance(message, Response | ErrorResponse) or message.id is None:
        return False
    return key_of(message.id) == outgoing.id


def _without_body(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request for one without a body: those that repeat parts of the body are left out."""
    return {
        name: value for name, value in headers.items() if not name.startswith(("mcp-method", "mcp-name", "mcp-param-"))
    }


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


class _Refused(msgspec.Struct):
    error: ErrorInfo


def _refusal(body: bytes) -> ErrorInfo | None:
    """The error with which a server of this package refuses what is no call yet, such as one without credentials."""
    try:
        found: Any = msgspec.json.decode(body, type=_Refused)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    refused: ErrorInfo = found.error
    return refused
