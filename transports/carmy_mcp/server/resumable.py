"""Responses that a client can resume after it has lost the connection."""

from __future__ import annotations

import logging
import secrets

import trio

from carmy_engine import BoundEngine
from carmy_engine.transport import contain
from carmy_http.api.event_response import EVENT_STREAM
from carmy_http.message import BodyWriter, Request, StreamResponse

from ..protocol.connection import key_of
from ..protocol.event_log import EventLog
from ..protocol.messages import Request as RpcRequest
from ..protocol.params import Client
from .exchange import Exchange
from .replies import OPENING, Replies
from .sessions import Place
from .streams import EventStream

log = logging.getLogger("carmy.mcp")

RETRY_MS = 1000
"""The time after which a client connects again to a stream that it has lost."""

PRIMING_VERSION = "2025-11-25"
"""The first version in which a stream begins with an event without a message. Older clients take it for a broken one."""


class ResumableStreams:
    """Runs requests beside their responses. An execution continues for a while when its client has lost the connection.

    Args:
        replies: Gives the answers.
        nursery: For the executions.
        max_replay_bytes: Of the events that a stream keeps.
        resume_secs: For a client to come back.
    """

    def __init__(self, replies: Replies, nursery: trio.Nursery, max_replay_bytes: int, resume_secs: float) -> None:
        self.silence_seconds = replies.silence_seconds
        self._replies = replies
        self._nursery = nursery
        self._max_replay_bytes = max_replay_bytes
        self._resume_secs = resume_secs

    def begin(
        self, message: RpcRequest, request: Request, client: Client, caller: BoundEngine, place: Place
    ) -> StreamReply:
        """Run a request beside its response, which the client can resume."""
        session = place.session
        stream = EventStream(
            EventLog(secrets.token_hex(8), self._max_replay_bytes),
            session.questions,
        )
        stream.session = session.state
        exchange = Exchange(message, client, caller, stream)
        stream.exchange = session.running[key_of(message.id)] = exchange
        session.streams[stream.log.stream] = stream
        self._nursery.start_soon(self._run_beside, exchange, stream, place)
        opening = stream.log.opening(RETRY_MS) if client.version >= PRIMING_VERSION else OPENING
        return StreamReply(self, request, stream, place, opening, 0)

    async def _run_beside(self, exchange: Exchange, stream: EventStream, place: Place) -> None:
        session = place.session
        try:
            with place.used():
                message, _ = await self._replies.answer(exchange)
                place.settle(exchange)
                if message is not None:
                    stream.put(message)
                stream.end()
                if message is not None:
                    with trio.move_on_after(self._resume_secs):  # the answer waits for its client
                        await stream.wait_read()
        except BaseException as error:  # noqa: BLE001 - the boundary of one request: others have the same nursery
            contain(error, log, "a request failed")
        finally:
            place.settle(exchange)
            stream.end()
            session.streams.pop(stream.log.stream, None)

    async def expire(self, exchange: Exchange, stream: EventStream) -> None:
        """Cancel an execution whose client does not come back."""
        with trio.move_on_after(self._resume_secs):
            await stream.wait_reader()
            return
        exchange.leave()

    def start_expiry(self, exchange: Exchange, stream: EventStream) -> None:
        """Begin `expire`."""
        self._nursery.start_soon(self.expire, exchange, stream)


class StreamReply(StreamResponse):
    """The response that reads an `EventStream`.

    Args:
        streams: Starts the wait for a client that has lost the connection.
        request: The HTTP request.
        stream: The stream.
        place: The session.
        opening: The first bytes.
        after: The number of the last event that the client has.
    """

    __slots__ = ("_after", "_opening", "_place", "_request", "_stream", "_streams")

    def __init__(
        self,
        streams: ResumableStreams,
        request: Request,
        stream: EventStream,
        place: Place,
        opening: bytes,
        after: int,
    ) -> None:
        super().__init__(200, EVENT_STREAM, self._run)
        self._streams = streams
        self._request = request
        self._stream = stream
        self._place = place
        self._opening = opening
        self._after = after

    async def _run(self, writer: BodyWriter) -> None:
        stream, silence = self._stream, self._streams.silence_seconds
        try:
            with self._place.used():
                await self._request.while_connected(stream.read, writer, self._opening, self._after, silence)
        finally:
            if stream.exchange is not None and not stream.has_ended and not stream.has_reader:
                self._streams.start_expiry(stream.exchange, stream)
