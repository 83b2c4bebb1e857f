"""Problems in words that a model can act on. Never the value that was sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._model.errors import AgentError
from .._model.suggestions import shortened, unknown_name_message
from .._model.type_guards import is_dict, is_tuple
from .labels import ARM, NULL, TAG, VALUE
from .nodes import Node, Types
from .table import ERRORS

Location = tuple[str | int, ...]
Problem = dict[str, Any]
"""``path``, ``code``, ``message``, for an unknown argument also ``valid``: the names there are."""

MAX_PROBLEMS = 100
"""Problems that one answer lists. A list of a million wrong items must not become an answer of a hundred megabytes."""

MAX_SUGGESTIONS = 10
"""Unknown names of one answer that are compared with the valid ones, and answered with all of those. A comparison takes up to a
millisecond, and hundreds of valid names a hundred times would make an answer hundreds of times as long as its request."""

_UNKNOWN_TYPES = ("extra_forbidden", "unexpected_keyword_argument")

_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,99}")

_WORDS = {**ERRORS, "carmy_many": ("invalid", "must be valid: more than {most} problems were found")}
"""By pydantic's type of error: the engine's code, and what follows "argument 'x' "."""

_OWN_TEXT = frozenset({"value_error", "assertion_error"})
"""Raised by a validator of the tool's author, whose text was written for the caller."""

_MISMATCH = frozenset({"wrong_type", "wrong_format", "not_allowed"})
"""An arm of a union that fails at its top with one of these was not what the caller meant."""


Subject = Callable[[str], str]
"""From a path to what a sentence about it begins with."""


def subject_of(path: str) -> str:
    """``argument 'x'``."""
    return f"argument '{path}'" if path else "the arguments"


def output_subject(path: str) -> str:
    """``'x' in the output``."""
    return f"'{path}' in the output" if path else "the output"


def problems_of(
    types: Types, root: Node, errors: Sequence[Mapping[str, Any]], subject: Subject = subject_of
) -> list[Problem]:
    """Put validation errors into words, in the order of the input.

    Args:
        types: The rewritten types, to know which names there are.
        root: The node that the locations start from.
        errors: ``ValidationError.errors(...)``.
        subject: How the sentences begin.
    """
    found: list[tuple[Location, Problem]] = []
    unknown = 0
    for error in errors[: MAX_PROBLEMS * 4]:
        location: Location = error["loc"]
        if NULL in location:
            continue
        unknown += error["type"] in _UNKNOWN_TYPES
        problem = _problem(types, root, error, subject, suggests=unknown <= MAX_SUGGESTIONS)
        found.append((_without_marks(location), problem))
    return _collapsed(found, subject)[:MAX_PROBLEMS]


def invalid_arguments(problems: Sequence[Problem]) -> AgentError:
    """The error that lists problems."""
    message = "; ".join(problem["message"] for problem in problems) or "the arguments are not valid"
    return AgentError.standard("INVALID_ARGUMENTS", message, details={"problems": list(problems)})


def path_of(location: Iterable[str | int]) -> str:
    """``order.lines[2].sku``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part == "[key]" or part.startswith("\0"):
            continue
        elif _PLAIN_NAME.fullmatch(part):
            path += f".{part}" if path else part
        else:
            path += f"[{shortened(part)!r}]"
    return path


def unknown_problem(
    location: Location, valid: Sequence[str], subject: Subject = subject_of, *, suggests: bool = True
) -> Problem:
    """The problem of a name that is not known; after `MAX_SUGGESTIONS` of them without the valid names."""
    path = path_of(location)
    if not suggests:
        return {"path": path, "code": "unknown", "message": f"{subject(path)} is not known"}
    name = location[-1] if location else ""
    message = unknown_name_message(subject(path), str(name), valid, "fields" if len(location) > 1 else "arguments")
    return {"path": path, "code": "unknown", "message": message, "valid": list(valid)}


def _problem(types: Types, root: Node, error: Mapping[str, Any], subject: Subject, *, suggests: bool) -> Problem:
    kind: str = error["type"]
    location: Location = error["loc"]
    context: Mapping[str, Any] = error.get("ctx") or {}
    if kind in _UNKNOWN_TYPES:
        valid = list(dict.fromkeys(names_at(types, root, location[:-1]))) if suggests else []
        return unknown_problem(_plain(location), valid, subject, suggests=suggests)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = str(context["discriminator"]).strip("'")
        location = (*location, *(part.strip("'") for part in tag.split(" | ")[:1])) if "(" not in tag else location
    path = path_of(_plain(location))
    begin = subject(path)
    if location and location[-1] == "[key]":
        begin = f"the name '{shortened(str(location[-2]))}' in {subject(path_of(_plain(location[:-2])))}"
    if kind in _OWN_TEXT:
        text = str(context.get("error", "")).strip()
        if not text or _repeats(text, error.get("input")):
            return {"path": path, "code": "invalid", "message": f"{begin} is not valid"}
        return {"path": path, "code": "invalid", "message": f"{begin}: {text}"}
    code, words = _WORDS.get(kind, ("invalid", "is not valid"))
    try:
        said = words.format_map({name: _number(value) for name, value in context.items()})
    except KeyError:
        said = "is not valid"
    if kind in ("too_short", "too_long", "string_too_short", "string_too_long", "bytes_too_short", "bytes_too_long"):
        said = re.sub(r"\b1 (item|character|byte)s$", r"1 \1", said)
    return {"path": path, "code": code, "message": f"{begin} {said}"}


def _number(value: Any) -> Any:
    """A bound as people write it: 3 rather than 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _repeats(text: str, value: Any) -> bool:
    """True for a text that quotes the value, as those of the standard library do."""
    return isinstance(value, str) and (repr(value) in text or f'"{value}"' in text)


def _without_marks(location: Location) -> Location:
    """The location without the engine's own labels; those of the arms of unions stay."""
    kept: list[str | int] = []
    for part in location:
        if part == TAG:
            kept.pop()
        elif part not in (VALUE, NULL):
            kept.append(part)
    return tuple(kept)


def _plain(location: Location) -> Location:
    return tuple(part for part in _without_marks(location) if not (isinstance(part, str) and part.startswith(ARM)))


def _collapsed(found: Sequence[tuple[Location, Problem]], subject: Subject, base: Location = ()) -> list[Problem]:
    """One problem for a union, unless it is clear which arm was meant: then that arm's problems.

    Args:
        found: Problems, with locations below `base`.
        subject: How the sentences begin.
        base: Where the locations start.
    """
    unions: dict[Location, dict[str, list[tuple[Location, Problem]]]] = {}
    order: list[tuple[Location, Problem | None]] = []
    for location, problem in found:
        at = next((i for i, part in enumerate(location) if isinstance(part, str) and part.startswith(ARM)), None)
        if at is None:
            order.append((location, problem))
            continue
        prefix = location[:at]
        if prefix not in unions:
            order.append((prefix, None))
        arms = unions.setdefault(prefix, {})
        arms.setdefault(str(location[at]), []).append((location[at + 1 :], problem))
    done: list[Problem] = []
    for location, own in order:
        if own is None:
            done += _union_problems((*base, *location), unions[location], subject)
        else:
            done.append(own)
    return done


def _union_problems(
    prefix: Location, arms: Mapping[str, list[tuple[Location, Problem]]], subject: Subject
) -> list[Problem]:
    meant = [
        problems
        for problems in arms.values()
        if not any(rest == () and problem["code"] in _MISMATCH for rest, problem in problems)
    ]
    path = path_of(prefix)
    if len(meant) > 1:
        # Objects that say what they are by a constant: {"kind": "cat", ...}.
        tags = {
            rest: None
            for problems in meant
            for rest, problem in problems
            if problem["code"] == "not_allowed" and len(rest) == 1
        }
        untagged = [problems for problems in meant if not any(rest in tags for rest, _ in problems)]
        if not untagged and len(tags) == 1:
            messages = [problem["message"] for problems in meant for rest, problem in problems if rest in tags]
            return [_either(path_of((*prefix, *next(iter(tags)))), messages, subject)]
        meant = untagged or meant
    if len(meant) == 1:
        return _collapsed(meant[0], subject, prefix)
    nouns = list(dict.fromkeys(label.partition(":")[2] for label in arms))
    said = f"must be {' or '.join(nouns)}" if len(meant) == 0 else f"fits none of its {len(arms)} forms"
    return [{"path": path, "code": "wrong_type", "message": f"{subject(path)} {said}"}]


def _either(path: str, messages: Sequence[str], subject: Subject) -> Problem:
    """One problem for a constant that is wrong in every arm."""
    begin = f"{subject(path)} must be "
    choices = dict.fromkeys(message.removeprefix(begin).removeprefix("one of ") for message in messages)
    return {"path": path, "code": "not_allowed", "message": f"{begin}one of {', '.join(choices)}"}


def names_at(types: Types, node: Node, location: Location) -> Iterable[str]:
    """The names that the object at a location may have, by the labels of the strict schema."""
    kind = node["type"]
    if kind == "definition-ref":
        yield from names_at(types, types.definitions[node["schema_ref"]], location)
    elif kind == "chain":
        yield from names_at(types, node["steps"][0], location)
    elif kind == "union":
        for choice in node["choices"]:
            if is_tuple(choice) and location and location[0] == choice[1]:
                yield from names_at(types, choice[0], location[1:])
    elif kind == "tagged-union":
        choice = node["choices"].get(location[0]) if location else None
        if is_dict(choice):
            yield from names_at(types, choice, location[1:])
    elif kind in ("typed-dict", "model-fields", "dataclass-args"):
        yield from _names_in(types, node, location)
    elif kind == "tuple":
        if location and isinstance(location[0], int):
            items = node["items_schema"]
            yield from names_at(types, items[min(location[0], len(items) - 1)], location[1:])
    elif is_dict(node.get("items_schema")):
        yield from names_at(types, node["items_schema"], location[1:])
    elif kind == "dict":
        if "values_schema" in node:
            yield from names_at(types, node["values_schema"], location[1:])
    elif is_dict(node.get("schema")):
        yield from names_at(types, node["schema"], location)


def _names_in(types: Types, node: Node, location: Location) -> Iterable[str]:
    fields: Any = node["fields"]
    pairs = fields.items() if is_dict(fields) else [(field["name"], field) for field in fields]
    for name, field in pairs:
        for alias in _aliases(field.get("validation_alias", name)):
            if not location:
                yield alias
                break
            if alias == location[0]:
                yield from names_at(types, field["schema"], location[1:])


def _aliases(alias: Any) -> list[str]:
    """The names of a field that are plain names; paths into objects are not."""
    if isinstance(alias, str):
        return [alias]
    return [item if isinstance(item, str) else item[0] for item in alias if isinstance(item, str) or len(item) == 1]
