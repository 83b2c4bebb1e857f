"""A graph on an engine: run, stream, resume, history."""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
import trio

from .._engine.engine import BoundEngine
from .._idempotency.reservations import identity_of
from .._model.cause import Cause
from .._model.checkpoint import Checkpoint, RunStatus
from .._model.error_boundary import raise_single
from .._model.errors import AgentError, DeclarationError
from .._model.protocols import CheckpointStore
from ..stores.memory import MemoryCheckpoints
from ._events import RunCompleted, RunEvent, RunStarted
from ._history import HistoryEntry, read_history
from ._observers import Observer
from ._position import Cursor, Owner, Position, decode, json_copy
from ._result import RunResult
from ._run import Emit, Run
from ._store_calls import store_value

if TYPE_CHECKING:
    from ._compiled import CompiledGraph

S = TypeVar("S")

MAX_THREAD_ID_BYTES = 256
"""Bytes of a thread's id: room for any UUID, path or name."""

MAX_PENDING_EVENTS = 100
"""Events that wait for the reader of a stream. Beyond it the run waits, within its deadline."""

_NO_ANSWER = object()

_UNFINISHED = frozenset({RunStatus.RUNNING, RunStatus.INTERRUPTED, RunStatus.IN_DOUBT})


class BoundGraph(Generic[S]):
    """A graph that can be run; made by `CompiledGraph.bind`. Use it inside the block of its engine.

    Attributes:
        graph: The graph.
        checkpoints: Where the positions of runs are saved.
    """

    def __init__(
        self,
        graph: CompiledGraph[S],
        engine: BoundEngine,
        checkpoints: CheckpointStore | None,
        observers: tuple[Observer, ...],
    ) -> None:
        self.graph = graph
        self._engine = engine
        self._observers = observers
        own = engine.engine.checkpoints
        given = own if checkpoints is None else checkpoints
        self.checkpoints: CheckpointStore = MemoryCheckpoints() if given is None else given
        self._runs: dict[str, Run | None] = {}

    def run(
        self,
        thread_id: str,
        initial: S,
        *,
        checkpoints: CheckpointStore | None = None,
        metadata: Mapping[str, Any] | None = None,
        deadline: float | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, RunResult[S]]:
        """Run the graph from its entry; return how it ended, or why it stopped.

        Args:
            thread_id: The conversation, order or job. A thread has one run at a time; a run that was killed is resumed.
            initial: The first state.
            checkpoints: In place of those of `bind`.
            metadata: JSON-shaped; tools find it in ``ctx.metadata``.
            deadline: Absolute time on trio's clock at which the run times out. It reaches every tool.
            timeout: The same as seconds from now; the earlier of both counts.

        Raises:
            AgentError: ``THREAD_BUSY``: the thread has a run that has not ended; ``INVALID_STATE``; ``STORE_ERROR``.
            DeclarationError: `thread_id`, `metadata` or `timeout` is not valid.
            trio.Cancelled: The caller's own scope was cancelled. `resume` continues the run.
        """
        return self._run(thread_id, initial, checkpoints, metadata, _end(deadline, timeout), None)

    def stream(
        self,
        thread_id: str,
        initial: S,
        *,
        checkpoints: CheckpointStore | None = None,
        metadata: Mapping[str, Any] | None = None,
        deadline: float | None = None,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[trio.abc.ReceiveChannel[RunEvent]]:
        """Run the graph and receive its events, those of its tools included; see `run`. Leaving the block early cancels the run.

        ::

            async with bound.stream("order-1001", order) as events:
                async for event in events: ...
        """
        end = _end(deadline, timeout)
        return _stream(lambda emit: self._run(thread_id, initial, checkpoints, metadata, end, emit))

    def resume(
        self,
        thread_id: str,
        *,
        answer: Any = _NO_ANSWER,
        node: str | None = None,
        checkpoints: CheckpointStore | None = None,
        deadline: float | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, RunResult[S]]:
        """Continue the last run of a thread from its last checkpoint.

        A run that has completed is not run again: its result is returned. So is that of a run that waits for an answer, without one.

        Args:
            thread_id: The thread.
            answer: For the question of an interrupted run, JSON-shaped.
            node: The node that asked, if several did.
            checkpoints: In place of those of `bind`.
            deadline: See `run`.
            timeout: See `run`.

        Raises:
            AgentError: ``THREAD_NOT_FOUND``; ``GRAPH_CHANGED``; ``THREAD_BUSY``: this object is running it; ``FORBIDDEN``: it belongs
                to another principal or session, or to anonymous callers of another transport; ``STORE_ERROR``.
            DeclarationError: There is no question for the answer, or it has no JSON form.
        """
        return self._resume(thread_id, answer, node, checkpoints, _end(deadline, timeout), None)

    def stream_resume(
        self,
        thread_id: str,
        *,
        answer: Any = _NO_ANSWER,
        node: str | None = None,
        checkpoints: CheckpointStore | None = None,
        deadline: float | None = None,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[trio.abc.ReceiveChannel[RunEvent]]:
        """Continue a run and receive its events; see `resume` and `stream`."""
        end = _end(deadline, timeout)
        return _stream(lambda emit: self._resume(thread_id, answer, node, checkpoints, end, emit))

    async def history(
        self, thread_id: str, *, limit: int = 100, checkpoints: CheckpointStore | None = None
    ) -> list[HistoryEntry[S]]:
        """The newest checkpoints of a thread, newest first; none for an unknown thread.

        Raises:
            AgentError: ``STORE_ERROR``; ``INVALID_STATE``: one was saved by a version with another state.
        """
        store = self.checkpoints if checkpoints is None else checkpoints
        found = await read_history(store, self.graph.name, thread_id, limit=limit)
        return [await self._with_state(entry) for entry in found]

    def cancel(self, thread_id: str, cause: Cause = Cause.CALLER) -> bool:
        """Cancel the run that this object runs on a thread. False, and no effect, if there is none."""
        run = self._runs.get(thread_id)
        if run is None:
            return False
        run.cancel(cause)
        return True

    async def _with_state(self, entry: HistoryEntry[msgspec.Raw]) -> HistoryEntry[S]:
        return cast("HistoryEntry[S]", msgspec.structs.replace(entry, state=await self.graph.form.read(entry.state)))

    async def _run(
        self,
        thread_id: str,
        initial: S,
        checkpoints: CheckpointStore | None,
        metadata: Mapping[str, Any] | None,
        deadline: float,
        emit: Emit | None,
    ) -> RunResult[S]:
        _check_thread_id(thread_id)
        store = self.checkpoints if checkpoints is None else checkpoints
        state = msgspec.Raw(await self.graph.form.write(initial))
        with self._taken(thread_id):
            last = await store_value(store.latest_checkpoint, self.graph.name, thread_id)
            if last is not None and last.status in _UNFINISHED:
                raise AgentError.standard(
                    "THREAD_BUSY",
                    f"the run {last.run_id} on the thread {thread_id!r} has not ended ({last.status.value})",
                    suggested_action="Resume the thread, or use another thread_id.",
                    details={"run_id": last.run_id, "status": last.status.value},
                )
            position = Position(
                version=self.graph.version,
                cursor=Cursor(node=self.graph.layout.entry, state=state),
                owner=self._owner,
                metadata=_metadata(metadata),
            )
            run = self._made(
                store,
                thread_id,
                f"run_{secrets.token_hex(12)}",
                position,
                0 if last is None else last.number + 1,
                deadline,
                emit,
            )
            return await run.drive(resumed=False)

    async def _resume(
        self,
        thread_id: str,
        answer: Any,
        node: str | None,
        checkpoints: CheckpointStore | None,
        deadline: float,
        emit: Emit | None,
    ) -> RunResult[S]:
        store = self.checkpoints if checkpoints is None else checkpoints
        with self._taken(thread_id):
            last = await store_value(store.latest_checkpoint, self.graph.name, thread_id)
            if last is None:
                raise AgentError.standard(
                    "THREAD_NOT_FOUND", f"the graph {self.graph.name!r} has no run on the thread {thread_id!r}"
                )
            position = decode(last.document)
            self.graph.check_version(thread_id, position.version)
            if position.owner != self._owner:
                raise AgentError.standard(
                    "FORBIDDEN",
                    f"the run on the thread {thread_id!r} belongs to another principal, session or transport",
                )
            if answer is not _NO_ANSWER:
                _take_answer(position, thread_id, answer, node)
            elif last.status in (RunStatus.INTERRUPTED, RunStatus.COMPLETED):
                return await self._as_saved(last, position, emit)
            run = self._made(store, thread_id, last.run_id, position, last.number + 1, deadline, emit)
            return await run.drive(resumed=True)

    async def _as_saved(self, last: Checkpoint, position: Position, emit: Emit | None) -> RunResult[S]:
        result = RunResult(
            run_id=last.run_id,
            thread_id=last.thread_id,
            status=last.status,
            state=await self.graph.form.read(position.cursor.state),
            questions=tuple(position.questions.values()),
        )
        if emit is not None:
            run_id = last.run_id
            await emit(RunStarted(seq=0, run_id=run_id, graph=self.graph.name, thread_id=last.thread_id, resumed=True))
            await emit(RunCompleted(seq=1, run_id=run_id, result=result))
        return result

    def _made(
        self,
        store: CheckpointStore,
        thread_id: str,
        run_id: str,
        position: Position,
        number: int,
        deadline: float,
        emit: Emit | None,
    ) -> Run:
        run = self._runs[thread_id] = Run(
            self.graph,
            self._engine,
            store,
            thread_id=thread_id,
            run_id=run_id,
            position=position,
            number=number,
            deadline=deadline,
            emit=emit,
            observers=self._observers,
        )
        return run

    @property
    def _owner(self) -> Owner:
        identity = identity_of("owner", self._engine.context)
        return identity.principal, identity.session, identity.scope

    @contextlib.contextmanager
    def _taken(self, thread_id: str) -> Iterator[None]:
        if thread_id in self._runs:
            raise AgentError.standard("THREAD_BUSY", f"the thread {thread_id!r} has a run that goes on now")
        self._runs[thread_id] = None
        try:
            yield
        finally:
            del self._runs[thread_id]


@asynccontextmanager
async def _stream(run: Callable[[Emit], Awaitable[object]]) -> AsyncIterator[trio.abc.ReceiveChannel[RunEvent]]:
    send, receive = trio.open_memory_channel[RunEvent](MAX_PENDING_EVENTS)

    async def drive() -> None:
        with send:  # not `async with`: the reader's cancel would replace an error of the run
            await run(send.send)

    try:
        async with trio.open_nursery() as nursery, receive:
            nursery.start_soon(drive)
            try:
                yield receive
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


def _take_answer(position: Position, thread_id: str, answer: Any, node: str | None) -> None:
    """Move an answer to its question.

    Raises:
        DeclarationError: There is no such question, or more than one.
    """
    waiting = position.questions
    if node is None and len(waiting) == 1:
        (node,) = waiting
    if node is None or node not in waiting:
        there = ", ".join(waiting) or "none"
        raise DeclarationError(
            f"the run on the thread {thread_id!r} has no one question for this answer; nodes that have asked: {there}"
            + (" (choose one with node=...)" if len(waiting) > 1 else "")
        )
    position.answers.setdefault(node, []).append(json_copy(answer, "the answer"))
    del waiting[node]


def _check_thread_id(thread_id: object) -> None:
    if not isinstance(thread_id, str) or not 0 < len(thread_id.encode(errors="replace")) <= MAX_THREAD_ID_BYTES:
        raise DeclarationError(f"a thread_id is a text of 1-{MAX_THREAD_ID_BYTES} bytes, not {thread_id!r:.40}")


def _metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if metadata is None else json_copy(dict(metadata), "the metadata")


def _end(deadline: float | None, timeout: float | None) -> float:
    ends = [math.inf if deadline is None else deadline]
    if timeout is not None:
        if not timeout > 0:
            raise DeclarationError(f"timeout is a number of seconds above 0, not {timeout!r:.40}")
        ends.append(trio.current_time() + timeout)
    return min(ends)
