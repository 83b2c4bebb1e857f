"""Keywords that apply schemas to the value or to its parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .evaluation import Applicator, At, Evaluation, Failure, Mode, Node, Seen, evaluate, fits, located

Scope = tuple[str, ...]


def never(_value: Any, at: At, mode: Mode, _scope: Scope, _seen: Seen | None) -> Evaluation:
    """The schema ``false``."""
    if not mode.is_quiet:
        yield Failure(located(at), "false")
    return False


def reference(target: Node) -> Applicator:
    """``$ref``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        return evaluate(target, value, at, mode, scope, seen)

    return apply


def dynamic_reference(target: Node, candidates: Mapping[str, Node]) -> Applicator:
    """``$dynamicRef`` to one of the nodes that have the same ``$dynamicAnchor``, by their resources."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        outermost = next((candidates[uri] for uri in scope if uri in candidates), target)
        return evaluate(outermost, value, at, mode, scope, seen)

    return apply


def all_of(arms: Sequence[Node]) -> Applicator:
    """``allOf``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        does_fit = True
        for arm in arms:
            if not (yield evaluate(arm, value, at, mode, scope, seen)):
                if mode.is_quiet:
                    return False
                does_fit = False
        return does_fit

    return apply


def any_of(arms: Sequence[Node]) -> Applicator:
    """``anyOf``. Where evaluated parts count, all arms are evaluated."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        does_fit = False
        for arm in arms:
            if not fits(arm, value):
                continue
            own = None if seen is None else Seen()
            if arm.is_leaf or (yield evaluate(arm, value, at, mode.quietly, scope, own)):
                if seen is None or own is None:
                    return True
                seen.add(own)
                does_fit = True
        if not (does_fit or mode.is_quiet):
            yield Failure(located(at), "anyOf", 0)
        return does_fit

    return apply


def one_of(arms: Sequence[Node]) -> Applicator:
    """``oneOf``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        fitting = 0
        for arm in arms:
            if not fits(arm, value):
                continue
            own = None if seen is None else Seen()
            if arm.is_leaf or (yield evaluate(arm, value, at, mode.quietly, scope, own)):
                fitting += 1
                if fitting > 1:
                    break
                if seen is not None and own is not None:
                    seen.add(own)
        if fitting != 1 and not mode.is_quiet:
            yield Failure(located(at), "oneOf", fitting)
        return fitting == 1

    return apply


def not_(schema: Node) -> Applicator:
    """``not``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, _seen: Seen | None) -> Evaluation:
        if not (yield evaluate(schema, value, at, mode.quietly, scope, None)):
            return True
        if not mode.is_quiet:
            yield Failure(located(at), "not")
        return False

    return apply


def conditional(condition: Node, then: Node, otherwise: Node) -> Applicator:
    """``if``, ``then`` and ``else``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        own = None if seen is None else Seen()
        does_hold = yield evaluate(condition, value, at, mode.quietly, scope, own)
        if does_hold and seen is not None and own is not None:
            seen.add(own)
        return (yield evaluate(then if does_hold else otherwise, value, at, mode, scope, seen))

    return apply


def members(
    properties: Mapping[str, Node],
    patterns: Sequence[tuple[Callable[[str], bool], Node]],
    additional: Node | None,
    *,
    is_closed: bool,
    known: tuple[str, ...],
) -> Applicator:
    """``properties``, ``patternProperties`` and ``additionalProperties``.

    Args:
        properties: By name.
        patterns: Searched in each name.
        additional: For all other names; None leaves them alone.
        is_closed: `additional` allows nothing.
        known: The names to suggest for one that is not allowed.
    """

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        does_fit = True
        for name, part in value.items():
            own = properties.get(name)
            nodes = [] if own is None else [own]
            if patterns:
                nodes += [node for search, node in patterns if search(name)]
            if not nodes:
                if additional is None:
                    continue
                if is_closed:
                    if mode.is_quiet:
                        return False
                    does_fit = False
                    yield Failure((*located(at), name), "additionalProperties", known)
                    continue
                nodes = [additional]
            if seen is not None:
                seen.names.add(name)
            for node in nodes:
                if node.is_leaf and fits(node, part):
                    continue
                if not (yield evaluate(node, part, (at, name), mode, scope, None)):
                    if mode.is_quiet:
                        return False
                    does_fit = False
        return does_fit

    return apply


def property_names(schema: Node) -> Applicator:
    """``propertyNames``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, _seen: Seen | None) -> Evaluation:
        does_fit = True
        for name in value:
            if not (yield evaluate(schema, name, at, mode.quietly, scope, None)):
                if mode.is_quiet:
                    return False
                does_fit = False
                yield Failure((*located(at), name), "propertyNames")
        return does_fit

    return apply


def required(names: Sequence[str]) -> Applicator:
    """``required``."""

    def apply(value: Any, at: At, mode: Mode, _scope: Scope, _seen: Seen | None) -> Evaluation:
        does_fit = True
        for name in names:
            if name not in value:
                if mode.is_quiet:
                    return False
                does_fit = False
                yield Failure(located(at), "required", name)
        return does_fit

    return apply


def dependent_required(table: Mapping[str, Sequence[str]]) -> Applicator:
    """``dependentRequired``."""

    def apply(value: Any, at: At, mode: Mode, _scope: Scope, _seen: Seen | None) -> Evaluation:
        does_fit = True
        for trigger, names in table.items():
            for name in names if trigger in value else ():
                if name not in value:
                    if mode.is_quiet:
                        return False
                    does_fit = False
                    yield Failure(located(at), "dependentRequired", name)
        return does_fit

    return apply


def dependent_schemas(table: Mapping[str, Node]) -> Applicator:
    """``dependentSchemas``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        does_fit = True
        for trigger, schema in table.items():
            if trigger in value and not (yield evaluate(schema, value, at, mode, scope, seen)):
                if mode.is_quiet:
                    return False
                does_fit = False
        return does_fit

    return apply


def items(prefix: Sequence[Node], rest: Node | None) -> Applicator:
    """``prefixItems`` and ``items``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        does_fit = True
        for place, part in enumerate(value):
            node = prefix[place] if place < len(prefix) else rest
            if node is None:
                break
            if node.is_leaf and fits(node, part):
                continue
            if not (yield evaluate(node, part, (at, place), mode, scope, None)):
                if mode.is_quiet:
                    return False
                does_fit = False
        if seen is not None:
            seen.upto = max(seen.upto, sys.maxsize if rest is not None else len(prefix))
        return does_fit

    return apply


def contains(schema: Node, least: float, most: float | None) -> Applicator:
    """``contains``, ``minContains`` and ``maxContains``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        found = 0
        for place, part in enumerate(value):
            if (
                fits(schema, part)
                if schema.is_leaf
                else (yield evaluate(schema, part, (at, place), mode.quietly, scope, None))
            ):
                found += 1
                if seen is not None:
                    seen.add_index(place)
                elif most is None and found >= least:
                    break
        keyword = "contains" if found < least else "maxContains" if most is not None and found > most else None
        if keyword is not None and not mode.is_quiet:
            yield Failure(located(at), keyword, least if keyword == "contains" else most)
        return keyword is None

    return apply


def unevaluated_properties(owner: Node, schema: Node, *, is_closed: bool) -> Applicator:
    """``unevaluatedProperties``.

    Args:
        owner: The node that has the keyword.
        schema: For the names that no other keyword has evaluated.
        is_closed: `schema` allows nothing.
    """

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        assert seen is not None
        does_fit = True
        for name, part in value.items():
            if name in seen.names:
                continue
            seen.names.add(name)
            if is_closed:
                if not mode.is_quiet:
                    yield Failure((*located(at), name), "unevaluatedProperties", owner.names)
            elif (yield evaluate(schema, part, (at, name), mode, scope, None)):
                continue
            if mode.is_quiet:
                return False
            does_fit = False
        return does_fit

    return apply


def unevaluated_items(schema: Node) -> Applicator:
    """``unevaluatedItems``."""

    def apply(value: Any, at: At, mode: Mode, scope: Scope, seen: Seen | None) -> Evaluation:
        assert seen is not None
        does_fit = True
        for place in range(seen.upto, len(value)):
            if not seen.has_index(place) and not (yield evaluate(schema, value[place], (at, place), mode, scope, None)):
                if mode.is_quiet:
                    return False
                does_fit = False
        seen.upto = sys.maxsize
        return does_fit

    return apply
