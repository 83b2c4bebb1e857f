"""Graphs of functions over one typed state, whose nodes call the tools of an engine, and which survive the death of their process.

::

    graph = StateGraph(Order).node("reserve", reserve).compile()
    async with app.open() as engine:
        run = await graph.bind(engine).run("order-1001", Order(sku="AB-12", count=2), metadata={"tenant": "acme"})

``_builder`` declares and checks a graph (``_layout``: its structure, without a loop). ``_bound`` starts and resumes runs. ``_run`` is
one run: it walks the layout, calls nodes (``_attempt``, ``_context``) and saves its position (``_position``).
"""

from .._model.checkpoint import Checkpoint, RunStatus
from ..stores.memory import MemoryCheckpoints
from ._bound import BoundGraph
from ._builder import GraphError, StateGraph
from ._compiled import CompiledGraph
from ._context import NodeContext
from ._events import CheckpointSaved, NodeCompleted, NodeStarted, NodeToolEvent, RunCompleted, RunEvent, RunStarted
from ._history import HistoryEntry, read_history
from ._layout import END
from ._merge import merge_fields
from ._observers import ObservedRun, Observer
from ._position import Doubt, Question
from ._result import RunResult
from ._tool import GraphTool

__all__ = [
    "END",
    "BoundGraph",
    "Checkpoint",
    "CheckpointSaved",
    "CompiledGraph",
    "Doubt",
    "GraphError",
    "GraphTool",
    "HistoryEntry",
    "MemoryCheckpoints",
    "NodeCompleted",
    "NodeContext",
    "NodeStarted",
    "NodeToolEvent",
    "ObservedRun",
    "Observer",
    "Question",
    "RunCompleted",
    "RunEvent",
    "RunResult",
    "RunStarted",
    "RunStatus",
    "StateGraph",
    "merge_fields",
    "read_history",
]
