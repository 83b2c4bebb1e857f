"""One run: it walks the graph, and saves its position after each step."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .._engine.engine import BoundEngine
from .._model.cause import Cause
from .._model.checkpoint import Checkpoint, RunStatus
from .._model.error_boundary import Fault, as_agent_error, await_foreign, call_foreign, json_safe, raise_single
from .._model.errors import AgentError
from .._model.events import ExecutionEvent
from .._model.protocols import CheckpointStore
from ._attempt import Attempt
from ._context import NodeContext
from ._events import CheckpointSaved, NodeCompleted, NodeStarted, NodeToolEvent, RunCompleted, RunEvent, RunStarted
from ._layout import END, FanOut, Node
from ._observers import ObservedRun, Observer, entered
from ._position import Cursor, Position, encode
from ._result import RunResult
from ._saved_calls import saved_calls
from ._store_calls import store_call

if TYPE_CHECKING:
    from ._compiled import CompiledGraph

MAX_BACKOFF_SECONDS = 30.0
"""Longest wait between two attempts; longer ones are a matter for whatever resumes the run."""

MAX_NODE_THREADS = 64
"""Plain nodes that run at once, of all graphs: as many as the plain tools of an engine."""

Emit = Callable[[RunEvent], Awaitable[None]]

_limiter = trio.lowlevel.RunVar[trio.CapacityLimiter | None]("carmy_node_threads", None)


class Run:
    """One run of a graph on a thread.

    Args:
        graph: The graph.
        executor: Runs the tools, with the caller's trusted context.
        store: Keeps the checkpoints.
        thread_id: The thread.
        run_id: The run.
        position: Where it starts or goes on.
        number: The number of the next checkpoint.
        deadline: Absolute, on trio's clock.
        emit: Receives the events; None if there is no reader.
        observers: Are entered around the run and its nodes.

    Attributes:
        cause: The cause of its cancellation.
    """

    def __init__(
        self,
        graph: CompiledGraph[Any],
        executor: BoundEngine,
        store: CheckpointStore,
        *,
        thread_id: str,
        run_id: str,
        position: Position,
        number: int,
        deadline: float,
        emit: Emit | None,
        observers: tuple[Observer, ...],
    ) -> None:
        self.graph = graph
        self.executor = executor
        self.thread_id = thread_id
        self.run_id = run_id
        self.position = position
        self.cause: Cause | None = None
        self._store = store
        self._number = number
        self._deadline = deadline
        self._emit = emit
        self._observers = observers
        self._seen: ObservedRun
        self._seq = 0
        self._saving = trio.Lock()
        self._attempts: set[Attempt] = set()
        self._stopped = trio.Event()
        self._error: AgentError | None = None
        self._exception: BaseException | None = None
        self._is_lost = False

    @property
    def is_streaming(self) -> bool:
        """True if a reader receives the events."""
        return self._emit is not None

    def gone(self) -> Cause:
        """The cause for calls that are cancelled from outside."""
        return Cause.CALLER if self.cause is None else self.cause

    def cancel(self, cause: Cause) -> None:
        """Cancel the run: its tool calls first, then its nodes. The first cause stays."""
        if self.cause is None:
            self.cause = cause
            self._stopped.set()
            for attempt in tuple(self._attempts):
                attempt.cancel(cause)

    async def drive(self, *, resumed: bool) -> RunResult[Any]:
        """Run to the end, or to the next stop."""
        seen = self._seen = ObservedRun(
            graph=self.graph.name,
            thread_id=self.thread_id,
            run_id=self.run_id,
            is_resumed=resumed,
            context=self.executor.context,
        )
        if self.executor.engine.spans is not None:  # the spans of tools are below those of nodes
            self.executor = self.executor.bind(context=msgspec.structs.replace(seen.context, traceparent=None))
        with entered(partial(each.run, seen) for each in self._observers) as ended:
            if self._emit is not None:
                await self._emit(
                    RunStarted(
                        seq=self._next_seq(),
                        run_id=self.run_id,
                        graph=self.graph.name,
                        thread_id=self.thread_id,
                        resumed=resumed,
                    )
                )
            self.position.doubts.clear()
            self.position.error = None
            if await self._save(RunStatus.RUNNING, None):
                await self._walk(self.position.cursor, END)
            result = await self._ended()
            code = "EXECUTION_UNCERTAIN" if result.status is RunStatus.IN_DOUBT else None
            ended(result.status.value, code if result.error is None else result.error.code)
        if self._emit is not None:
            await self._emit(RunCompleted(seq=self._next_seq(), run_id=self.run_id, result=result))
        return result

    async def emit_tool(self, node: str, event: ExecutionEvent) -> None:
        """Send an event of a tool."""
        if self._emit is not None:
            await self._emit(NodeToolEvent(seq=self._next_seq(), run_id=self.run_id, node=node, event=event))

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq - 1

    @property
    def _is_stopping(self) -> bool:
        if self._error is not None or self.cause is not None:
            return True
        if trio.current_time() >= self._deadline:
            self.cancel(Cause.DEADLINE)
            return True
        return False

    async def _walk(self, cursor: Cursor, stop: str) -> None:
        """Walk one way up to a node, the end, or a stop."""
        layout = self.graph.layout
        while cursor.node is not None and cursor.node != stop and not self._is_stopping:
            path = cursor.node
            node = layout.nodes[path]
            if cursor.branches is None:
                if node.function is not None and not await self._visit(node, cursor):
                    return
                if cursor.node != path:
                    continue  # over an error edge
                if not await self._go_on(cursor, path, is_step=node.function is not None):
                    return
            fan_out = layout.fan_outs.get(path)
            if fan_out is not None and cursor.branches is not None and not await self._fan(cursor, fan_out):
                return

    async def _go_on(self, cursor: Cursor, path: str, *, is_step: bool) -> bool:
        """Move to what follows a node, and save that. False: the run stops."""
        layout = self.graph.layout
        if (fan_out := layout.fan_outs.get(path)) is not None:
            cursor.branches = {target: Cursor(node=target, state=cursor.state) for target in fan_out.targets}
        elif (branch := layout.branches.get(path)) is not None:
            try:
                label = call_foreign(branch.choose, await self.graph.form.read(cursor.state))
                target = branch.targets.get(str(label)) if isinstance(label, str) else None
            except (AgentError, Fault) as error:
                return self._fail(error, f"the choice after the node {path}")
            if target is None:
                return self._fail(
                    AgentError(
                        "NODE_PANIC",
                        f"the choice after the node {path} returned no label of {', '.join(branch.targets)}",
                        "internal",
                    ),
                    path,
                )
            cursor.node = None if target == END else target
        else:
            target = layout.edges.get(path, END)
            cursor.node = None if target == END else target
        cursor.error = None
        return not is_step or await self._save(RunStatus.RUNNING, path)

    async def _fan(self, cursor: Cursor, fan_out: FanOut) -> bool:
        """Walk the branches, and merge their states. False: the run stops, or a branch waits."""
        branches = cursor.branches
        assert branches is not None
        path = cursor.node
        try:
            async with trio.open_nursery() as nursery:
                for branch in branches.values():
                    nursery.start_soon(self._walk, branch, fan_out.then)
        except BaseExceptionGroup as group:
            raise_single(group)
        if self._is_stopping or any(branch.node not in (None, fan_out.then) for branch in branches.values()):
            return False
        read = self.graph.form.read
        try:
            after = {name: await read(branch.state) for name, branch in branches.items()}
            merged = call_foreign(fan_out.merge, await read(cursor.state), after)
            data = await self.graph.form.write(merged)
        except (AgentError, Fault) as error:
            return self._fail(error, f"the merge after the node {path}")
        cursor.state = msgspec.Raw(data)
        cursor.branches = None
        cursor.node = None if fan_out.then == END else fan_out.then
        return await self._save(RunStatus.RUNNING, path)

    async def _visit(self, node: Node, cursor: Cursor) -> bool:
        """Run a node to its end, with its retries. False: the run stops. Over an error edge, the cursor has moved."""
        position = self.position
        number = position.visits.get(node.path, 0) + 1
        if node.max_visits is not None and number > node.max_visits:
            message = f"the node {node.path} was to be visited more than {node.max_visits} times in one run"
            return await self._failed(node, cursor, AgentError.standard("LOOP_LIMIT", message), None)
        if node.when is not None:
            try:
                is_wanted = call_foreign(node.when, await self.graph.form.read(cursor.state))
            except (AgentError, Fault) as error:
                return self._fail(error, f"the condition of the node {node.path}")
            if not is_wanted:
                return True
        key = node.path if number == 1 else f"{node.path}#{number}"
        for count in range(1, node.retries + 2):
            outcome = await self._attempt(node, cursor, key, count)
            if isinstance(outcome, msgspec.Raw):
                cursor.state = outcome
                self._end_visit(node)
                return True
            if outcome is None:
                return False
            failure, wait, exception = outcome
            if wait is None:
                return await self._failed(node, cursor, failure, exception)
            with trio.move_on_after(min(wait, max(0.0, self._deadline - trio.current_time()))):
                await self._stopped.wait()
            if self._is_stopping:
                return False
        raise AssertionError("the last attempt has no wait after it")

    def _end_visit(self, node: Node) -> None:
        position = self.position
        position.visits[node.path] = position.visits.get(node.path, 0) + 1
        position.answers.pop(node.path, None)
        position.calls.pop(node.path, None)

    async def _attempt(
        self, node: Node, cursor: Cursor, key: str, count: int
    ) -> msgspec.Raw | tuple[AgentError, float | None, BaseException | None] | None:
        """Make one attempt at a node.

        Returns:
            The next state; an error, the wait before the next attempt, and the exception behind it; None: the run stops.
        """
        began = trio.current_time()
        limit = self._deadline if node.timeout is None else min(self._deadline, began + node.timeout)
        attempt = Attempt(limit)
        context = NodeContext(self, attempt, node.path, key, count, cursor.error)
        if self._emit is not None:
            await self._emit(NodeStarted(seq=self._next_seq(), run_id=self.run_id, node=node.path, attempt=count))
        with entered(partial(each.node, self._seen, node.path, count) for each in self._observers) as ended:
            data, raised = await self._run_node(node, cursor, attempt, context)
            error: AgentError | None = None
            exception: BaseException | None = None
            wait: float | None = None
            status, code = "failed", None
            if data is not None:
                status = "completed"
            elif attempt.doubt is not None:
                self.position.doubts[node.path] = attempt.doubt
                status, code = "in_doubt", "EXECUTION_UNCERTAIN"
            elif attempt.question is not None:
                self.position.questions[node.path] = attempt.question
                status = "interrupted"
            elif self._is_stopping and self._error is None:
                status, code = "cancelled", "TIMEOUT" if self.cause is Cause.DEADLINE else "CANCELLED"
            elif raised is None or (node.timeout is not None and trio.current_time() >= limit):
                error = AgentError.standard("TIMEOUT", f"the node {node.path} took more than {node.timeout:g} s")
                exception = raised
            else:
                error, exception = _node_error(raised, f"the node {node.path}", expose=self.graph.expose(self.executor))
            if error is not None and count <= node.retries:
                wait = min(max(node.backoff * 2 ** (count - 1), error.retry_after or 0.0), MAX_BACKOFF_SECONDS)
            if status in ("in_doubt", "interrupted"):
                self.position.calls[node.path] = saved_calls(attempt.calls)
            ended(status, code if error is None else error.code)
        if self._emit is not None:
            await self._emit(
                NodeCompleted(
                    seq=self._next_seq(),
                    run_id=self.run_id,
                    node=node.path,
                    attempt=count,
                    duration_ms=(trio.current_time() - began) * 1000,
                    ok=data is not None,
                    code=None if error is None else error.code,
                    retry_in=wait,
                )
            )
        if data is not None:
            return msgspec.Raw(data)
        return None if error is None else (error, wait, exception)

    async def _run_node(
        self, node: Node, cursor: Cursor, attempt: Attempt, context: NodeContext
    ) -> tuple[bytes | None, AgentError | Fault | None]:
        """Call the function of a node. Returns the next state as JSON, or what it raised; neither if it was cancelled."""
        self._attempts.add(attempt)
        form = self.graph.form
        data: bytes | None = None
        raised: AgentError | Fault | None = None
        try:
            with attempt.scope:
                try:
                    state = await form.read(cursor.state)
                    value = await _called(node, state, context)
                    if attempt.doubt is None and attempt.question is None:
                        data = bytes(cursor.state) if value is None else await form.write(value)
                except (AgentError, Fault) as error:
                    raised = error
        except RuntimeError as error:
            if isinstance(error.__context__, GeneratorExit):
                raise
            data, raised = None, Fault(error)  # the node left a scope open; trio closed it
        finally:
            attempt.has_ended = True
            self._attempts.discard(attempt)
        return data, raised

    async def _failed(self, node: Node, cursor: Cursor, error: AgentError, exception: BaseException | None) -> bool:
        """Take the error edge of a node, if it has one; else fail. False: the run stops."""
        target = self.graph.layout.error_edges.get(node.path)
        if target is None:
            self._exception = exception
            return self._fail(error, node.path)
        self._end_visit(node)
        cursor.node = None if target == END else target
        cursor.error = json_safe(error).info
        return await self._save(RunStatus.RUNNING, node.path)

    def _fail(self, error: AgentError | Fault, what: str) -> bool:
        """End the run with an error, the first one. Other branches stop before their next node."""
        if self._error is None:
            if isinstance(error, Fault):
                self._error, self._exception = _node_error(error, what, expose=self.graph.expose(self.executor))
            else:
                self._error = error
            self._stopped.set()
        return False

    async def _save(self, status: RunStatus, node: str | None) -> bool:
        """Save the position. False: the run stops."""
        async with self._saving:
            if self._is_lost:
                return False
            checkpoint = Checkpoint(
                graph=self.graph.name,
                thread_id=self.thread_id,
                number=self._number,
                run_id=self.run_id,
                status=status,
                node=node,
                saved_at=time.time(),
                document=encode(self.position),
            )
            problem = await store_call(self._store.save_checkpoint, checkpoint)
            if problem is not True:
                self._is_lost = True
                if not isinstance(problem, AgentError):
                    problem = AgentError.standard(
                        "THREAD_BUSY", f"another process continues the run on the thread {self.thread_id!r}"
                    )
                return self._fail(problem, "the checkpoint store")
            self._number += 1
        if self._emit is not None:
            await self._emit(
                CheckpointSaved(
                    seq=self._next_seq(), run_id=self.run_id, number=checkpoint.number, status=checkpoint.status
                )
            )
        return True

    async def _ended(self) -> RunResult[Any]:
        """The result, saved in a last checkpoint."""
        position = self.position
        error = self._error
        if error is not None:
            status = RunStatus.FAILED
        elif self.cause is Cause.DEADLINE:
            status = RunStatus.TIMED_OUT
            error = AgentError.standard("TIMEOUT", "the deadline of the run passed")
        elif self.cause is not None:
            status = RunStatus.CANCELLED
            error = AgentError.standard("CANCELLED", f"the run was cancelled ({self.cause.value})")
        elif position.doubts:
            status = RunStatus.IN_DOUBT
        elif position.questions:
            status = RunStatus.INTERRUPTED
        else:
            status = RunStatus.COMPLETED
        position.error = None if error is None else json_safe(error).info
        if not await self._save(status, None) and error is None:
            error, status = self._error, RunStatus.FAILED
        return RunResult(
            run_id=self.run_id,
            thread_id=self.thread_id,
            status=status,
            state=await self.graph.form.read(position.cursor.state),
            error=None if error is None else json_safe(error).info,
            exception=self._exception,
            cause=self.cause,
            questions=tuple(position.questions.values()),
            doubts=tuple(position.doubts.values()),
        )


async def _called(node: Node, state: Any, context: NodeContext) -> Any:
    """The value that a node returns. Raises as the error boundary does."""
    function = node.function
    assert function is not None
    args = (state, context) if node.takes_context else (state,)
    if node.is_async:
        return await await_foreign(call_foreign(function, *args))
    limiter = _limiter.get()
    if limiter is None:
        limiter = trio.CapacityLimiter(MAX_NODE_THREADS)
        _limiter.set(limiter)
    return await trio.to_thread.run_sync(lambda: call_foreign(function, *args), abandon_on_cancel=True, limiter=limiter)


def _node_error(error: AgentError | Fault, what: str, *, expose: bool) -> tuple[AgentError, BaseException]:
    found, origin = as_agent_error(error, what, expose=expose)
    if isinstance(error, AgentError) or found.code != "TOOL_PANIC":
        return found, origin
    info = msgspec.structs.replace(found.info, code="NODE_PANIC")
    return AgentError.of(info), origin
