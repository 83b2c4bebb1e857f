"""Defaults and examples that a schema may show: those that are taken as arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pydantic
from pydantic_core import CoreConfig, SchemaValidator, ValidationError

from .._model.error_boundary import Fault, call_foreign
from .._model.errors import AgentError
from .annotations import UnusableType
from .kind import Walk
from .messages import problems_of
from .nodes import Node, Types, object_of, parts_of, whole
from .plain_values import canonical, json_form
from .table import TABLE


def shown_defaults(types: Types) -> dict[int, Any]:
    """The JSON forms of the defaults that are taken as arguments, by the ``id`` of their nodes.

    A default that has no JSON form, or that validators of the author refuse, is not shown; it works all the same.

    Raises:
        UnusableType: A default does not fit the type of its own field.
    """
    found = [(name, node) for name, node in _defaults(types) if _is_comparable(types, node)]
    if not found:
        return {}
    _check_types(types, found)
    forms: dict[str, Any] = {}
    for index, (_, node) in enumerate(found):
        try:
            forms[_label(index)] = json_form(node["default"])
        except (TypeError, ValueError):
            continue
        if forms[_label(index)] is None and node["default"] is not None:
            del forms[_label(index)]  # a number that JSON lacks
    refused = _refused(types, found, forms)
    shown = {index for index in range(len(found)) if _label(index) in forms.keys() - refused}
    return {id(found[index][1]): forms[_label(index)] for index in shown}


def _defaults(types: Types) -> Iterator[tuple[str, Node]]:
    """Every node with a default, with the name of its field."""
    pending = [
        ("", {"type": "typed-dict", "fields": dict(types.fields)}),
        *(("", node) for node in types.definitions.values()),
    ]
    while pending:
        name, node = pending.pop()
        if node["type"] == "default":
            yield name, node
        fields: Any = node.get("fields")
        if isinstance(fields, dict):
            pending.extend((str(key), part) for key, part in fields.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # a core schema
        else:
            pending.extend((part.get("name", name), part) for part in parts_of(node))


def _is_comparable(types: Types, node: Node) -> bool:
    """True for a default that stands for a value of its type."""
    default = node.get("default", msgspec.UNSET)
    if default is msgspec.UNSET or default is pydantic.MISSING:
        return False
    # Python's "= None" without "| None": omitted, and null, give None.
    return default is not None or Walk(TABLE, types, "accept").takes_null(node["schema"])


def _label(index: int) -> str:
    return f"d{index}"


def _check_types(types: Types, found: list[tuple[str, Node]]) -> None:
    walk = Walk(TABLE, types, "convert")
    walk.is_bare = True
    converted = _with_fields(walk, found)
    problem = _errors(converted, {_label(index): node["default"] for index, (_, node) in enumerate(found)})
    errors = [error for error in problem if error["type"] != "finite_number"]
    if errors:
        path = str(errors[0]["loc"][0])
        name = found[int(path[1:])][0]
        first = problems_of(converted, object_of(converted.fields), errors, lambda at: at)[0]
        words = str(first["message"]).removeprefix(str(first["path"])).strip()
        raise UnusableType(f"the default of '{name}' does not fit its type: it {words}", "Change one of them.")


def _refused(types: Types, found: list[tuple[str, Node]], forms: Mapping[str, Any]) -> set[str]:
    """The labels of the defaults that are not taken from JSON; author's validators run, and may raise anything."""
    accepted = _with_fields(Walk(TABLE, types, "accept"), found)
    validator = _validator(accepted)
    try:
        call_foreign(validator.validate_json, canonical(dict(forms)))
    except Fault as fault:
        if isinstance(fault.origin, ValidationError):
            return {str(error["loc"][0]) for error in fault.origin.errors(include_url=False)}
    except AgentError:
        pass
    else:
        return set()
    if len(forms) == 1:
        return set(forms)
    return {label for label, form in forms.items() if _refused(types, found, {label: form})}


def _with_fields(walk: Walk, found: list[tuple[str, Node]]) -> Types:
    """Fields for the defaults, beside the rewritten definitions."""
    fields = {
        _label(index): {"type": "typed-dict-field", "schema": walk.visit(node["schema"]), "required": False}
        for index, (_, node) in enumerate(found)
    }
    return Types(fields, walk.all().definitions)


def _validator(types: Types) -> SchemaValidator:
    root = object_of(types.fields)
    return SchemaValidator(whole(root, types.definitions.values()), CoreConfig(strict=True), _use_prebuilt=False)


def _errors(types: Types, values: Mapping[str, Any]) -> list[Any]:
    try:
        call_foreign(_validator(types).validate_python, values, by_alias=True, by_name=True)
    except Fault as fault:
        if isinstance(fault.origin, ValidationError):
            return list(fault.origin.errors(include_url=False))
    except AgentError:
        pass
    return []


def check_examples(types: Types, node: Node, examples: Any) -> None:
    """Check that every example of a type is taken as an argument.

    Raises:
        UnusableType: One is not.
    """
    walk = Walk(TABLE, types, "accept")
    accepted = Types({"d0": {"type": "typed-dict-field", "schema": walk.visit(node)}}, walk.all().definitions)
    validator = _validator(accepted)
    for example in examples:
        try:
            call_foreign(validator.validate_json, canonical({"d0": json_form(example)}))
        except (Fault, AgentError, TypeError, ValueError):
            instead = "Give examples that a caller could send."
            raise UnusableType(f"the example {example!r} does not fit its type", instead) from None
