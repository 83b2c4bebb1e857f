"""The engine's table of types, as a rewriting of core schemas into validators of JSON arguments.

pydantic's own strict mode is the start; what it lets through or refuses against the table is changed node by node. Every
leaf says for itself how strict it is, because models carry configurations of their own and because a field that its
author marked ``strict`` (either way) stays as it was marked.
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticUseDefault, core_schema

from .core_schema import Node, Types, TypesRewriter, arm, says_extra
from .type_names import accepts_null, noun_of, one_of

VALUE = "\0value"
"""Labels the way of a defaulted field that carries a value. Labels stand in the locations of errors; see `messages`."""
NULL = "\0null"
"""Labels the way of a defaulted field that carries null."""
TAG = "\0tag"
"""Labels the arm of a tagged union; the tag itself stands before it."""
ARM = "\0arm"
"""Begins the label of an arm of a plain union: ``\\0arm<index>:<noun>``."""

EXACT_FLOAT = 2**53
"""Integers beyond this are not told apart by floats, so a JSON fraction that large is no integer."""

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = "[0-9]{2}:[0-9]{2}"
_ISO = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}",
    "datetime": f"^{_DATE}[Tt ]{_TIME}",
    "timedelta": "^[+-]?P[0-9WDTHMSYwdthmsy.,]+$",
}
"""What pydantic's parser would otherwise take for a number of seconds or a format of its own."""

_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""Without NaN, Infinity, underscores and spaces, which Python's Decimal reads."""

_CONSTRAINTS = {
    "int": ("multiple_of", "le", "ge", "lt", "gt"),
    "date": ("le", "ge", "lt", "gt", "now_op", "now_utc_offset"),
    "time": ("le", "ge", "lt", "gt", "tz_constraint"),
    "datetime": ("le", "ge", "lt", "gt", "now_op", "now_utc_offset", "tz_constraint"),
    "timedelta": ("le", "ge", "lt", "gt"),
}


def strict_types(types: Types) -> Types:
    """The same types, as strict as the table."""
    return Strict(types).all()


class Labelled(TypesRewriter):
    """Marks the arms of unions, so that the location of an error tells them from names in the data."""

    def all(self) -> Types:
        """Every type rewritten."""
        fields = {name: self.visit(field) for name, field in self._types.fields.items()}
        definitions = {ref: {**self.visit(node), "ref": ref} for ref, node in self._types.definitions.items()}
        return Types(fields, definitions)

    def on_union(self, node: Node) -> Node:
        made = self.parts(node)
        bare = [arm(choice) for choice in made["choices"]]
        nouns = [noun_of(self._types, arm(choice)) for choice in node["choices"]]
        made["choices"] = [
            (choice, f"{ARM}{index}:{noun}") for index, (choice, noun) in enumerate(zip(bare, nouns, strict=True))
        ]
        return made

    def on_tagged_union(self, node: Node) -> Node:
        made = self.parts(node)
        made["choices"] = {
            tag: {"type": "union", "choices": [(choice, TAG)], "auto_collapse": False}
            for tag, choice in made["choices"].items()
        }
        return made


class Strict(Labelled):
    """From what pydantic made of a type to what validates it in JSON."""

    def __init__(self, types: Types) -> None:
        super().__init__(types)
        self._marked = False
        """The object around is marked strict by its author, and stays as strict as that."""

    def parts(self, node: Node) -> Node:
        """A copy of the node with its parts rewritten."""
        if node["type"] not in ("model", "dataclass", "typed-dict"):
            return super().parts(node)
        config: Node = node.get("config") or {}
        before, self._marked = self._marked, config.get("strict") is True
        try:
            return super().parts(node)
        finally:
            self._marked = before

    # --- leaves

    def _strict(self, node: Node) -> Node:
        return node if "strict" in node else {**node, "strict": True}

    on_bool = on_str = on_uuid = on_url = on_multi_host_url = on_complex = _strict

    def on_float(self, node: Node) -> Node:
        return {"strict": True, **node, "allow_inf_nan": False}

    def on_int(self, node: Node) -> Node:
        if "strict" in node or self._marked:
            return self._strict(node)
        return _then(_integer(), node)

    def _iso(self, node: Node) -> Node:
        if node.get("strict") is False:
            return node
        kind = node["type"]
        bare = {key: value for key, value in node.items() if key not in _CONSTRAINTS[kind] and key != "serialization"}
        text = core_schema.str_schema(strict=True, pattern=_ISO[kind])
        parsed = {"type": "chain", "steps": [text, {**bare, "strict": False}]}
        return _then(_named(parsed, kind), node)

    on_date = on_time = on_datetime = on_timedelta = _iso

    def on_decimal(self, node: Node) -> Node:
        if node.get("strict") is False:
            return {**node, "allow_inf_nan": False}
        given = core_schema.union_schema(
            [core_schema.str_schema(strict=True, pattern=_DECIMAL), core_schema.int_schema(strict=True)],
            mode="left_to_right",
        )
        return {
            "type": "chain",
            "steps": [_named(given, "decimal"), {**node, "strict": False, "allow_inf_nan": False}],
        }

    def on_bytes(self, node: Node) -> Node:
        given = core_schema.no_info_after_validator_function(_from_base64, core_schema.str_schema(strict=True))
        return {"type": "chain", "steps": [_named(given, "bytes"), {**node, "strict": False}]}

    def on_literal(self, node: Node) -> Node:
        expected = node["expected"]

        def restricted(part: list[Any]) -> Node:
            if isinstance(part[0], enum.Enum):
                return {"type": "enum", "cls": type(part[0]), "members": part}
            return {**node, "expected": part}

        return _by_kind(expected, expected, restricted)

    def on_enum(self, node: Node) -> Node:
        members = node["members"]
        values = [member.value for member in members]

        def restricted(part: list[Any]) -> Node:
            return {
                **{key: value for key, value in node.items() if key != "sub_type"},
                "members": part,
                "strict": False,
            }

        return _by_kind(members, values, restricted)

    # --- containers

    def _container(self, node: Node) -> Node:
        return self._strict(self.parts(node))

    on_list = on_set = on_frozenset = on_tuple = on_dict = on_deque = _container

    def on_lax_or_strict(self, node: Node) -> Node:
        return self.visit(node["strict_schema"])

    def on_json_or_python(self, node: Node) -> Node:
        return self.visit(node["json_schema"])

    def on_default(self, node: Node) -> Node:
        made = self.parts(node)
        if accepts_null(self._types, node["schema"]):
            return made
        # Null means omitted. The label tells the two ways apart when both fail.
        null = core_schema.chain_schema(
            [core_schema.none_schema(), core_schema.no_info_plain_validator_function(_use_default)]
        )
        made["schema"] = {"type": "union", "mode": "left_to_right", "choices": [(made["schema"], VALUE), (null, NULL)]}
        return made

    # --- objects

    def _closed(self, node: Node) -> Node:
        return self.parts(node) if says_extra(node) else closed(self.parts(node))

    on_typed_dict = _closed

    def on_model(self, node: Node) -> Node:
        if node.get("custom_init"):
            # Its own __init__ would hand the data to a validator that knows nothing of the rewriting, so the data is
            # checked first, without the author's validators: those run when the model is made.
            bare = {**_Bare(self._types).on_model({**node, "custom_init": False}), "root_model": False}
            bare.pop("post_init", None)
            function = {"type": "no-info", "function": _initialised(node["cls"])}
            return {"type": "function-after", "function": function, "schema": bare}
        return self.parts(node) if node.get("root_model") else self._closed(node)

    on_dataclass = _closed


class _Bare(Strict):
    """`Strict` without the validators of the types' author."""

    def on_function_after(self, node: Node) -> Node:
        return self.visit(node["schema"])

    def _anything(self, node: Node) -> Node:
        return {"type": "any"}

    on_function_before = on_function_wrap = on_function_plain = _anything


def _initialised(cls: Any) -> Callable[[Any], Any]:
    """From a model made without its own ``__init__`` to one made with it."""
    fields = cls.__pydantic_fields__

    def initialise(bare: Any) -> Any:
        given = {name: value for name, value in bare.__dict__.items() if name in bare.__pydantic_fields_set__}
        aliased = {
            fields[name].validation_alias if isinstance(fields[name].validation_alias, str) else name: value
            for name, value in given.items()
        }
        return cls(**aliased, **(bare.__pydantic_extra__ or {}))

    return initialise


def closed(node: Node) -> Node:
    """The node of an object type with unknown fields forbidden."""
    config: Node = node.get("config") or {}
    made: Node = {**node, "config": {**config, "extra_fields_behavior": "forbid"}}
    if node["type"] == "typed-dict":
        made["extra_behavior"] = "forbid"
    return made


def _integer() -> Node:
    """An integer, or a fraction-less number that is small enough to be exact."""
    whole = core_schema.chain_schema(
        [
            core_schema.float_schema(strict=True, allow_inf_nan=False, ge=-EXACT_FLOAT, le=EXACT_FLOAT),
            core_schema.int_schema(strict=False),
        ]
    )
    return {
        "type": "union",
        "mode": "left_to_right",
        "choices": [core_schema.int_schema(strict=True), whole],
        "custom_error_type": "int_type",
    }


def _then(first: Node, node: Node) -> Node:
    """`first`, and then the constraints of `node` if it has any."""
    if not any(key in node for key in _CONSTRAINTS[node["type"]]):
        return first
    return {"type": "chain", "steps": [first, {**node, "strict": True}]}


def _named(node: Any, kind: str) -> Node:
    """Any failure of `node` becomes the one error that `messages` knows for `kind`."""
    return {
        "type": "custom-error",
        "schema": node,
        "custom_error_type": f"carmy_{kind}",
        "custom_error_message": "not valid",
    }


def _by_kind(options: list[Any], values: list[Any], restricted: Callable[[list[Any]], Node]) -> Node:
    """Options of a literal or an enum, each reachable only through its own kind of JSON value: true is never 1."""
    guards: dict[str, Any] = {
        "bool": core_schema.bool_schema(strict=True),
        "int": _integer(),
        "float": core_schema.float_schema(strict=True, allow_inf_nan=False),
    }
    parts: dict[tuple[str, type], list[Any]] = {}
    for option, value in zip(options, values, strict=True):
        raw = value.value if isinstance(value, enum.Enum) else value
        # Members of an enum inside a Literal are looked up by their own class.
        owner = type(option) if isinstance(option, enum.Enum) else object
        parts.setdefault((_base_kind(raw), owner), []).append(option)
    choices = [
        {"type": "chain", "steps": [guards[kind], restricted(part)]} if kind in guards else restricted(part)
        for (kind, _), part in parts.items()
    ]
    chosen = choices[0] if len(choices) == 1 else {"type": "union", "mode": "left_to_right", "choices": choices}
    return {
        "type": "custom-error",
        "schema": chosen,
        "custom_error_type": "carmy_choice",
        "custom_error_message": "not valid",
        "custom_error_context": {"choices": one_of(values)},
    }


def _base_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "float" if isinstance(value, float) else "other"


def _use_default(_: Any) -> Any:
    raise PydanticUseDefault


def _from_base64(text: str) -> bytes:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if base64.b64encode(data).decode() != text:
        raise ValueError("not base64")  # bits that decode to nothing: two spellings of one value
    return data
