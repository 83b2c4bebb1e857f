"""Declaring a graph, and compiling it: every problem of a graph is reported at once."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from .._model.errors import CarmyError, DeclarationError
from .._model.host_objects import described, is_async
from ._compiled import CompiledGraph
from ._layout import END, Branch, FanOut, Layout, Merge, Node, problems_of
from ._state import StateForm

S = TypeVar("S")

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_EXIT = "$end"


class GraphError(CarmyError, TypeError):
    """A graph cannot be compiled.

    Attributes:
        problems: All problems, not only the first.
    """

    def __init__(self, graph: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"graph {graph!r}: {count} problem{'s' if count != 1 else ''}:\n{lines}")


@dataclasses.dataclass(slots=True)
class _Parts:
    """The nodes and ways of a graph in which those of its subgraphs are."""

    nodes: dict[str, Node] = dataclasses.field(default_factory=dict[str, Node])
    edges: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    branches: dict[str, Branch] = dataclasses.field(default_factory=dict[str, Branch])
    fan_outs: dict[str, FanOut] = dataclasses.field(default_factory=dict[str, FanOut])
    error_edges: dict[str, str] = dataclasses.field(default_factory=dict[str, str])

    def layout(self, entry: str) -> Layout:
        return Layout(
            entry=entry,
            nodes=self.nodes,
            edges=self.edges,
            branches=self.branches,
            fan_outs=self.fan_outs,
            error_edges=self.error_edges,
        )


class StateGraph(Generic[S]):
    """A graph of functions over one state.

    ::

        graph = (
            StateGraph(Order)
            .node("reserve", reserve, timeout=10, retries=2)
            .node("confirm", confirm)
            .edge("reserve", "confirm")
            .compile()
        )

    The first node is the entry. A node is a function ``(state)`` or ``(state, ctx)``, async or plain, that returns the next state, or
    None to leave it as it is. A plain one runs in a worker thread.

    Args:
        state: A pydantic model, a dataclass, a TypedDict or a msgspec Struct. It has a JSON form, in which it is saved.
        name: Of the graph; default: the name of `state`.
    """

    def __init__(self, state: type[S], *, name: str | None = None) -> None:
        self.state = state
        self.name = str(getattr(state, "__name__", "graph")) if name is None else name
        self._names: list[str] = []
        self._own = _Parts()
        self._subgraphs: dict[str, StateGraph[Any]] = {}
        self._ways: set[tuple[str, str]] = set()
        self._problems: list[str] = []

    def node(
        self,
        name: str,
        function: Callable[..., Any] | StateGraph[Any],
        *,
        timeout: float | None = None,
        retries: int = 0,
        backoff: float = 0.1,
        when: Callable[[S], object] | None = None,
        max_visits: int | None = None,
    ) -> Self:
        """Add a node.

        Args:
            name: 1-64 ASCII letters, digits, ``_``, ``-`` and ``.``.
            function: The function, or another graph over the same state. Its nodes become nodes of this one, below `name`.
            timeout: Seconds of one attempt. The tools that the node calls have no more time than this.
            retries: Attempts after a failed one.
            backoff: Seconds before the second attempt; each further wait is twice as long, up to 30 seconds.
            when: The node is skipped if this returns False for the state. Must not block.
            max_visits: The most visits in one run; more are ``LOOP_LIMIT``. Every loop needs it at one of its nodes.
        """
        if name in self._names:
            self._problems.append(f"{name}: two nodes have this name")
            return self
        if _NAME.fullmatch(name) is None:
            self._problems.append(f"{name!r}: the name of a node is 1-64 of A-Z a-z 0-9 _ - .")
        self._names.append(name)
        for what, value, least in (("timeout", timeout, 0.0), ("backoff", backoff, -1.0)):
            if value is not None and not (math.isfinite(value) and value > least):
                self._problems.append(f"{name}: {what} must be a number of seconds")
        for what, count, least in (("retries", retries, 0), ("max_visits", max_visits, 1)):
            if count is not None and count < least:
                self._problems.append(f"{name}: {what} must be a whole number, at least {least:g}")
        if isinstance(function, StateGraph):
            if timeout is not None or retries or when is not None or max_visits is not None:
                self._problems.append(f"{name}: it is a graph; set timeout, retries, when and max_visits at its nodes")
            self._subgraphs[name] = function
            self._own.nodes[name] = Node(path=name)
            return self
        self._own.nodes[name] = Node(
            path=name,
            function=function,
            is_async=is_async(function),
            takes_context=self._takes_context(name, function),
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            when=when,
            max_visits=max_visits,
        )
        return self

    def edge(self, source: str, target: str) -> Self:
        """Go from one node to another; the target `END` ends the run."""
        self._own.edges[source] = target
        return self._add_way(source, "edge")

    def branch(self, source: str, choose: Callable[[S], object], targets: Mapping[str, str] | Sequence[str]) -> Self:
        """Choose the next node by the state.

        Args:
            source: The node before the choice.
            choose: A plain function from the state to a label. Must not block.
            targets: The nodes by label; or nodes, whose labels are their names.
        """
        labels = dict(targets) if isinstance(targets, Mapping) else {target: target for target in targets}
        self._own.branches[source] = Branch(choose, labels)
        return self._add_way(source, "branch")

    def fan_out(self, source: str, targets: Sequence[str], *, merge: Merge, then: str = END) -> Self:
        """Walk several ways at once, each with a state of its own, and merge their states.

        Args:
            source: The node before them.
            targets: The first nodes of the branches. A branch ends before `then`, or where no way leads on.
            merge: A plain function of the state before, and of the states at the ends of the branches by first node; returns the
                state after them. `merge_fields` takes the fields that each branch has changed.
            then: The node after all of them; `END` ends the run.
        """
        if len(set(targets)) < 2:
            self._problems.append(f"{source}: a fan_out needs two different targets or more")
        self._own.fan_outs[source] = FanOut(tuple(targets), then, merge)
        return self._add_way(source, "fan_out")

    def on_error(self, source: str, target: str) -> Self:
        """Make a node fallible: when its last attempt fails, go to another node, with the state before the failed one.

        The target finds the error in ``ctx.error``.
        """
        self._own.error_edges[source] = target
        return self._add_way(source, "on_error")

    def compile(self) -> CompiledGraph[S]:
        """Check the graph.

        Raises:
            GraphError: Lists every problem: unreachable nodes, missing targets, loops without a limit, a state without a JSON form ...
        """
        problems = [*self._all_problems("", ())]
        form: StateForm[S] | None = None
        try:
            form = StateForm(self.state)
        except DeclarationError as problem:
            problems.append(f"state: {problem}")
        layout = Layout(entry="", nodes={}, edges={}, branches={}, fan_outs={}, error_edges={})
        if not self._names:
            problems.append("it has no node")
        else:
            layout = self._resolved("", END)
            problems += problems_of(layout)
        if problems or form is None:
            raise GraphError(self.name, [*dict.fromkeys(problems)])
        return CompiledGraph(name=self.name, layout=layout, form=form)

    def _add_way(self, source: str, way: str) -> Self:
        if (source, way) in self._ways:
            self._problems.append(f"{source}: it has two of {way}")
        self._ways.add((source, way))
        return self

    def _takes_context(self, name: str, function: Callable[..., Any]) -> bool:
        if not callable(function):
            self._problems.append(f"{name}: {described(function)} is neither a function nor a StateGraph")
            return False
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):
            return False
        positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        is_open = any(each.kind is each.VAR_POSITIONAL for each in parameters)
        needed = [each for each in positional if each.default is each.empty]
        is_keyword_needed = any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters)
        if not (positional or is_open) or len(needed) > 2 or is_keyword_needed:
            self._problems.append(f"{name}: {described(function)} must take (state) or (state, ctx)")
            return False
        return len(needed) == 2

    def _all_problems(self, prefix: str, around: tuple[StateGraph[Any], ...]) -> Iterator[str]:
        """The problems of the declarations, those of subgraphs included."""
        for problem in self._problems:
            yield f"{prefix}{problem}"
        ways = (self._own.edges, self._own.branches, self._own.fan_outs, self._own.error_edges)
        for source in dict.fromkeys(source for way in ways for source in way):
            if source not in self._names:
                yield f"{prefix}{source}: there is no node {source!r}, from which a way leads on"
        for name, graph in self._subgraphs.items():
            if graph is self or graph in around:
                yield f"{prefix}{name}: the graph contains itself"
            elif graph.state is not self.state:
                yield (
                    f"{prefix}{name}: its state is {graph.state.__name__} and that of this graph is {self.state.__name__};"
                    " call it as a tool (as_tool) instead"
                )
            elif not graph._names:  # noqa: SLF001 - of this class
                yield f"{prefix}{name}: it has no node"
            else:
                yield from graph._all_problems(f"{prefix}{name}/", (*around, self))  # noqa: SLF001 - of this class

    def _resolved(self, prefix: str, end: str, around: tuple[StateGraph[Any], ...] = ()) -> Layout:
        """The layout, with the nodes of subgraphs in place of them.

        Args:
            prefix: Before each name.
            end: The target in place of `END`.
            around: The graphs around this one.
        """
        parts = self._own
        plain = parts.layout(self._names[0])
        thens: dict[str, str] = {}

        def inner(path: str) -> str | None:
            """The innermost fan-out with a node in one of its branches."""
            found: tuple[int, str] | None = None
            for source, fan_out in parts.fan_outs.items():
                for target in fan_out.targets:
                    reached = plain.reach(target, fan_out.then)
                    if path in reached and (found is None or len(reached) < found[0]):
                        found = len(reached), source
            return None if found is None else found[1]

        def end_of(path: str, seen: frozenset[str] = frozenset()) -> str:
            """The target of a way that ends at a node: the join of the fan-out around it, or the end of the graph."""
            source = inner(path)
            if source is None or source in seen:
                return end
            if source not in thens:
                then = parts.fan_outs[source].then
                thens[source] = end_of(source, seen | {source}) if then == END else prefix + then
            return thens[source]

        made = _Parts()
        for name in self._names:
            path = prefix + name
            made.nodes[path] = dataclasses.replace(parts.nodes[name], path=path)
            out = path
            graph = self._subgraphs.get(name)
            inlined: set[str] = set()
            if graph is not None and graph is not self and graph not in around and graph._names:  # noqa: SLF001 - of this class
                out = f"{path}/{_EXIT}"
                below = graph._resolved(f"{path}/", out, (*around, self))  # noqa: SLF001 - of this class
                inlined = set(below.nodes)
                for field in ("nodes", "edges", "branches", "fan_outs", "error_edges"):
                    getattr(made, field).update(getattr(below, field))
                made.edges[path] = below.entry
                made.nodes[out] = Node(path=out)

            def at(target: str, name: str = name) -> str:
                return end_of(name) if target == END else prefix + target

            if name in parts.branches:
                branch = parts.branches[name]
                made.branches[out] = Branch(
                    branch.choose, {label: at(target) for label, target in branch.targets.items()}
                )
            if name in parts.fan_outs:
                fan_out = parts.fan_outs[name]
                made.fan_outs[out] = FanOut(
                    tuple(prefix + target for target in fan_out.targets), at(fan_out.then), fan_out.merge
                )
            if name in parts.edges:
                made.edges[out] = at(parts.edges[name])
            elif name not in parts.branches and name not in parts.fan_outs and at(END) != END:
                made.edges[out] = at(END)
            if name in parts.error_edges:
                for fallible in inlined or {path}:
                    made.error_edges.setdefault(fallible, at(parts.error_edges[name]))
        return made.layout(prefix + self._names[0])
