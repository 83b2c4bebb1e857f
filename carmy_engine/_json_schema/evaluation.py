"""Evaluation of a value by compiled schemas.

An evaluation is a generator. It yields each evaluation that it waits for, is sent that one's verdict, and returns its own. `run`
drives a stack of them, so the nesting of a value or of a schema never becomes recursion. Failures are yielded too, and `run` passes
them on one by one: a caller that has enough stops there.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

At = tuple[Any, str | int] | None
"""A place in the value: the place of what it is in, and its name or index there. None is the root."""


STEPS_PER_PULSE = 1_000
"""Steps of an evaluation, about a millisecond, between two calls of what can end it."""


class Failure(NamedTuple):
    """One keyword that one part of the value fails.

    Attributes:
        location: Where that part is.
        keyword: The keyword. ``false`` stands for a schema that allows nothing.
        wanted: The keyword's value; of ``required`` and ``dependentRequired`` the missing name; of ``additionalProperties`` and
            ``unevaluatedProperties`` the names that the schema has; of ``anyOf`` and ``oneOf`` how many arms fit.
    """

    location: tuple[str | int, ...]
    keyword: str
    wanted: Any = None


Evaluation = Generator["Evaluation | Failure", bool, bool]
Applicator = Callable[[Any, At, "Mode", tuple[str, ...], "Seen | None"], Evaluation]
"""A compiled keyword that applies schemas.

It takes the value, its place, the mode, the dynamic scope (the resources entered so far, outermost first), and what gathers the
evaluated parts of the value, None if no keyword asks for them.
"""


class Assertion(NamedTuple):
    """A compiled keyword that looks at the value alone."""

    keyword: str
    holds: Callable[[Any], bool]
    wanted: Any


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One compiled schema.

    Attributes:
        resource: The URI of the schema resource that it is part of.
        assertions: Decided by the value alone.
        applicators: Each with the type of the values it applies to, None for all.
        leftovers: Likewise; run last, because they apply to what the others have not evaluated.
        names: The properties it has; with leftovers, also those of the nodes that it applies to the same value.
        is_recursive: It leads back to itself. Its verdicts on containers are remembered, or a nested value could be evaluated a number
            of times that doubles with each level.
        is_leaf: It has assertions alone.
    """

    resource: str
    assertions: list[Assertion] = dataclasses.field(default_factory=list[Assertion])
    applicators: list[tuple[type | None, Applicator]] = dataclasses.field(default_factory=list[Any])
    leftovers: list[tuple[type | None, Applicator]] = dataclasses.field(default_factory=list[Any])
    names: tuple[str, ...] = ()
    is_recursive: bool = False
    is_leaf: bool = False


class Seen:
    """The parts of one object or array that schemas have evaluated (2020-12 Core, 11)."""

    __slots__ = ("indexes", "names", "upto")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.indexes = bytearray()
        """A one for each item that was evaluated by itself; not longer than the last of them."""
        self.upto = 0
        """All items before this one."""

    def add_index(self, index: int) -> None:
        """Add one item."""
        if index >= len(self.indexes):
            self.indexes.extend(bytes(index + 1 - len(self.indexes)))
        self.indexes[index] = 1

    def has_index(self, index: int) -> bool:
        """Whether one item was evaluated."""
        return index < self.upto or (index < len(self.indexes) and self.indexes[index] == 1)

    def add(self, other: Seen) -> None:
        """Add what another evaluation of the same value has seen."""
        self.names |= other.names
        self.indexes = bytearray(map(max, itertools.zip_longest(self.indexes, other.indexes, fillvalue=0)))
        self.upto = max(self.upto, other.upto)


class Mode:
    """How one evaluation goes on after a failure.

    Attributes:
        is_quiet: Return at the first failure, and report none: inside ``anyOf``, ``not`` and their like.
        quietly: The quiet mode of the same run.
        verdicts: Of recursive nodes in a dynamic scope, by the identity of the value.
    """

    __slots__ = ("is_quiet", "quietly", "verdicts")

    def __init__(self, verdicts: dict[tuple[int, tuple[str, ...]], dict[int, bool]], *, is_quiet: bool) -> None:
        self.is_quiet = is_quiet
        self.verdicts = verdicts
        self.quietly: Mode = self if is_quiet else Mode(verdicts, is_quiet=True)


def run(node: Node, value: Any, pulse: Callable[[], None] | None = None) -> Iterator[Failure]:
    """Evaluate a JSON value as a decoder returns it, and yield each failure when it is found; no failure means that it fits.

    Args:
        node: The compiled schema.
        value: The value.
        pulse: Called every `STEPS_PER_PULSE` steps; may raise to end the evaluation.
    """
    mode = Mode({}, is_quiet=False)
    stack = [evaluate(node, value, None, mode, (), None)]
    verdict = False
    starts = True
    steps = 0
    while stack:
        steps += 1
        if steps % STEPS_PER_PULSE == 0 and pulse is not None:
            pulse()
        try:
            step = next(stack[-1]) if starts else stack[-1].send(verdict)
        except StopIteration as end:
            stack.pop()
            verdict, starts = end.value, False
            continue
        if isinstance(step, Failure):
            yield step
            verdict, starts = False, False
        else:
            stack.append(step)
            starts = True


def evaluate(node: Node, value: Any, at: At, mode: Mode, scope: tuple[str, ...], seen: Seen | None) -> Evaluation:
    """The evaluation of a value by a node."""
    if node.resource not in scope:
        # The outermost resource decides a dynamic reference, so later entries of the same one change nothing.
        scope = (*scope, node.resource)
    if node.is_recursive and seen is None and value and type(value) in (dict, list):
        return _remembered(node, value, at, mode, scope)
    return _evaluated(node, value, at, mode, scope, seen)


def fits(node: Node, value: Any) -> bool:
    """Whether a value passes the assertions of a node. A leaf has nothing else."""
    for assertion in node.assertions:  # noqa: SIM110 - the loop is twice as fast as `all`
        if not assertion.holds(value):
            return False
    return True


def located(at: At) -> tuple[str | int, ...]:
    """A place as a path from the root."""
    path: list[str | int] = []
    while at is not None:
        at, part = at
        path.append(part)
    return tuple(reversed(path))


def _remembered(node: Node, value: Any, at: At, mode: Mode, scope: tuple[str, ...]) -> Evaluation:
    verdicts = mode.verdicts.setdefault((id(node), scope), {})
    verdict = verdicts.get(id(value))
    if verdict is None or not (verdict or mode.is_quiet):
        verdict = verdicts[id(value)] = yield _evaluated(node, value, at, mode, scope, None)
    return verdict


def _evaluated(node: Node, value: Any, at: At, mode: Mode, scope: tuple[str, ...], seen: Seen | None) -> Evaluation:
    does_fit = True
    for keyword, holds, wanted in node.assertions:
        if not holds(value):
            if mode.is_quiet:
                return False
            does_fit = False
            yield Failure(located(at), keyword, wanted)
    own = Seen() if node.leftovers else seen
    kind: type[Any] = value.__class__
    for of_kind, applicator in node.applicators:
        if (of_kind is None or of_kind is kind) and not (yield applicator(value, at, mode, scope, own)):
            if mode.is_quiet:
                return False
            does_fit = False
    if does_fit and node.leftovers:
        for of_kind, applicator in node.leftovers:
            if of_kind is kind and not (yield applicator(value, at, mode, scope, own)):
                if mode.is_quiet:
                    return False
                does_fit = False
        if seen is not None and own is not None:
            seen.add(own)
    return does_fit
