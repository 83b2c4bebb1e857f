"""Literals, enums and flags: values that are listed, each compared in its JSON form."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, ClassVar

from pydantic_core import PydanticSerializationUnexpectedValue, core_schema

from ..annotations import UnusableType
from ..kind import Ask, Errors, Kind, Proof, Walk, certain, uncertain
from ..labels import first_of, named
from ..nodes import Node, without
from ..plain_values import canonical, json_form, plain_name
from .scalars import integer, strictly

_JSON_SCALARS = (str, int, float, bool, type(None))


def raw_of(option: Any) -> Any:
    """What an option stands for: the value of a member, the option itself otherwise."""
    return option.value if isinstance(option, enum.Enum) else option


def one_of(values: list[Any]) -> str:
    """``one of 'a', 'b'``, or the only value."""
    shown = [_shown(raw_of(value)) for value in values]
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        return f"'{value}'"
    return str(value) if isinstance(value, int | float) else canonical(json_form(value)).decode()


class Choice(Kind):
    """A list of options."""

    errors: ClassVar[Errors] = {
        "carmy_choice": ("not_allowed", "must be {choices}"),
        "enum": ("not_allowed", "must be {expected}"),
        "literal_error": ("not_allowed", "must be {expected}"),
    }

    def is_light(self, node: Node, ask: Ask) -> bool:
        return True

    def options(self, node: Node) -> list[Any]:
        """What may be chosen, as Python has it."""
        found: list[Any] = node["expected"]
        return found

    def noun(self, walk: Walk, node: Node) -> str:
        return one_of(self.options(node))

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return any(raw_of(option) is None for option in self.options(node))

    def can_be_name(self, walk: Walk, node: Node) -> bool:
        try:
            names = [plain_name(raw_of(option)) for option in self.options(node)]
        except (TypeError, ValueError):
            return False
        return len(set(names)) == len(names)

    def may_be_infinite(self, walk: Walk, node: Node) -> bool:
        return any(isinstance(raw_of(option), float) for option in self.options(node)) or not self._is_simple(node)

    def _is_simple(self, node: Node) -> bool:
        """True when pydantic writes the options as the engine does."""
        return all(type(raw_of(option)) in _JSON_SCALARS for option in self.options(node))

    def expand(self, walk: Walk, node: Node) -> Node:
        for option in self.options(node):
            try:
                form = json_form(raw_of(option))
                if form is None and raw_of(option) is not None:
                    raise ValueError("JSON has no such number")
            except (TypeError, ValueError):
                instead = "Use values that JSON has, such as strings."
                raise UnusableType(f"the choice {option!r} has no JSON form", instead) from None
        return node

    def accept(self, walk: Walk, node: Node) -> Node:
        chosen = named(self._by_kind(node), "choice", choices=self.noun(walk, node))
        if not walk.is_behind:
            return chosen
        ready: Node = {"type": "literal", "expected": self.options(node)}
        members = tuple({type(option) for option in self.options(node) if isinstance(option, enum.Enum)})
        if not members:
            return chosen
        return first_of(chosen, {"type": "chain", "steps": [core_schema.is_instance_schema(members), ready]})

    def _by_kind(self, node: Node) -> Node:
        """Each option is reachable only through its own kind of JSON value: true is never 1."""
        parts: dict[str, dict[Any, Any]] = {}
        for option in self.options(node):
            raw = raw_of(option)
            kind = _base_kind(raw)
            parts.setdefault(kind, {})[canonical(json_form(raw)) if kind == "encoded" else raw] = option
        ways = [
            _looked_up(options, canonical) if kind == "encoded" else _chosen(kind, options)
            for kind, options in parts.items()
        ]
        return ways[0] if len(ways) == 1 else {"type": "union", "mode": "left_to_right", "choices": ways}

    def accept_name(self, walk: Walk, node: Node) -> Node:
        names = {plain_name(raw_of(option)): option for option in self.options(node)}
        return named(_looked_up(names, str), "choice", choices=one_of(list(names)))

    def convert(self, walk: Walk, node: Node) -> Node:
        return node

    def write(self, walk: Walk, node: Node) -> Node:
        if "serialization" in node or self._is_simple(node):
            return node
        return {
            **node,
            "serialization": _written_by({option: json_form(raw_of(option)) for option in self.options(node)}),
        }

    def proof(self, walk: Walk, node: Node) -> Proof:
        options = self.options(node)
        if not all(type(option) is str for option in options):
            return uncertain
        expected = frozenset(options)
        return lambda value: type(value) is str and value in expected

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        made = proceed({**node, "expected": []} if "expected" in node else {**node, "members": []})
        values = [json_form(raw_of(option)) for option in self.options(node)]
        made.pop("enum", None)
        made.pop("type", None)
        types = {_json_type(value) for value in values}
        if len(types) == 1:
            made["type"] = types.pop()
        if len(values) == 1 and "expected" in node:
            made["const"] = values[0]
        else:
            made["enum"] = values
        return made

    def publish_name(self, generator: Any, node: Any) -> Node:
        return {"enum": [plain_name(raw_of(option)) for option in self.options(node)]}


class Members(Choice):
    """The members of an enum, or of a flag, whose values are sums of members."""

    def options(self, node: Node) -> list[Any]:
        found: list[Any] = node["members"]
        return found

    def noun(self, walk: Walk, node: Node) -> str:
        return f"a sum of {_shown_parts(node['cls'])}" if _is_flag(node) else super().noun(walk, node)

    def can_be_name(self, walk: Walk, node: Node) -> bool:
        return not _is_flag(node) and super().can_be_name(walk, node)

    def accept(self, walk: Walk, node: Node) -> Node:
        if not _is_flag(node):
            return super().accept(walk, node)
        cls = node["cls"]
        whole: Any = integer()
        given = core_schema.no_info_after_validator_function(_combined(cls), whole)
        chosen = named(given, "choice", choices=self.noun(walk, node))
        return first_of(chosen, core_schema.is_instance_schema(cls)) if walk.is_behind else chosen

    def convert(self, walk: Walk, node: Node) -> Node:
        return core_schema.is_instance_schema(node["cls"]) if _is_flag(node) else strictly(without(node, "missing"))  # type: ignore[return-value]  # a node

    def write(self, walk: Walk, node: Node) -> Node:
        if "serialization" in node or not _is_flag(node):
            return super().write(walk, node)
        cls = node["cls"]

        def number(value: Any) -> int:
            if not isinstance(value, cls):
                raise PydanticSerializationUnexpectedValue(f"expected {cls.__qualname__}")
            return int(value.value)

        return {
            **node,
            "serialization": core_schema.plain_serializer_function_ser_schema(
                number, return_schema=core_schema.int_schema()
            ),
        }

    def proof(self, walk: Walk, node: Node) -> Proof:
        if _is_flag(node):
            mask = _mask(node["cls"])
            return lambda value: 0 <= value.value <= mask and not value.value & ~mask
        return certain

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        generator.names_of_enums.add(node["cls"].__name__)
        made = super().publish(generator, node, proceed)
        if not _is_flag(node):
            return made
        return {**without(made, "enum"), "type": "integer", "minimum": 0, "maximum": _mask(node["cls"])}


def _is_flag(node: Node) -> bool:
    return issubclass(node["cls"], enum.Flag)


def _mask(cls: Any) -> int:
    found = 0
    for member in cls.__members__.values():
        found |= member.value
    return found


def _shown_parts(cls: Any) -> str:
    return ", ".join(str(member.value) for member in cls)


def _combined(cls: Any) -> Callable[[int], Any]:
    mask = _mask(cls)

    def combine(value: int) -> Any:
        if value < 0 or value & ~mask:
            raise ValueError("not a sum of members")
        return cls(value)

    return combine


def _chosen(kind: str, options: dict[Any, Any]) -> Node:
    """A validator of the options of one kind of JSON value."""
    guards: dict[str, Any] = {
        "bool": core_schema.bool_schema(strict=True),
        "int": integer(),
        "float": core_schema.float_schema(strict=True, allow_inf_nan=False),
    }
    steps: list[Any] = [guards[kind]] if kind in guards else []
    # pydantic's validator of enums calls the class, for which True is 1, and whose `_missing_` may take anything.
    steps.append(core_schema.literal_schema(list(options)))
    if any(isinstance(option, enum.Enum) for option in options.values()):
        steps.append(core_schema.no_info_plain_validator_function(options.__getitem__))
    return {"type": "chain", "steps": steps}


def _looked_up(options: dict[Any, Any], spell: Callable[[Any], Any]) -> Node:
    """A validator that finds an option by the spelling of its JSON form."""

    def look_up(value: Any) -> Any:
        try:
            return options[spell(value)]
        except (KeyError, TypeError, ValueError):
            raise ValueError("not an option") from None

    return dict(core_schema.no_info_plain_validator_function(look_up))


def _written_by(forms: dict[Any, Any]) -> Any:
    def write(value: Any) -> Any:
        try:
            return forms[value]
        except (KeyError, TypeError):
            raise PydanticSerializationUnexpectedValue("expected one of the options") from None

    return core_schema.plain_serializer_function_ser_schema(write, return_schema=core_schema.any_schema())


def _base_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    return "other" if value is None or isinstance(value, str) else "encoded"


_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def _json_type(value: object) -> str:
    return next((name for cls, name in _JSON_TYPES if isinstance(value, cls)), "null")
