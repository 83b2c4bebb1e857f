"""The client: an executor in front of a server of ``carmy-frames/1`` over WebSocket."""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import trio
from trio_websocket import ConnectionRejected, WebSocketConnection, wrap_client_stream

from carmy_engine import AgentError, ClosedError, ErrorInfo, grace
from carmy_engine.transport import check_token, parse_server_url, raise_single, reason_of, require_trio
from carmy_frames.driver import ClientExecutor, open_client

from ._channel import NORMAL, RECEIVE_BYTES, ChannelLimits, MessageChannel
from ._guarded_stream import LINGER_SECONDS, GuardedStream
from ._handshake import PATH, SUBPROTOCOL

log = logging.getLogger("carmy.websocket")


class WebSocketClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of `open_websocket`.

    Attributes:
        connect_secs: For the connection, and again for its handshake. A running server answers at once.
        ping_secs: Between pings.
        silence_secs: Without a byte from the server, and without a byte that it takes.
        max_answer_bytes: Of one message from the server: eight times the default limit of a tool's output.
        max_waiting_messages: Messages that wait for their callers. Beyond it, reading pauses.
        max_waiting_bytes: Bytes of these messages.
    """

    connect_secs: float = 10.0
    ping_secs: float = 20.0
    silence_secs: float = 40.0
    max_answer_bytes: int = 64 * 1024 * 1024
    max_waiting_messages: int = 1024
    max_waiting_bytes: int = 8 * 1024 * 1024


DEFAULT_LIMITS = WebSocketClientLimits()


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a server.

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
        """Parse a URL. A missing path means the path of our servers.

        Raises:
            ConfigurationError: The URL is not one of a WebSocket, or contains credentials.
        """
        parts = parse_server_url(url, schemes=("ws", "wss"), example=f"ws://127.0.0.1:3000{PATH}")
        assert parts.hostname is not None
        resource = (parts.path if parts.path not in ("", "/") else PATH) + (f"?{parts.query}" if parts.query else "")
        return cls(
            url=url,
            host=parts.hostname,
            port=parts.port or (443 if parts.scheme == "wss" else 80),
            authority=parts.netloc,
            resource=resource,
            secure=parts.scheme == "wss",
        )


@asynccontextmanager
async def open_websocket(
    url: str, *, token: str | None = None, limits: WebSocketClientLimits = DEFAULT_LIMITS
) -> AsyncIterator[ClientExecutor]:
    """Connect to a server for the length of a block.

    Calls share the connection and run side by side. Leaving a call's scope cancels the call on the server. After the connection
    is lost, calls that may have run raise `OutcomeUnknownError`, and later calls raise `ClosedError`.

    Args:
        url: ``ws://`` or ``wss://``. A missing path means the path of our servers.
        token: Sent as ``Authorization: Bearer``.
        limits: In time, bytes and numbers.

    Raises:
        ConfigurationError: The URL or the token is malformed.
        AgentError: The server refused the handshake: ``UNAUTHENTICATED``, ``FORBIDDEN`` ...
        ClosedError: There is no such server.
    """
    require_trio("open_websocket", "open_websocket(...)")
    target = Target.of(url)
    headers = _headers(token)
    stream = GuardedStream(await _connect(target, limits.connect_secs), is_client=True)
    lingers = False  # as long as there is no WebSocket to close
    try:
        async with trio.open_nursery() as background:
            channel = await background.start(functools.partial(_carry, stream, target, headers, limits))
            assert isinstance(channel, MessageChannel)
            lingers = True
            try:
                async with open_client(channel, what=target.url, ready_seconds=limits.connect_secs, log=log) as client:
                    yield client
            finally:
                with grace(LINGER_SECONDS):
                    await channel.close(NORMAL)
                background.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)
    finally:
        with grace(LINGER_SECONDS):
            await stream.finish(lingers=lingers)


def _headers(token: str | None) -> list[tuple[bytes, bytes]]:
    if token is None:
        return []
    check_token(token)
    return [(b"Authorization", f"Bearer {token}".encode())]


async def _connect(target: Target, seconds: float) -> trio.abc.Stream:
    try:
        with trio.fail_after(seconds):
            if target.secure:
                context = ssl.create_default_context()
                stream = await trio.open_ssl_over_tcp_stream(
                    target.host, target.port, ssl_context=context, https_compatible=True
                )
                try:
                    await stream.do_handshake()
                except BaseException:
                    await trio.aclose_forcefully(stream)
                    raise
                return stream
            return await trio.open_tcp_stream(target.host, target.port)
    except trio.TooSlowError:
        raise ClosedError(f"{target.url} did not take the connection within {seconds:g} s") from None
    except (OSError, trio.BrokenResourceError, UnicodeError) as error:  # the last is for a host that is no name
        raise ClosedError(f"cannot connect to {target.url}: {reason_of(error)}") from error


async def _carry(
    stream: GuardedStream,
    target: Target,
    headers: list[tuple[bytes, bytes]],
    limits: WebSocketClientLimits,
    *,
    task_status: trio.TaskStatus[MessageChannel],
) -> None:
    """Shake hands, then run the connection until it ends. After the handshake nothing raises but ``Cancelled``.

    The library's tasks live here and not beside the caller's: some of their failures (a ping that meets our close) would
    cancel the caller without an exception.
    """
    started = False
    problem: Exception | None = None
    try:
        async with trio.open_nursery() as background:
            connection = await _shake_hands(background, stream, target, headers, limits)
            channel = MessageChannel(connection, stream, is_client=True, limits=_channel_limits(limits))
            task_status.started(channel)
            started = True
            await channel.run(waits_for_room=True)
            await trio.sleep_forever()  # `MessageChannel.close` needs the library's reader
    except* ConnectionRejected as group:
        problem = _refusal(target, group)
    except* ClosedError as group:
        problem = _first(group)
    except* Exception as group:  # noqa: BLE001 - of a foreign library
        # Any exception means that this connection is of no use any more; `MessageChannel.receive` raises.
        problem = ClosedError(f"the WebSocket handshake with {target.url} failed: {_first(group)}")
        problem.__cause__ = _first(group)
    finally:
        stream.detach()
    if not started:
        raise problem


async def _shake_hands(
    background: trio.Nursery,
    stream: GuardedStream,
    target: Target,
    headers: list[tuple[bytes, bytes]],
    limits: WebSocketClientLimits,
) -> WebSocketConnection:
    async def give_up(scope: trio.CancelScope) -> None:
        await stream.ended.wait()
        scope.cancel()

    with trio.move_on_after(limits.connect_secs) as scope:
        # The library waits for an answer without limit, even when the stream has ended.
        background.start_soon(give_up, scope)
        return await wrap_client_stream(
            background,
            cast("Any", stream),  # annotated as a socket, used as a stream
            target.authority,
            target.resource,
            subprotocols=[SUBPROTOCOL],
            extra_headers=headers,
            max_message_size=limits.max_answer_bytes,
            receive_buffer_size=RECEIVE_BYTES,
        )
    if stream.ended.is_set():
        raise ClosedError(f"{target.url} closed the connection instead of answering")
    raise ClosedError(f"{target.url} did not answer within {limits.connect_secs:g} s")


def _channel_limits(limits: WebSocketClientLimits) -> ChannelLimits:
    return ChannelLimits(
        ping_secs=limits.ping_secs,
        silence_secs=limits.silence_secs,
        max_message_bytes=limits.max_answer_bytes,
        max_waiting_messages=limits.max_waiting_messages,
        max_waiting_bytes=limits.max_waiting_bytes,
    )


class _Body(msgspec.Struct):
    error: ErrorInfo


def _refusal(target: Target, group: BaseExceptionGroup[ConnectionRejected]) -> Exception:
    """Return the exception for a refused handshake: the server's own error, if the answer has one."""
    rejected = _first(group)
    assert isinstance(rejected, ConnectionRejected)
    try:
        return AgentError.of(msgspec.json.decode(bytes(rejected.body or b""), type=_Body).error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ClosedError(f"{target.url} answered {rejected.status_code}: it is no WebSocket server of this protocol")


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
