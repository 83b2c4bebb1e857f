"""A compiled graph: checked, drawn, and bound to an engine to be run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from .._engine.engine import BoundEngine, Engine
from .._model.effect import Effect
from .._model.errors import AgentError, DeclarationError
from .._model.host_objects import described
from .._model.protocols import CheckpointStore
from . import _drawing
from ._bound import BoundGraph
from ._layout import Layout
from ._metrics import GraphMetrics
from ._observers import Observer
from ._spans import GraphSpans
from ._state import StateForm
from ._tool import GraphTool

S = TypeVar("S")


class CompiledGraph(Generic[S]):
    """A graph without problems; made by `StateGraph.compile`. Immutable; share it.

    Attributes:
        name: Its name.
        layout: Its nodes and ways.
        form: The JSON form of its state.
        version: Identifies nodes, ways and the state's schema; every checkpoint contains it.
    """

    def __init__(self, *, name: str, layout: Layout, form: StateForm[S]) -> None:
        self.name = name
        self.layout = layout
        self.form = form
        self.version = msgspec.Raw(msgspec.json.encode([*layout.describe(), *form.describe()]))

    def bind(
        self, engine: BoundEngine, *, checkpoints: CheckpointStore | None = None, observers: Sequence[Observer] = ()
    ) -> BoundGraph[S]:
        """The graph on an engine, ready to run. Tools are called with the trusted context of the engine given.

        Args:
            engine: An open engine, or a view of one made by `bind` and `subset`.
            checkpoints: Where the positions of runs are saved; default: the store of the engine, if it can, else memory.
            observers: Are entered around runs and nodes, inside the spans and metrics of the engine.
        """
        _check_engine(engine, self.name)
        return BoundGraph(self, engine, checkpoints, (*_own_observers(engine.engine), *observers))

    def draw(self, format: Literal["mermaid", "text"] = "mermaid") -> str:  # noqa: A002 - the usual name
        """A drawing, as a Mermaid flowchart or as plain text."""
        return _drawing.text(self.layout) if format == "text" else _drawing.mermaid(self.layout)

    def as_tool(
        self,
        name: str,
        *,
        effect: Effect | Literal["none", "read", "write", "external_write", "destructive"],
        description: str | None = None,
        timeout: float | None = None,
        checkpoints: CheckpointStore | None = None,
    ) -> GraphTool:
        """The graph as a tool, for `App.add`. It takes the initial state and returns the last one.

        A call with a ``request_id`` that is sent again after its process died continues the run.

        Args:
            name: The tool's name.
            effect: The strongest effect of the tools that its nodes call.
            description: What a model reads.
            timeout: Seconds; None for the engine's.
            checkpoints: See `bind`.
        """
        return GraphTool(self, name, Effect(effect), description, timeout, checkpoints)

    def check_version(self, thread_id: str, version: msgspec.Raw) -> None:
        """Refuse a checkpoint of another version.

        Raises:
            AgentError: ``GRAPH_CHANGED``, with what differs.
        """
        if bytes(version) == bytes(self.version):
            return
        now: list[str] = msgspec.json.decode(self.version, type=list[str])
        then: list[str] = msgspec.json.decode(version, type=list[str])
        differences = [
            *(f"removed: {line}" for line in then if line not in now),
            *(f"added: {line}" for line in now if line not in then),
        ]
        if not differences:
            return  # the same nodes in another order
        raise AgentError.standard(
            "GRAPH_CHANGED",
            f"the run on the thread {thread_id!r} was saved by another version of the graph {self.name!r}:"
            f" {'; '.join(differences)}",
            suggested_action="Resume it with the version that has saved it, or start a new run on another thread.",
            details={"differences": differences},
        )

    def expose(self, executor: BoundEngine) -> bool:
        """True if errors show the type and the message of an exception (`Settings.expose_errors`)."""
        return executor.engine.settings.expose_errors

    def __repr__(self) -> str:
        return f"<CompiledGraph {self.name}: {', '.join(map(str, self.layout.nodes))}>"


def _check_engine(engine: object, name: str) -> None:
    if not isinstance(engine, BoundEngine):
        raise DeclarationError(
            f"graph {name!r}: bind takes an open engine, not {described(engine)}; write 'async with app.open() as engine:'"
        )


def _own_observers(engine: Engine) -> Iterator[Observer]:
    """The spans and metrics that the application has asked for."""
    if engine.spans is not None:
        yield GraphSpans(engine.spans)
    if engine.metrics is not None:
        yield GraphMetrics(engine.metrics)
