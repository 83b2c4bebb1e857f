"""The client: an executor in front of a server of ``carmy-frames/1`` over WebSocket."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection, ConnectionState
from wsproto.events import AcceptConnection, Event, RejectConnection, RejectData, Request

from carmy_engine import AgentError, ClosedError, ConfigurationError, ErrorInfo, grace
from carmy_engine.transport import raise_single
from carmy_wire.driver import ClientExecutor, open_client

from ._channel import RECEIVE_BYTES, MessageChannel
from ._handshake import PATH, SUBPROTOCOL
from ._link import LINGER_SECONDS, Link

log = logging.getLogger("carmy_websocket")

CONNECT_SECONDS = 10.0
"""For the connection, and again for the handshake on it. A server that is there answers at once."""

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Of one message from the server. The largest outputs that tools are allowed by default have an eighth of it."""

MAX_REFUSAL_BYTES = 64 * 1024
"""Of an answer that refuses the handshake, head and body. What our servers say has a few hundred."""

_NORMAL = 1000


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect.

    Attributes:
        url: As it was given, for messages.
        host: Without brackets.
        port: The port.
        authority: For the header ``Host``.
        resource: Path and query.
        secure: TLS.
    """

    url: str
    host: str
    port: int
    authority: str
    resource: str
    secure: bool

    @classmethod
    def of(cls, url: str) -> Target:
        """Read a URL; a missing path is the one at which our servers listen.

        Raises:
            ConfigurationError: It is not a WebSocket URL, or contains credentials.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"the URL of a server is not valid: {error}") from None
        if parts.scheme not in ("ws", "wss") or parts.hostname is None:
            raise ConfigurationError(f"the URL of a WebSocket server is like ws://127.0.0.1:3000{PATH}, not {url!r}")
        if parts.username is not None or parts.fragment:
            raise ConfigurationError("the URL of a WebSocket server has neither user nor fragment; pass token= instead")
        resource = (parts.path if parts.path not in ("", "/") else PATH) + (f"?{parts.query}" if parts.query else "")
        return cls(
            url=url,
            host=parts.hostname,
            port=port or (443 if parts.scheme == "wss" else 80),
            authority=parts.netloc,
            resource=resource,
            secure=parts.scheme == "wss",
        )


@asynccontextmanager
async def open_websocket(url: str, *, token: str | None = None) -> AsyncIterator[ClientExecutor]:
    """Connect to a server for the length of a block.

    Calls share the connection and run side by side. Leaving a call's scope cancels it on the server. If the connection is
    lost, calls that may have run raise `OutcomeUnknownError`, later ones `ClosedError`; open another one to go on.

    Args:
        url: ``ws://`` or ``wss://``; without a path, the one at which our servers listen.
        token: Sent as ``Authorization: Bearer``.

    Raises:
        ConfigurationError: The URL or the token is malformed.
        AgentError: The server refused the handshake: ``UNAUTHENTICATED``, ``FORBIDDEN`` ...
        ClosedError: There is no such server.
    """
    target = Target.of(url)
    headers = _headers(token)
    link = Link(await _connect(target), is_client=True)
    code: int | None = None  # as long as there is no WebSocket to close
    reason = ""
    try:
        channel = MessageChannel(link, await _shake_hands(link, target, headers), MAX_ANSWER_BYTES)
        code = _NORMAL
        async with trio.open_nursery() as background:
            background.start_soon(_keep, channel)
            try:
                async with open_client(channel, what=target.url, ready_seconds=CONNECT_SECONDS) as client:
                    yield client
            finally:
                background.cancel_scope.cancel()
                code, reason = channel.verdict or (code, reason)
    except BaseExceptionGroup as group:
        raise_single(group)
    finally:
        with grace(LINGER_SECONDS):
            await link.finish(code, reason)


def _headers(token: str | None) -> list[tuple[bytes, bytes]]:
    if token is None:
        return []
    if not token or token.split() != [token] or not token.isascii():
        raise ConfigurationError("a bearer token is empty, or contains white space or characters beyond ASCII")
    return [(b"Authorization", f"Bearer {token}".encode())]


async def _connect(target: Target) -> trio.abc.Stream:
    try:
        with trio.fail_after(CONNECT_SECONDS):
            if target.secure:
                context = ssl.create_default_context()
                stream = await trio.open_ssl_over_tcp_stream(
                    target.host, target.port, ssl_context=context, https_compatible=True
                )
                await stream.do_handshake()
                return stream
            return await trio.open_tcp_stream(target.host, target.port)
    except trio.TooSlowError:
        raise ClosedError(f"{target.url} did not take the connection within {CONNECT_SECONDS:g} s") from None
    except (OSError, trio.BrokenResourceError) as error:
        raise ClosedError(f"cannot connect to {target.url}: {error}") from error


async def _shake_hands(link: Link, target: Target, headers: list[tuple[bytes, bytes]]) -> Connection:
    """Open the WebSocket.

    Raises:
        AgentError: The server refused, and said why.
        ClosedError: There is no such server.
    """
    protocol = WSConnection(ConnectionType.CLIENT)
    opening = Request(host=target.authority, target=target.resource, subprotocols=[SUBPROTOCOL], extra_headers=headers)
    try:
        with trio.fail_after(CONNECT_SECONDS):
            await link.write(protocol.send(opening))
            return await _await_answer(link, target, protocol)
    except trio.TooSlowError:
        raise ClosedError(f"{target.url} did not answer within {CONNECT_SECONDS:g} s") from None
    except trio.BrokenResourceError:
        raise ClosedError(f"{target.url} closed the connection instead of answering") from None


async def _await_answer(link: Link, target: Target, protocol: WSConnection) -> Connection:
    status = received = 0
    body = b""
    while received <= MAX_REFUSAL_BYTES:
        data = await link.receive_some(RECEIVE_BYTES)
        received += len(data)
        for event in _events_of(target, protocol, data):
            if isinstance(event, AcceptConnection):
                assert protocol.connection is not None
                return protocol.connection
            if isinstance(event, RejectConnection):
                status = event.status_code
            if isinstance(event, RejectData):
                body += event.data
        if protocol.state is ConnectionState.CLOSED or (status and not data):
            break  # a refusal, as a whole
        if not data:
            raise trio.BrokenResourceError
    raise _refusal(target, status, body)


def _events_of(target: Target, protocol: WSConnection, data: bytes) -> list[Event]:
    """What an answer to the handshake says. Frames behind it stay where they are."""
    try:
        protocol.receive_data(data)
        return list(protocol.handshake.events())
    except Exception as error:
        # Of a foreign library: whatever it raises, a server that can be spoken to would not make it do so.
        raise ClosedError(f"the WebSocket handshake with {target.url} failed: {error}") from error


async def _keep(channel: MessageChannel) -> None:
    try:
        await channel.run(waits_for_room=True)
    except* Exception as fault:
        # Of a foreign library. The connection has ended, which those who wait for answers are told.
        log.error("a WebSocket connection failed", exc_info=fault)


class _Body(msgspec.Struct):
    error: ErrorInfo


def _refusal(target: Target, status: int, body: bytes) -> Exception:
    """What a refused handshake raises: the server's own error, if there is one."""
    try:
        return AgentError.of(msgspec.json.decode(body, type=_Body).error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ClosedError(f"{target.url} answered {status}: it is no WebSocket server of this protocol")
