"""A graph as a tool."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .._engine.engine import BoundEngine
from .._idempotency.reservations import identity_of
from .._model.cause import Cause
from .._model.context import AgentContext
from .._model.effect import Effect
from .._model.protocols import CheckpointStore
from .._model.settlement import NotStarted
from .._model.spec import ToolSpec
from .._tools.tool_objects import schema_of

if TYPE_CHECKING:
    from ._compiled import CompiledGraph


class GraphTool:
    """Runs a graph for each call; made by `CompiledGraph.as_tool`.

    The thread of a call is derived from its ``request_id``. The engine binds the tool to itself when it opens (`EngineTool`).
    """

    def __init__(
        self,
        graph: CompiledGraph[Any],
        name: str,
        effect: Effect,
        description: str | None,
        timeout: float | None,
        checkpoints: CheckpointStore | None,
    ) -> None:
        self._graph = graph
        self._checkpoints = checkpoints
        self.spec = ToolSpec(
            name=name,
            description=description or f"Run the graph {graph.name}.",
            input_schema=graph.form.schema,
            output_schema=schema_of(graph.form.type, output=True),
            effect=effect,
            parallel_safe=True,
            timeout=timeout,
        )

    async def execute(self, ctx: AgentContext, input: dict[str, Any]) -> Any:  # noqa: A002 - the contract's name
        """Not called: `open_engine` puts the function of `bound` in its place."""
        raise NotImplementedError

    async def reconcile(self, ctx: AgentContext, arguments: dict[str, Any]) -> NotStarted:
        """An interrupted call may be repeated: its run continues from its checkpoint."""
        return NotStarted()

    def bound(self, engine: Callable[[], BoundEngine]) -> Callable[..., Any]:
        """`execute` on an engine; see `EngineTool`."""

        async def execute(ctx: AgentContext, input: dict[str, Any]) -> Any:  # noqa: A002 - as above
            is_traced = engine().engine.spans is not None
            caller = AgentContext(
                principal=ctx.principal,
                session=ctx.session,
                permissions=ctx.permissions,
                metadata=ctx.metadata,
                transport=ctx.transport,
                traceparent=None if is_traced else ctx.traceparent,  # the run's span is below that of this call
            )
            executor = engine().bind(context=caller, gone=lambda: ctx.cancellation.cause or Cause.CALLER)
            runnable = self._graph.bind(executor, checkpoints=self._checkpoints)
            thread_id = self._thread_of(ctx)
            if await runnable.history(thread_id, limit=1):
                result = await runnable.resume(thread_id, deadline=ctx.deadline)
            else:
                state = await self._graph.form.read(msgspec.json.encode(input))
                result = await runnable.run(thread_id, state, deadline=ctx.deadline)
            return msgspec.json.decode(await self._graph.form.write(result.unwrap()))

        return execute

    def _thread_of(self, ctx: AgentContext) -> str:
        if ctx.request_id is None:
            return f"tool:{ctx.execution_id}"
        identity = self.spec.name, identity_of(ctx.request_id, ctx)
        return f"tool:{hashlib.sha256(msgspec.json.encode(identity)).hexdigest()}"
