"""The client of one connection: an executor."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from carmy_engine import (
    AgentError,
    Catalog,
    ClosedError,
    ExecutionCompleted,
    ExecutionEvent,
    ExecutionRequest,
    ExecutionResult,
    OutcomeUnknownError,
    grace,
)
from carmy_engine.transport import raise_single
from carmy_net import DEFAULT_LOGGER, FLUSH_SECONDS, BatchChannel, QueuedMessage, SendQueue

from ..protocol import (
    Call,
    Cancel,
    ClientProtocol,
    ErrorFrame,
    Event,
    Id,
    Ping,
    Ready,
    RemoteProtocolError,
    Request,
    ResultFrame,
    Tools,
    parse_catalog,
    parse_event,
    parse_result,
)
from ._event_channel import EventChannel
from ._requests import call_frame

CANCEL_SECONDS = 2.0
"""Limit for the server to end a call that was left. It gives a tool one second to clean up."""

READY_SECONDS = 30.0
"""Limit for the server's first frame. Until then it imports and starts an application."""


@asynccontextmanager
async def open_client(
    channel: BatchChannel,
    *,
    what: str = "the connection",
    describe_loss: Callable[[], str] = str,
    ready_seconds: float = READY_SECONDS,
    log: logging.Logger = DEFAULT_LOGGER,
) -> AsyncIterator[ClientExecutor]:
    """Connect to a server over a channel, for the length of a block. The channel stays open.

    Args:
        channel: The carrier's channel.
        what: The noun for the connection in messages.
        describe_loss: Returns the reason of a lost connection, in words that follow `what`.
        ready_seconds: Limit for the server's first frame.
        log: The transport's logger.

    Raises:
        ClosedError: The server was not ready in time, or uses another protocol.
    """
    client = ClientExecutor(channel, what, describe_loss, log)
    try:
        async with trio.open_nursery() as background:
            try:
                await client.start(background, ready_seconds)
                yield client
            finally:
                await client.aclose()
                background.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("answer", "answered", "error", "events", "message", "request_id", "tool")

    def __init__(self, tool: str = "", request_id: str | None = None, events: EventChannel | None = None) -> None:
        self.tool = tool
        self.request_id = request_id
        self.events = events
        self.answered = trio.Event()
        self.answer: ResultFrame | ErrorFrame | None = None
        self.error: Exception | None = None
        self.message: QueuedMessage | None = None


class ClientExecutor:
    """The client of one connection; an executor. Made by `open_client`.

    Calls run concurrently. Leaving a call's scope cancels it on the server, and waits briefly for its end there.

    An unread stream whose partial results exceed a bound stops the whole connection: read a stream, or leave it.
    """

    def __init__(
        self,
        channel: BatchChannel,
        what: str,
        describe_loss: Callable[[], str] = str,
        log: logging.Logger = DEFAULT_LOGGER,
    ) -> None:
        self._channel = channel
        self._what = what
        self._describe_loss = describe_loss
        self._connection = ClientProtocol()
        self._log = log
        self._out = SendQueue(log=log)
        self._pending: dict[Id, _Pending] = {}
        self._ready = trio.Event()
        # Ends in `aclose`, so that calls that are left can still send their cancel and receive the server's answer to it.
        self._reading = trio.CancelScope(shield=True)
        self._lost: str | None = None
        """The reason why no request can be sent any more."""

    @property
    def ready(self) -> Ready:
        """The server's first frame."""
        assert self._connection.ready is not None  # `open_client` has waited for it
        return self._connection.ready

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one request to its end; see `carmy_engine.abc.Executor.execute`.

        The deadline of an enclosing scope also limits the execution, by ``timeout_ms``. The result of a request that
        cannot be sent has an empty ``execution_id``.

        Raises:
            ClosedError: The connection was lost before the call was sent: the tool has not run.
            OutcomeUnknownError: The connection was lost while the call may have run.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            call = self._call(request, stream=False)
        except AgentError as error:
            await trio.lowlevel.checkpoint()
            return ExecutionResult(execution_id="", error=error.info)
        return _result(await self._ask(call, _Pending(request.tool, request.request_id)))

    @asynccontextmanager
    async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
        """Run one request and stream its events; see `carmy_engine.abc.Executor.stream`.

        Raises:
            ClosedError: As `execute`; inside the block, the channel raises it.
            OutcomeUnknownError: Likewise.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        events = EventChannel()
        pending = _Pending(request.tool, request.request_id, events)
        try:
            call = self._call(request, stream=True)
        except AgentError as error:
            await events.put_refusal(request.tool, ExecutionResult(execution_id="", error=error.info))
            yield events
            return
        self._send(call, pending)
        try:
            yield events
        finally:
            events.stop()
            await self._leave(call.id, pending)

    async def catalog(self) -> Catalog:
        """Fetch the tools that the caller of this connection may use.

        Raises:
            ClosedError: The connection is lost.
            AgentError: The server refused.
        """
        answer = await self._ask(Tools(id=self._connection.next_id()), _Pending())
        if isinstance(answer, ErrorFrame):
            raise AgentError.of(answer.error)
        return parse_catalog(bytes(answer.result))

    async def ping(self) -> None:
        """Send a ping and wait for its answer.

        Raises:
            ClosedError: The connection is lost.
        """
        await self._ask(Ping(id=self._connection.next_id()), _Pending())

    def _call(self, request: ExecutionRequest, *, stream: bool) -> Call:
        return call_frame(request, self._connection.next_id(), self.ready.limits.max_message_bytes, stream=stream)

    def _send(self, request: Request, pending: _Pending) -> None:
        """Queue a request.

        Raises:
            ClosedError: The connection is lost.
        """
        if self._lost is not None:
            raise ClosedError(f"{self._lost}; nothing was sent")
        message = self._connection.send(request)
        try:
            pending.message = self._out.put(message, alone=not self._pending)
        except trio.ClosedResourceError:
            self._connection.forget(request.id)
            raise ClosedError(f"the client of {self._what} is being closed; nothing was sent") from None
        self._pending[request.id] = pending

    async def _ask(self, request: Request, pending: _Pending) -> ResultFrame | ErrorFrame:
        """Send a request and wait for its answer."""
        if self._lost is None:
            with contextlib.suppress(trio.ClosedResourceError):  # closed meanwhile: `_send` raises
                await self._out.wait_for_room(0)
        self._send(request, pending)
        try:
            await pending.answered.wait()
        finally:
            await self._leave(request.id, pending)
        if pending.answer is None:
            assert pending.error is not None
            raise pending.error
        return pending.answer

    async def _leave(self, request: Id, pending: _Pending) -> None:
        """Give up the answer: cancel a call that still runs on the server, and wait briefly for its end."""
        if pending.answered.is_set():
            self._pending.pop(request, None)
            return
        assert pending.message is not None
        if self._out.discard(pending.message):
            # The request was not sent, so there is nothing to cancel.
            self._connection.forget(request)
            self._pending.pop(request, None)
            return
        with grace(CANCEL_SECONDS), contextlib.suppress(ClosedError):
            self._send(Cancel(id=self._connection.next_id(), target=request, gone=True), _Pending())
            await pending.answered.wait()
        # The entry stays: a later answer is expected, and dropped.

    async def start(self, background: trio.Nursery, seconds: float) -> None:
        """For `open_client`: start the reader and the writer, and wait for the first frame."""
        background.start_soon(self._write)
        background.start_soon(self._read)
        with trio.move_on_after(seconds):
            await self._ready.wait()
        if self._lost is not None:
            raise ClosedError(self._lost)
        if self._connection.ready is None:
            raise ClosedError(f"{self._what} was not ready within {seconds:g} s")

    async def _write(self) -> None:
        if not await self._out.write_shielded(self._channel):
            self._lose(f"{self._what} was lost{self._describe_loss()}")

    async def _read(self) -> None:
        """Dispatch frames to the calls that wait for them, until the connection ends."""
        try:
            with self._reading:
                while True:
                    await self._take(self._connection.receive_message(await self._channel.receive()))
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            self._lose(f"{self._what} was lost{self._describe_loss()}")
        except (RemoteProtocolError, AgentError) as error:
            self._lose(
                f"{self._what} sent what is not {'a frame' if self._ready.is_set() else 'its first frame'}: {error}"
            )

    async def _take(self, frame: Ready | Event | ResultFrame | ErrorFrame) -> None:
        if isinstance(frame, Ready):
            self._ready.set()
            return
        pending = None if frame.id is None else self._pending.get(frame.id)
        if pending is None:
            self._log.warning("%s refused something that it could not read: %s", self._what, frame)
            return
        if isinstance(frame, Event):
            # The answer that follows the last event holds more.
            event = None
            if pending.events is not None and frame.event != ExecutionCompleted.kind:
                event = parse_event(frame.event, frame.seq, bytes(frame.data), pending.tool)
            if event is not None and pending.events is not None:
                await pending.events.put(event)
            return
        if pending.events is not None and isinstance(frame, ErrorFrame):
            await pending.events.put_refusal(pending.tool, _result(frame))
        elif pending.events is not None:
            await pending.events.put_result(pending.tool, _result(frame))
        assert frame.id is not None
        pending.answer = frame
        pending.answered.set()
        del self._pending[frame.id]

    def _lose(self, why: str) -> None:
        """Fail every waiting call, with an error that states whether it may have run."""
        if self._lost is not None:
            return
        self._lost = why
        self._connection.receive_end()
        for pending in self._pending.values():
            assert pending.message is not None
            if pending.message.taken:
                pending.error = OutcomeUnknownError.before_answer(why, pending.request_id)
            else:
                pending.error = ClosedError(f"{why} before the call was sent; it has not run")
            if pending.events is not None:
                pending.events.fail(pending.error)
            pending.answered.set()
        self._pending.clear()
        self._out.clear()
        self._ready.set()

    async def aclose(self) -> None:
        """For `open_client`: flush the queue (mostly cancels), within `FLUSH_SECONDS`."""
        self._out.close()
        self._out.flush_within(FLUSH_SECONDS)
        with grace(FLUSH_SECONDS):
            await self._out.written.wait()
        self._reading.cancel()
        self._lose(f"the client of {self._what} was closed")


def _result(answer: ResultFrame | ErrorFrame) -> ExecutionResult:
    if isinstance(answer, ErrorFrame):
        return ExecutionResult(execution_id="", error=answer.error)
    return parse_result(bytes(answer.result))
