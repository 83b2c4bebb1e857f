"""The structure of a compiled graph: nodes and the ways between them. No function here runs a node."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

END = "__end__"
"""The target of an edge that ends the run. A node without an edge ends it as well."""

Merge = Callable[[Any, Mapping[str, Any]], Any]
"""The state before a fan-out, and the state at the end of each branch by its first node → the state after it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node.

    Attributes:
        path: Its name, below the names of the subgraphs around it: ``triage/lookup``.
        function: The foreign function; None for the entry of a subgraph, which does nothing.
        is_async: False: the function runs in a worker thread.
        takes_context: The function has a second parameter.
        timeout: Seconds of one attempt; None for no limit of its own.
        retries: Attempts after the first one.
        backoff: Seconds before the second attempt; each further wait is twice as long.
        when: Skips the node if it returns False for the state.
        max_visits: The most visits in one run.
    """

    path: str
    function: Callable[..., Any] | None = None
    is_async: bool = True
    takes_context: bool = False
    timeout: float | None = None
    retries: int = 0
    backoff: float = 0.0
    when: Callable[[Any], object] | None = None
    max_visits: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """A choice of the next node.

    Attributes:
        choose: The foreign function: the state → a label.
        targets: The nodes by label.
    """

    choose: Callable[[Any], object]
    targets: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class FanOut:
    """Several ways that are walked at once.

    Attributes:
        targets: The first nodes of the branches.
        then: The node after all of them; `END` ends the run.
        merge: Makes one state of theirs.
    """

    targets: tuple[str, ...]
    then: str
    merge: Merge


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All nodes and ways.

    Attributes:
        entry: The first node.
        nodes: By path.
        edges: The next node.
        branches: The choice of the next node.
        fan_outs: The ways that are walked at once.
        error_edges: The node after a failure.
    """

    entry: str
    nodes: Mapping[str, Node]
    edges: Mapping[str, str]
    branches: Mapping[str, Branch]
    fan_outs: Mapping[str, FanOut]
    error_edges: Mapping[str, str]

    def ways(self, path: str) -> Iterator[tuple[str, str]]:
        """Every way out of a node, as its target and its label."""
        if path in self.edges:
            yield self.edges[path], ""
        if path in self.branches:
            for label, target in self.branches[path].targets.items():
                yield target, label
        if path in self.fan_outs:
            for target in self.fan_outs[path].targets:
                yield target, "all"
        if path in self.error_edges:
            yield self.error_edges[path], "error"

    def reach(self, start: str, stop: str = END) -> set[str]:
        """The nodes that can be reached from one, itself included, without passing `stop`."""
        found: set[str] = set()
        pending = [start]
        while pending:
            path = pending.pop()
            if path in (END, stop) or path in found or path not in self.nodes:
                continue
            found.add(path)
            pending += [target for target, _ in self.ways(path)]
            if path in self.fan_outs:
                pending.append(self.fan_outs[path].then)
        return found

    def describe(self) -> Iterator[str]:
        """One line for each node and each way: two versions of a graph are the same if these lines are."""
        yield f"entry {self.entry}"
        for path in self.nodes:
            yield f"node {path}"
            for target, label in self.ways(path):
                yield f"edge {path} -> {target}" + (f" ({label})" if label else "")
            if path in self.fan_outs:
                yield f"join {path} -> {self.fan_outs[path].then}"


def problems_of(layout: Layout) -> Iterator[str]:
    """Everything that is wrong with a layout."""
    known = {*layout.nodes, END}
    for path in layout.nodes:
        targets = [*layout.ways(path)]
        if path in layout.fan_outs:
            targets.append((layout.fan_outs[path].then, "join"))
        for target, label in targets:
            if target not in known:
                yield f"{path} -> {target}{f' ({label})' if label else ''}: there is no node {target!r}"
        ways = [name for name in ("edges", "branches", "fan_outs") if path in getattr(layout, name)]
        if len(ways) > 1:
            yield f"{path}: it has more than one of edge, branch and fan_out; a node has one way on"
    reached = layout.reach(layout.entry)
    for path in layout.nodes:
        if path not in reached:
            yield f"{path}: no way leads from {layout.entry} to this node"
    for loop in _loops(layout):
        if all(layout.nodes[path].max_visits is None for path in loop):
            shown = " -> ".join([*loop, loop[0]])
            yield f"{shown}: this loop has no limit; give one of its nodes max_visits=..."
    yield from _shared_branches(layout)


def _shared_branches(layout: Layout) -> Iterator[str]:
    for source, fan_out in layout.fan_outs.items():
        seen: dict[str, str] = {}
        for target in fan_out.targets:
            for path in sorted(layout.reach(target, fan_out.then)):
                if path == source:
                    yield f"{source}: the branch {target} of its fan_out leads back to it before {fan_out.then}"
                elif path in seen:
                    yield f"{path}: it is in two branches of the fan_out of {source}, {seen[path]} and {target}"
                seen.setdefault(path, target)


def _loops(layout: Layout) -> Iterator[tuple[str, ...]]:
    """The shortest loop through each node that is in one without a limited node, each set of nodes once.

    Nodes with a limit are left out first: what remains must have no loop.
    """
    free = {path for path, node in layout.nodes.items() if node.max_visits is None}
    following = {path: {target for target, _ in layout.ways(path) if target in free} for path in free}
    for path in free & layout.fan_outs.keys():
        following[path] |= {layout.fan_outs[path].then} & free
    found: set[frozenset[str]] = set()
    for start in layout.nodes:
        if start not in free:
            continue
        before: dict[str, str] = {}
        queue = [start]
        for path in queue:
            if start in following[path]:
                loop = [path]
                while loop[-1] != start:
                    loop.append(before[loop[-1]])
                if frozenset(loop) not in found:
                    found.add(frozenset(loop))
                    yield tuple(reversed(loop))
                break
            for target in sorted(following[path] - before.keys() - {start}):
                before[target] = path
                queue.append(target)
