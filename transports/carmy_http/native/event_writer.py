"""One task that writes the events of all streams, so that a silent stream costs neither a task nor a timer.

An execution runs in the task of its request. Its events wait in an `EventSink` until the `EventWriter` writes them, which is
before any other task runs; most leave with the first send. Only a client that does not take them gets a task, until it has caught up.
"""

from __future__ import annotations

import functools
import itertools
import math
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import trio

from carmy_engine import BoundEngine, ExecutionRequest, HttpSettings
from carmy_engine.transport import EventBuffer, RateLimitedLogger, contain

from ..api import event_response
from ..message import Disconnected, Request
from .socket_io import send_all, send_now, send_rest

MAX_AT_ONCE = 64
"""Streams that are written before the scheduler runs other tasks."""

MAX_PIECE_BYTES = 64 * 1024
"""Of events, after which no more are added to a piece. Events in a piece no longer count for the tool's back-pressure, so it is small."""


class EventSink(EventBuffer):
    """The events of one execution, on their way to a client.

    Args:
        writer: Writes them.
        sock: The client's socket. Never closed here.
        frame: Adds the framing of HTTP to a piece of the body.
        on_broken: Called when the stream breaks off. Must cancel the call and end the connection.
    """

    __slots__ = ("_frame", "_on_broken", "_sock", "_writer", "_writing")

    def __init__(
        self, writer: EventWriter, sock: socket.socket, frame: Callable[[bytes], bytes], on_broken: Callable[[], None]
    ) -> None:
        super().__init__(writer.max_event_bytes)
        self._writer = writer
        self._sock = sock
        self._frame = frame
        self._on_broken = on_broken
        self._writing: trio.Event | None = None  # set when the piece that a task is writing has left

    async def execute(self, request: Request, engine: BoundEngine, wanted: ExecutionRequest) -> bytes:
        """Run an execution while the client is connected. Returns the last pieces, framed, which are still to be sent.

        When cancelled, a task may still be writing a piece until the socket is closed.

        Raises:
            Disconnected: The stream broke off.
        """
        try:
            await request.while_connected(engine.execute_into, self, wanted)
            if self._writing is not None:
                await self._writing.wait()
            if self._closed:
                raise Disconnected
            return b"".join(iter(self._piece, b""))
        finally:
            self.close()
            self._writer.discard(self)

    def has_news(self) -> None:
        """See `EventBuffer`."""
        self._writer.schedule(self)

    def write(self) -> None:
        """Write all events. A task writes those that the client does not take at once."""
        if self._writing is None:
            self._write(b"")

    def send_heartbeat(self) -> None:
        """Write a comment, so that proxies keep the connection open."""
        self._write(self._frame(event_response.HEARTBEAT))

    def _piece(self) -> bytes:
        """Some events, framed; empty when there are none."""
        frames: list[bytes] = []
        size = 0
        while size < MAX_PIECE_BYTES and (event := self.take()) is not None:
            frames.append(event_response.frame(event))
            size += len(frames[-1])
        return self._frame(b"".join(frames)) if frames else b""

    def _write(self, data: bytes) -> None:
        try:
            while data or (data := self._piece()):
                sent = send_now(self._sock, data)
                if sent != len(data):
                    self._writing = trio.Event()
                    self._writer.start(self, functools.partial(self._write_rest, data, sent))
                    return
                data = b""
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one call, here and below: an event that cannot be written must not end all other streams. The head
            # has been sent, so the body ends without a proper end, by which the client detects the failure.
            self._break_off()
            contain(error, self._writer.log, "a stream broke off")
        else:
            self._writer.expect_heartbeat(self)

    async def _write_rest(self, data: bytes, sent: int) -> None:
        """Write the rest of a piece, and later events, until the client has caught up."""
        done = False
        try:
            if self._sock.fileno() < 0:
                raise trio.ClosedResourceError
            done = await send_rest(self._sock, data, sent, self._writer.write_seconds, self._writer.log)
            while done and (data := self._piece()):
                done = await send_all(self._sock, data, self._writer.write_seconds, self._writer.log)
        except trio.ClosedResourceError:
            pass  # the connection has ended
        except BaseException as error:  # noqa: BLE001 - as above
            done = False
            contain(error, self._writer.log, "a stream broke off")
        finally:
            assert self._writing is not None
            self._writing.set()
            self._writing = None
        if not self._closed:
            if done:
                self._writer.schedule(self)
            else:
                self._break_off()

    def _break_off(self) -> None:
        """Write nothing more, not even the end: the client would not detect that events before it are missing."""
        self.close()
        self._writer.discard(self)
        self._on_broken()


class EventWriter:
    """Writes the events of all sinks, and heartbeats to silent ones.

    Args:
        log: For failures that a client causes.
        settings: When to send a heartbeat, and how long a write may take.
        max_event_bytes: Of the events of one execution that wait for its client.
    """

    def __init__(self, log: RateLimitedLogger, settings: HttpSettings, max_event_bytes: int) -> None:
        self.max_event_bytes = max_event_bytes
        self._heartbeat_seconds = settings.heartbeat_secs
        self.write_seconds = settings.write_timeout_secs
        self.log = log
        self._scheduled: dict[EventSink, None] = {}
        self._silent_since: OrderedDict[EventSink, float] = OrderedDict()
        """The time of the last write, on trio's clock; the earliest first."""
        self._wake = trio.Event()
        self._nursery: trio.Nursery | None = None

    def schedule(self, sink: EventSink) -> None:
        """Write the events of a sink in the next round."""
        self._scheduled[sink] = None
        self._wake.set()

    def expect_heartbeat(self, sink: EventSink) -> None:
        """Send a heartbeat if the sink writes nothing for that long from now."""
        self._silent_since[sink] = trio.current_time()
        self._silent_since.move_to_end(sink)

    def start(self, sink: EventSink, write: Callable[[], Awaitable[None]]) -> None:
        """Start a task that writes for a sink, without heartbeats. It must end with its connection."""
        assert self._nursery is not None
        self._silent_since.pop(sink, None)
        self._nursery.start_soon(write)

    def discard(self, sink: EventSink) -> None:
        """Write nothing more for a sink."""
        self._scheduled.pop(sink, None)
        self._silent_since.pop(sink, None)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                with trio.CancelScope(deadline=self._next_heartbeat()):
                    await self._wake.wait()
                self._wake = trio.Event()
                for sink in [*itertools.islice(self._scheduled, MAX_AT_ONCE)]:
                    del self._scheduled[sink]
                    sink.write()
                if self._scheduled:
                    self._wake.set()
                for sink in [*itertools.islice(self._silent_since, MAX_AT_ONCE)]:
                    if self._next_heartbeat() > trio.current_time():
                        break
                    del self._silent_since[sink]
                    sink.send_heartbeat()

    def _next_heartbeat(self) -> float:
        return next(iter(self._silent_since.values()), math.inf) + self._heartbeat_seconds
