"""The context of a node: its run, and the door to the tools."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload
from urllib.parse import quote

import msgspec
import trio

from .._engine.engine import BoundEngine
from .._execution.model_calls import ModelCall, ModelResult, request_id_of, request_of, run_side_by_side
from .._model.context import AgentContext
from .._model.error_info import ErrorInfo
from .._model.errors import ClosedError
from .._model.events import ExecutionCompleted
from .._model.ids import MAX_REQUEST_ID_BYTES
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._model.run import RunContext
from ._attempt import Attempt
from ._position import Doubt, Question, json_copy

if TYPE_CHECKING:
    from ._run import Run

P = ParamSpec("P")
R = TypeVar("R")


class NodeContext:
    """What a node is given beside the state.

    Tool calls have the run context of the node and a ``request_id`` that is derived from the thread, the run, the node and the number of
    the call. A node that is retried or resumed must make the same calls in the same order: those that have ended before are replayed.
    Calls that run at the same time have names: ``ctx.step("mail").call(send, ...)``.

    Attributes:
        thread_id: The thread.
        run_id: The run.
        node: The path of the node.
        attempt: The number of the attempt, from 1.
        metadata: Of the run.
        error: The error that led here over an error edge.
    """

    def __init__(self, run: Run, attempt: Attempt, node: str, key: str, number: int, error: ErrorInfo | None) -> None:
        self._run = run
        self._attempt = attempt
        self._key = key
        self._step = ""
        self._caller_id: str | None = None
        self._call_id: str | None = None
        self.thread_id = run.thread_id
        self.run_id = run.run_id
        self.node = node
        self.attempt = number
        self.metadata: Mapping[str, Any] = run.position.metadata
        self.error = error

    def remaining(self) -> float:
        """Seconds until the node times out or the deadline of the run; infinite without one."""
        return self._attempt.remaining()

    def step(self, name: str) -> Self:
        """The same context, whose calls are counted by themselves under a name.

        Args:
            name: Different for all calls of the node that may run at the same time.
        """
        other = copy.copy(self)
        other._step = f"{self._step}{name}."  # noqa: SLF001 - another object of this class
        return other

    def calling_as(self, caller_id: str, call_id: str | None = None) -> Self:
        """The same context with a caller, such as the name of an agent, and the model's id of the call."""
        other = copy.copy(self)
        other._caller_id, other._call_id = caller_id, call_id  # noqa: SLF001 - another object of this class
        return other

    @overload
    async def call(self, tool: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def call(
        self, tool: Callable[Concatenate[AgentContext, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def call(self, tool: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def call(
        self, tool: Callable[Concatenate[AgentContext, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    async def call(self, tool: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a tool like a function; see `BoundEngine.call`. The value is read from JSON, so that a replay gives the same.

        Raises:
            AgentError: What the execution ended with.
            ClosedError: The node has ended.
        """
        executor = self._executor()
        request, read = executor.typed_request(tool, args, kwargs)
        return await read(await self._execute(executor, request))

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run a request. A ``request_id`` in it is the name of the step, in place of its number.

        An outcome that is not known stops the run as ``in_doubt`` and does not return.
        """
        return await self._execute(self._executor(), request)

    async def dispatch(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, only: Iterable[str] | None = None
    ) -> ExecutionResult:
        """Run a tool by name; see `execute`.

        Args:
            name: The tool.
            arguments: Its arguments.
            only: The names of a registry's tools; all others are not permitted.
        """
        executor = self._executor()
        if only is not None:
            executor = executor.subset(*only)
        return await self._execute(executor, ExecutionRequest(tool=name, arguments=arguments))

    async def run_calls(self, calls: Iterable[ModelCall]) -> list[ModelResult]:
        """Run the calls of one model turn; see `BoundEngine.run_calls`. Their identity is the run and the ``call_id``.

        They have the time of the node, and stop the run if an outcome is not known, as those of `execute`.
        """

        async def run_one(call: ModelCall, repeated: int) -> ExecutionResult:
            executor = self._executor(call.call_id)
            if call.problem is not None:  # the engine refuses and records it
                (refused,) = await executor.run_calls([call])
                return refused.result
            request_id = request_id_of(call, thread_id=self.thread_id, run_id=self.run_id, repeated=repeated)
            await self._check_time()
            return await self._execute_as(executor, request_of(call, request_id))

        return await run_side_by_side([*calls], run_one, self._run.executor.takes_turns)

    async def interrupt(self, question: Any) -> Any:
        """Ask a person, and return the answer.

        Without an answer, the run is saved and ends as ``interrupted``; this does not return then. `BoundGraph.resume` with an answer
        runs the node again from its beginning: calls that had ended are replayed, and this returns the answer.

        Args:
            question: JSON-shaped.

        Raises:
            DeclarationError: The question has no JSON form.
            ClosedError: The node has ended.
        """
        await self._check_time()
        number = self._attempt.next_number("?")
        answers = self._run.position.answers.get(self.node, [])
        if number <= len(answers):
            return answers[number - 1]
        value = json_copy(question, f"the question of the node {self.node}")
        if self._attempt.question is None:
            self._attempt.question = Question(node=self.node, value=value)
        return await self._attempt.stop_and_wait()

    def _executor(self, call_id: str | None = None) -> BoundEngine:
        run = self._run
        executor = run.executor.bind(
            run=RunContext(
                thread_id=run.thread_id,
                run_id=run.run_id,
                node_path=self.node,
                attempt=self.attempt,
                metadata=run.position.metadata,
                caller_id=self._caller_id or run.graph.name,
            ),
            gone=run.gone,
        )
        call_id = self._call_id if call_id is None else call_id
        if call_id is not None:
            executor = executor.bind(context=msgspec.structs.replace(executor.context, call_id=call_id))
        return executor

    async def _execute(self, executor: BoundEngine, request: ExecutionRequest) -> ExecutionResult:
        await self._check_time()
        step = request.request_id or str(self._attempt.next_number(self._step))
        request_id = self._request_id(self._step + step)
        return await self._execute_as(
            executor, msgspec.structs.replace(request, request_id=request_id, on_running="wait")
        )

    async def _execute_as(self, executor: BoundEngine, request: ExecutionRequest) -> ExecutionResult:
        """Run a request with a derived ``request_id``, within the node's time."""
        request_id = str(request.request_id)
        saved = self._run.position.calls.get(self.node, {}).get(request_id)
        result = None if saved is None else saved.replay(request)
        if result is None:
            remaining = self.remaining() * 1000
            limited = request
            if remaining < 1e12:
                limit = remaining if request.timeout_ms is None else min(request.timeout_ms, remaining)
                limited = msgspec.structs.replace(request, timeout_ms=limit)
            with self._attempt.calling(executor):
                result = await self._result(executor, limited)
            await self._check_doubt(result, request.tool, request_id)
            if self._attempt.stopping and result.error is not None:  # the node must not take the cut for an answer
                await self._attempt.stop_and_wait()
        self._attempt.calls[request_id] = request, result
        return result

    async def _result(self, executor: BoundEngine, request: ExecutionRequest) -> ExecutionResult:
        if not self._run.is_streaming:
            return await executor.execute(request)
        async with executor.stream(request) as events:
            async for event in events:
                if isinstance(event, ExecutionCompleted):
                    return event.result
                if event.kind.startswith("tool."):
                    await self._run.emit_tool(self.node, event)
        raise AssertionError("the last event of an execution carries its result")

    async def _check_time(self) -> None:
        """Wait for the cancel of the node if it is due.

        Raises:
            ClosedError: The node has ended.
        """
        if self._attempt.has_ended:
            raise ClosedError(f"the context of the node {self.node} was used after the node had ended")
        if self._attempt.stopping or self.remaining() <= 0:
            await self._attempt.stop_and_wait() if self._attempt.stopping else await trio.sleep_forever()

    async def _check_doubt(self, result: ExecutionResult, tool: str, request_id: str) -> None:
        """Stop the run if the outcome of a call is not known. The node cannot catch that."""
        if result.error is None or result.error.code != "EXECUTION_UNCERTAIN":
            return
        details = result.error.details or {}
        if self._attempt.doubt is None:
            self._attempt.doubt = Doubt(
                node=self.node,
                tool=tool,
                execution_id=details.get("execution_id"),
                request_id=request_id,
                state=str(details.get("state")),
            )
        await self._attempt.stop_and_wait()

    def _request_id(self, step: str) -> str:
        parts = (self.thread_id, self.run_id, self._key, step)
        whole = "graph:" + "/".join(quote(part, safe=":.,@+=$#", errors="surrogatepass") for part in parts)
        if len(whole) <= MAX_REQUEST_ID_BYTES:
            return whole
        return f"graph:sha256:{hashlib.sha256(whole.encode()).hexdigest()}"
