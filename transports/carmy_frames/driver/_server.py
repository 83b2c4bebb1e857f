"""The server of one connection: reads requests, runs calls, sends their events and answers."""

from __future__ import annotations

import contextlib
import enum
import logging
from contextvars import copy_context
from functools import partial

import msgspec
import trio

from carmy_engine import (
    AgentError,
    BoundEngine,
    Catalog,
    Cause,
    ExecutionCompleted,
    ExecutionEvent,
    ExecutionRequest,
    ExecutionResult,
    FramesSettings,
    ToolProgress,
)
from carmy_engine.codec import LONG_MESSAGE_BYTES, answer_body
from carmy_engine.transport import Fault, as_agent_error, raise_own, shortened, unknown_tool
from carmy_net import DEFAULT_LOGGER, FLUSH_SECONDS, BatchChannel, SendQueue

from ..protocol import (
    HELP_RESULT,
    RUNS,
    Call,
    Cancel,
    Complete,
    Describe,
    Help,
    Id,
    Limits,
    Ping,
    Prompt,
    Prompts,
    Read,
    RemoteProtocolError,
    Request,
    Resources,
    Run,
    ServerProtocol,
)
from ._inline_call import run_inline
from ._requests import request_of
from ._server_call import ServerCall, cancelled_result

WRITE_SECONDS = 30.0
"""Limit for sending one message. A peer that takes longer has stopped reading, and is cut off."""

SHUTDOWN_REPLY_SECONDS = 2.0
"""Limit for ending and answering the calls that were cancelled after the drain limit."""

MAX_SPARE_READERS = 16
"""Idle reader tasks that are kept. Beyond it, each call that waits costs a new task."""

_CANCELLED = (b'{"cancelled":false}', b'{"cancelled":true}')


DEFAULT_SETTINGS = FramesSettings()


class ConnectionEnd(enum.Enum):
    """The reason why a connection ended."""

    END = "end"
    """The peer ended its input, and every call was answered."""
    LOST = "lost"
    """The peer has gone, or stopped reading."""
    STOPPED = "stopped"
    """The engine has stopped."""


async def serve_channel(
    engine: BoundEngine,
    channel: BatchChannel,
    *,
    server: str,
    stopped: trio.Event,
    drain_seconds: float,
    write_seconds: float = WRITE_SECONDS,
    limits: FramesSettings = DEFAULT_SETTINGS,
    log: logging.Logger | logging.LoggerAdapter[logging.Logger] = DEFAULT_LOGGER,
) -> ConnectionEnd:
    """Serve one connection until it ends. The channel stays open.

    At the end of input, accepted calls continue for `drain_seconds`; the rest is cancelled (cause ``shutdown``) and answered. If
    the peer has gone, its calls are cancelled (cause ``disconnect``). If this function is cancelled, queued messages are
    flushed within `FLUSH_SECONDS`.

    Args:
        engine: The engine, bound to the caller's context.
        channel: The carrier's channel.
        server: The server's name, for the first frame.
        stopped: Set when every execution has ended at shutdown.
        drain_seconds: Limit for calls that were accepted before the end of input.
        write_seconds: Limit for sending one message; infinite for a peer that may read slowly.
        limits: Of a message, and of unanswered calls.
        log: The transport's logger.

    Returns:
        The reason of the end.

    Raises:
        Exception: A fault in this package, in the channel or in a policy of the host.
    """
    return await _Server(engine, channel, stopped, drain_seconds, write_seconds, limits, log).run(server)


class _Server:
    def __init__(
        self,
        engine: BoundEngine,
        channel: BatchChannel,
        stopped: trio.Event,
        drain_seconds: float,
        write_seconds: float,
        limits: FramesSettings,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._engine = engine.bind(gone=Cause.DISCONNECT)
        self._channel = channel
        self._has_more = channel.has_more
        self._stopped = stopped
        self._drain_seconds = drain_seconds
        self._write_seconds = write_seconds
        self._connection = ServerProtocol(msgspec.convert(limits, Limits, from_attributes=True))
        self._out = SendQueue(log=log)
        self._running: dict[Id, ServerCall] = {}
        self._idle = trio.Event()
        self._ended = trio.Event()
        self._readers = trio.lowlevel.ParkingLot()
        """Reader tasks that have finished a call and are idle."""
        self._context = copy_context()
        self._serving = trio.CancelScope()
        self._ending: ConnectionEnd | None = None

    async def run(self, server: str) -> ConnectionEnd:
        async with trio.open_nursery() as background:
            background.start_soon(self._write)
            flush = FLUSH_SECONDS
            try:
                self._out.put(self._connection.send_ready(server, await self._engine.catalog()))
                await self._serve()
                if self._ending is ConnectionEnd.END:
                    flush = max(flush, self._drain_seconds)
            except Exception:
                raise
            except BaseException as error:
                raise_own(error)
                # A foreign cancel would end silently in this nursery.
                raise Fault(error) from error
            finally:
                self._out.close()
                self._out.flush_within(flush)
        assert self._ending is not None
        return self._ending

    def _end(self, ending: ConnectionEnd) -> None:
        """Record the reason of the end; the first one counts."""
        if self._ending is None:
            self._ending = ending
        self._ended.set()

    async def _write(self) -> None:
        if not await self._out.write_shielded(self._channel, self._write_seconds):
            self._lose()

    def _lose(self) -> None:
        """Cancel every call: the peer takes no answers any more."""
        self._ending = ConnectionEnd.LOST
        self._out.clear()
        self._serving.cancel()

    async def _serve(self) -> None:
        with self._serving:
            await self._serve_calls()

    async def _serve_calls(self) -> None:
        async with trio.open_nursery() as calls:
            calls.start_soon(self._watch_stop)
            calls.start_soon(self._read, calls)
            await self._ended.wait()
            if self._ending is ConnectionEnd.END:
                await self._finish_calls()
            elif self._ending is ConnectionEnd.STOPPED:
                await self._wait_idle()  # bounded by the limit of the writer
            calls.cancel_scope.cancel()

    async def _watch_stop(self) -> None:
        await self._stopped.wait()
        self._end(ConnectionEnd.STOPPED)
        self._out.flush_within(FLUSH_SECONDS)

    async def _finish_calls(self) -> None:
        """Wait for accepted calls within the drain limit; then cancel the rest, and wait for their answers."""
        with trio.move_on_after(self._drain_seconds):
            await self._wait_idle()
            return
        for call in self._running.values():
            call.cancel(Cause.SHUTDOWN)
        with trio.move_on_after(SHUTDOWN_REPLY_SECONDS):
            await self._wait_idle()

    async def _wait_idle(self) -> None:
        while self._running:
            self._idle = trio.Event()
            await self._idle.wait()

    async def _read(self, calls: trio.Nursery) -> None:
        """Read requests until the input ends. One task reads at a time, and runs the call that it has read.

        Before that call first waits, another task takes over reading.
        """

        def read_on() -> None:
            if not self._readers.unpark():
                calls.start_soon(self._read, calls)

        while self._ending is None:
            try:
                message = await self._channel.receive()
            except trio.EndOfChannel:
                self._connection.receive_end()
                self._end(ConnectionEnd.END)
                return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._lose()
                return
            if self._ending is not None:
                return
            try:
                call = await self._handle(message)
            except trio.ClosedResourceError:
                return  # the writer has ended, and has logged the reason
            if call is None:
                continue
            running = self._running[call.id] = ServerCall(self._engine.bind())
            if await run_inline(self._call(call, running), self._context.copy(), read_on):
                if len(self._readers) >= MAX_SPARE_READERS:
                    return
                await self._readers.park()

    async def _handle(self, message: bytes) -> Run | None:
        """Answer a request that runs no code of the application; return another one."""
        try:
            if len(message) <= LONG_MESSAGE_BYTES:
                request = self._connection.receive_message(message)
            else:
                found = await self._engine.read_message(partial(self._connection.decode, message))
                if self._ending is not None:
                    return None
                request = self._connection.receive(found)
        except RemoteProtocolError as error:
            if error.reply is None:
                raise  # unreachable: `ServerProtocol` always makes a reply
            self._engine.record_refusal(error.error)
            await self._out.wait_for_room(len(error.reply))
            self._put(error.reply)
            return None
        if isinstance(request, RUNS):
            return request
        answer: bytes | AgentError
        try:
            answer = await self._answer(request)
        except AgentError as error:
            answer = error
        except BaseException as error:  # noqa: BLE001 - the boundary round one request; a host's policy can raise anything
            raise_own(error)
            answer, _ = as_agent_error(error, "the request", expose=False)
        if isinstance(answer, AgentError):
            self._engine.record_refusal(answer)
            await self._out.wait_for_room(0)
            self._put(self._connection.send_error(request.id, answer.info))
        else:
            await self._out.wait_for_room(len(answer))
            self._put(self._connection.send_result(request.id, answer))
        return None

    def _put(self, message: bytes) -> None:
        """Queue a message; send it at once if no other is about to follow."""
        self._out.put(message, alone=len(self._running) <= 1 and not self._has_more())

    async def _answer(self, request: Request) -> bytes:
        """Return the result of a request that is no call, as JSON."""
        match request:
            case Ping():
                return b"{}"
            case Help():
                return HELP_RESULT
            case Cancel():
                return _CANCELLED[self._cancel(request)]
            case Describe():
                return _describe(await self._engine.catalog(), request.tool)
            case Resources():
                return (await self._engine.resources()).document
            case Prompts():
                return (await self._engine.prompts()).document
            case _:
                return (await self._engine.catalog()).document

    def _cancel(self, request: Cancel) -> bool:
        if request.execution_id is not None:
            return self._engine.cancel(request.execution_id)
        assert request.target is not None
        running = self._running.get(request.target)
        return running is not None and running.cancel(Cause.CALLER, gone=request.gone)

    async def _call(self, call: Run, running: ServerCall) -> None:
        """Run one call, and answer it."""
        try:
            body = await self._execute(call, running)
            await self._out.wait_for_room(len(body))
            self._put(self._connection.send_result(call.id, body))
        except trio.ClosedResourceError:
            pass  # the connection has ended
        except BaseException as error:  # noqa: BLE001 - the boundary round one call of a connection
            raise_own(error)
            told, _ = as_agent_error(error, f"the call of {_name_of(call)}", expose=False)
            if call.id in self._connection.calls:
                with contextlib.suppress(trio.ClosedResourceError):
                    self._put(self._connection.send_error(call.id, told.info))
        finally:
            del self._running[call.id]
            self._idle.set()

    async def _execute(self, call: Run, running: ServerCall) -> bytes:
        result: ExecutionResult | None = None
        with running.block:
            # Back-pressure: outputs are large, so no call starts while the peer does not read.
            await self._out.wait_for_room(0)
            executor = running.executor
            match call:
                case Call():
                    request = request_of(call)
                    if call.stream:
                        result = await self._stream(call.id, request, running)
                    else:
                        result = await executor.execute(request)
                case Read():
                    result = await executor.read_resource(call.uri, timeout_ms=call.timeout_ms)
                case Prompt():
                    result = await executor.get_prompt(call.name, call.arguments, timeout_ms=call.timeout_ms)
                case Complete():
                    found = await executor.complete(call.kind, call.name, call.argument, call.value, call.given)
                    return msgspec.json.encode(found)
        running.mark_ended()
        if result is None:
            result = cancelled_result(running, _name_of(call))
        return answer_body(result, replayed=True, duration=True)

    async def _stream(self, call: Id, request: ExecutionRequest, running: ServerCall) -> ExecutionResult:
        """Send the events of a call. Progress reports merge in the engine while the client reads slowly."""
        result: ExecutionResult | None = None
        async with running.executor.stream(request) as events:
            async for event in events:
                if isinstance(event, ExecutionCompleted):
                    result = event.result
                    running.mark_ended()
                await self._out.wait_for_room(_size_of(event))
                self._put(self._connection.send_event(call, event))
        assert result is not None  # the last event always comes
        return result


def _name_of(call: Run) -> str:
    """What runs, for messages."""
    match call:
        case Call():
            return call.tool
        case Read():
            return "the resource"
        case Prompt():
            return f"the prompt {shortened(call.name)}"
        case Complete():
            return "the completion"


def _describe(catalog: Catalog, name: str) -> bytes:
    for spec in catalog.tools:
        if spec.name == name:
            return msgspec.json.encode(spec)
    raise unknown_tool(name, [spec.name for spec in catalog.tools])


def _size_of(event: ExecutionEvent) -> int:
    """The size of an event's payload, in bytes; 0 for events that are small."""
    if isinstance(event, ToolProgress):
        return len(event.partial_json or b"")
    return len(event.result.data_json or b"") if isinstance(event, ExecutionCompleted) else 0
