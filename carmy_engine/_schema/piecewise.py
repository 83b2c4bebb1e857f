"""Validation of long JSON in pieces: no call of the parser gets more than one piece, so none holds the event loop for long."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from pydantic_core import ValidationError, core_schema

from .._model import json_outline
from .._model.json_outline import Container, Part, outline
from .._model.json_pieces import key_of, run_of
from .._model.type_guards import is_dict, is_list
from .bounded_rules import Bounded
from .checkpoints import SKIP, WANTED, Collector, errors_of
from .nodes import Node, Types, arm, arms_of, without
from .work import MAX_FAILURES, Work, current

Place = tuple[str | int, ...]
Validate = Callable[[bytes], Any]

_FIELDS = ("typed-dict", "model-fields", "dataclass-args")
_LISTS = ("list", "set", "frozenset", "tuple")
_NO_CONTAINERS = frozenset(
    {
        "none", "bool", "int", "float", "decimal", "str", "bytes", "date", "time", "datetime", "timedelta", "literal", "enum",
        "uuid", "url", "multi-host-url",
    }
)  # fmt: skip
_ONLY_ARRAYS = frozenset({*_LISTS, "deque"})
_ONLY_OBJECTS = frozenset(
    {"dict", "frozendict", "ordered-dict", "counter", "model", "dataclass", "typed-dict", "tagged-union"}
)

_SLOT = "\0" + secrets.token_hex(16)
"""Stands for a value that has been read in pieces. No caller can guess it."""

_FREED_AT_ONCE = 1024
"""Items of a list or dict that are freed in one step."""

_names = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])


class Piecewise:
    """Validates documents of some types in pieces.

    Lists, dicts and objects with known fields are read in pieces, at any depth. What stands behind a function of the type's
    author, or behind a union of several types that a long value could have, is one piece.
    """

    def __init__(self, types: Types) -> None:
        """Prepare it.

        Args:
            types: The rewritten types, from `argument_rules` or `output_rules`.
        """
        self._types = types
        self._rules = Bounded(types)
        self.recursive_arms = self._rules.recursive_arms
        self._validators: dict[tuple[int, str], Validate] = {}

    def read(self, root: Node, data: bytes, work: Work) -> tuple[Any, list[Mapping[str, Any]]]:
        """Validate JSON bytes.

        Args:
            root: The type of the whole document.
            data: The document.
            work: The current work.

        Returns:
            The value, and the errors in the form of ``ValidationError.errors()``; the value is valid if there are none.

        Raises:
            Abandoned: See there.
            TooCostly: See there.
        """
        document = _Document(self, data, work)
        try:
            try:
                container = outline(data, work.pause, json_outline.PIECE_BYTES)
            except ValueError:
                container = None  # no JSON: the validator reports it
            value = document.whole(root, data) if container is None else document.read(root, container)
        except BaseException:
            document.free()
            raise
        if work.exhausted and not document.errors:
            document.errors.append({"type": "carmy_many", "loc": (), "ctx": {"most": work.failures}})
        if document.errors:
            value = None
            document.free()
        return value, document.errors

    def resolve(self, node: Node) -> Node:
        """See `Types.resolve`."""
        return self._types.resolve(node)

    def validator(self, node: Node, role: str = "whole") -> Validate:
        """The validator of pieces of a type; it is made once.

        Args:
            node: The type of the whole value.
            role: ``whole``; ``items`` or ``members`` for runs; ``names`` for the names of a dict; ``slots`` for an object whose
                long values are in `Work.slots`.
        """
        key = (id(node), role)
        if key not in self._validators:
            if role == "items":
                stops = node.get("fail_fast", False)  # at its first wrong item
                node = {"type": "list", "items_schema": _item_of(node), "strict": False, "fail_fast": stops}
            elif role in ("members", "names"):
                node = without(node, "min_length", "max_length")
                node = node if role == "members" else {**node, "values_schema": _ANY}
            self._validators[key] = self._rules.validator(node, _with_slots if role == "slots" else None)
        return self._validators[key]

    def arm(self, node: Node, *, is_object: bool) -> tuple[Node, str] | None:
        """The only arm of a union that can take an array, or an object, with its label; None if there are several."""
        found = [choice for choice in node["choices"] if self.may_take(arm(choice), is_object=is_object)]
        if len(found) != 1 or is_dict(found[0]):
            return None
        only, label = found[0]
        return only, label

    def may_take(self, node: Node, *, is_object: bool) -> bool:
        node = self._types.resolve(node)
        kind = node["type"]
        if kind == "custom-error" or kind == "nullable":
            return self.may_take(node["schema"], is_object=is_object)
        if kind == "union":
            return any(self.may_take(choice, is_object=is_object) for choice in arms_of(node))
        if kind == "chain":
            return self.may_take(arm(node["steps"][0]), is_object=is_object)
        return kind not in _NO_CONTAINERS and kind not in (_ONLY_ARRAYS if is_object else _ONLY_OBJECTS)


class _Document:
    """One document that is being read."""

    def __init__(self, owner: Piecewise, data: bytes, work: Work) -> None:
        self.errors: list[Mapping[str, Any]] = []
        self._owner = owner
        self._data = data
        self._work = work
        self._made: list[list[Any] | set[Any] | dict[Any, Any]] = []
        """The long lists, sets and dicts that were made."""

    def free(self) -> None:
        """Free what was read, in steps; to free a million objects in one takes tens of milliseconds."""
        for made in self._made:
            while made:
                if isinstance(made, list):
                    del made[-_FREED_AT_ONCE:]
                elif isinstance(made, dict):
                    made.popitem()
                else:
                    made.pop()

    def whole(self, node: Node, data: bytes, at: Place = ()) -> Any:
        """The value of JSON bytes that are one piece; None after an error."""
        return self._validated(self._owner.validator(node), data, at)

    def read(self, node: Node, container: Container, at: Place = ()) -> Any:
        """The value of a long array or object; None after an error."""
        owner = self._owner
        while True:
            node = owner.resolve(node)
            kind = node["type"]
            if kind == "nullable" or (kind == "default" and node.get("on_error", "raise") == "raise"):
                node = node["schema"]
            elif kind == "union":
                only = owner.arm(node, is_object=container.is_object)
                if only is None:
                    break
                node, label = only
                at = (*at, label)
            else:
                break
        if kind == "any":
            node = _ANY_OBJECT if container.is_object else _ANY_ARRAY
            kind = node["type"]
        if not owner.may_take(node, is_object=container.is_object):
            return self.whole(node, b"{}" if container.is_object else b"[]", at)  # the error is the same
        if kind in _LISTS and _item_of(node) is not None:
            return self._read_list(node, container, at)
        if kind == "dict":
            return self._read_dict(node, container, at)
        fields = _Fields.of(node)
        if fields is not None:
            return self._read_object(node, fields, container, at)
        return self.whole(node, self._data[container.start : container.end], at)

    def _validated(self, validate: Validate, data: bytes, at: Place, shift: int = 0) -> Any:
        try:
            return validate(data)
        except ValidationError as problem:
            errors = errors_of(problem, self._work)
        for error in errors:
            place: Place = error["loc"]
            if shift and place and isinstance(place[0], int):
                place = (place[0] + shift, *place[1:])
            self.errors.append({**error, "loc": (*at, *place)})
        return None

    def _parts(self, container: Container) -> Iterator[Part]:
        """The parts, until enough problems were found."""
        for part in container.parts:
            self._work.pause()
            if self._work.exhausted or (self._work.is_output and self.errors):
                return
            if part.inner is not None or self._data[part.start : part.end].strip():
                yield part

    def _read_list(self, node: Node, container: Container, at: Place) -> Any:
        is_set = node["type"] in ("set", "frozenset")
        values: Any = set[Any]() if is_set else []
        self._made.append(values)
        most: int = node.get("max_length", sys.maxsize)
        count = 0
        for part in self._parts(container):
            if part.inner is not None:
                items = [self.read(_item_of(node), part.inner, (*at, count))]
            else:
                run = run_of(self._data, container, part)
                items = self._validated(self._owner.validator(node, "items"), run, at, count)
                if items is None:
                    count += len(_items.decode(run))
                    continue
            if is_set:
                lines: list[Any] = []
                Collector.add(values, items, count, lines, self._work)
                self.errors += [{"type": line["type"], "loc": (*at, *line["loc"])} for line in lines]
            elif not self.errors:
                values += items
            count += len(items)
            if not self.errors and len(values) > most:
                self._wrong("too_long", at, node["type"].title(), max_length=most)
                break
        if not self.errors and len(values) < node.get("min_length", 0):
            self._wrong("too_short", at, node["type"].title(), min_length=node["min_length"])
        if self.errors:
            return None
        if node["type"] == "tuple":
            return tuple(values)
        return frozenset(values) if node["type"] == "frozenset" else values

    def _read_dict(self, node: Node, container: Container, at: Place) -> Any:
        values: dict[Any, Any] = {}
        found: Any
        self._made.append(values)
        for part in self._parts(container):
            if part.inner is None:
                found = self._validated(self._owner.validator(node, "members"), run_of(self._data, container, part), at)
            else:
                key = key_of(self._data, part)
                found = self._validated(
                    self._owner.validator(node, "names"), b"{%b:null}" % msgspec.json.encode(key), at
                )
                value = self.read(node.get("values_schema") or _ANY, part.inner, (*at, key))
                found = dict.fromkeys(found or (), value)
            if not self.errors:
                values.update(found)
        if not self.errors and len(values) > node.get("max_length", len(values)):
            self._wrong("too_long", at, "Dictionary", max_length=node["max_length"])
        if not self.errors and len(values) < node.get("min_length", 0):
            self._wrong("too_short", at, "Dictionary", min_length=node["min_length"])
        return values

    def _read_object(self, node: Node, fields: _Fields, container: Container, at: Place) -> Any:
        short: dict[str, bytes] = {}
        long: dict[str, Container] = {}
        unknown = 0
        for part in self._parts(container):
            if part.inner is not None:
                name = key_of(self._data, part)
                if name in fields.schemas:
                    long[name] = part.inner
                    short[name] = _SLOT_JSON
                elif fields.forbids:
                    short[name] = b"0"
                continue
            for name, raw in _names.decode(run_of(self._data, container, part)).items():
                if name in fields.schemas:
                    long.pop(name, None)
                    short[name] = bytes(raw)
                elif fields.forbids and unknown < MAX_FAILURES:
                    unknown += name not in short
                    short[name] = b"0"
        before = len(self.errors)
        slots = {fields.keys[name]: self.read(fields.schemas[name], inner, (*at, name)) for name, inner in long.items()}
        self._work.slots = slots
        reduced = b"{%b}" % b",".join(b"%b:%b" % (msgspec.json.encode(name), raw) for name, raw in short.items())
        value = self._validated(self._owner.validator(node, "slots"), reduced, at)
        order = {name: index for index, name in enumerate(fields.schemas)}
        level = len(at)
        self.errors[before:] = sorted(
            self.errors[before:],
            key=lambda error: order.get(error["loc"][level], len(order)) if error["loc"][level:] else -1,
        )
        return value

    def _wrong(self, kind: str, at: Place, word: str, **context: Any) -> None:
        self._work.failures += 1
        self.errors.append({"type": kind, "loc": at, "ctx": {"field_type": word, **context}})


class _Fields:
    """The fields of an object type.

    Attributes:
        schemas: By the name in JSON.
        keys: The names in Python.
        forbids: Other names are errors; without this they are left out.
    """

    def __init__(self, fields: list[tuple[str, Node]], *, forbids: bool) -> None:
        self.schemas = {field.get("validation_alias", name): field["schema"] for name, field in fields}
        self.keys = {field.get("validation_alias", name): name for name, field in fields}
        self.forbids = forbids

    @classmethod
    def of(cls, node: Node) -> _Fields | None:
        """The fields of a model, dataclass or TypedDict; None for what may keep other names, or takes several for a field."""
        config: Node = node.get("config") or {}
        around, held = node, node
        if node["type"] in ("model", "dataclass"):
            held = node["schema"]
        if held["type"] not in _FIELDS or around.get("root_model"):
            return None
        fields = _pairs(held)
        extra = held.get("extra_behavior") or config.get("extra_fields_behavior") or "ignore"
        by_name = config.get("validate_by_name") or config.get("populate_by_name") or held.get("populate_by_name")
        if (
            extra == "allow"
            or by_name
            or not all(isinstance(field.get("validation_alias", ""), str) for _, field in fields)
        ):
            return None
        return cls(fields, forbids=extra == "forbid")


def _pairs(node: Node) -> list[tuple[str, Node]]:
    fields: Any = node["fields"]
    return list(fields.items()) if is_dict(fields) else [(field["name"], field) for field in fields]


def _item_of(node: Node) -> Any:
    """The type of the items of a list; None for tuples of fixed length."""
    items: Any = node.get("items_schema", _ANY)
    if not is_list(items):
        return items
    return items[0] if len(items) == 1 and node.get("variadic_item_index") == 0 else None


def _with_slots(node: Node) -> Node:
    """An object whose fields also take `_SLOT`, which stands for a value of `Work.slots`."""
    if node["type"] not in _FIELDS:
        return {**node, "schema": _with_slots(node["schema"])}
    fields = [(name, {**field, "schema": _with_slot(name, field["schema"])}) for name, field in _pairs(node)]
    return {**node, "fields": dict(fields) if is_dict(node["fields"]) else [field for _, field in fields]}


def _with_slot(name: str, node: Node) -> Node:
    if node["type"] == "default":
        return {**node, "schema": _with_slot(name, node["schema"])}
    slot = {
        "type": "chain",
        "steps": [
            {"type": "literal", "expected": [_SLOT]},
            core_schema.no_info_plain_validator_function(partial(_in_slot, name)),
        ],
    }
    return {"type": "union", "mode": "left_to_right", "choices": [(slot, SKIP), (node, WANTED)]}


def _in_slot(name: str, _: object) -> Any:
    return current().slots[name]


_SLOT_JSON = msgspec.json.encode(_SLOT)
_ANY: Node = {"type": "any"}
_ANY_ARRAY: Node = {"type": "list", "items_schema": _ANY, "strict": False}
_ANY_OBJECT: Node = {
    "type": "dict",
    "values_schema": _ANY,
    "keys_schema": {"type": "str", "strict": True},
    "strict": False,
}
