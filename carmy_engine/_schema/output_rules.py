"""Core schemas rewritten for outputs: how they are rendered, converted and checked, in Python mode.

A tool's own objects are Python, so a date is a `date` and not a string; apart from that nothing is coerced.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from pydantic_core import PydanticSerializationUnexpectedValue, core_schema

from .argument_rules import Labelled, closed
from .core_schema import Node, Types, TypesRewriter, parts_of, says_extra
from .json_form import jsonable
from .structs import as_dict, struct_of
from .type_guards import is_mapping

_CONSTRAINTS = frozenset(
    {
        "ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "max_digits", "decimal_places",
        "tz_constraint", "now_op", "str_max_length", "str_min_length",
    }
)  # fmt: skip


def is_constrained(types: Types) -> bool:
    """True when a value of the right Python types can still break the schema."""
    return any(_constrained(node) for node in (*types.fields.values(), *types.definitions.values()))


def _constrained(node: Node) -> bool:
    if struct_of(node) is not None:
        # Its class sees to it that all fields are there.
        return any(map(_constrained, node["schema"]["fields"].values()))
    if not _CONSTRAINTS.isdisjoint(node) or node["type"] in ("literal", "typed-dict"):
        return True
    if node["type"].startswith("function-") and (_is_pydantics(node) or _is_value_of_enum(node)):
        return True
    return any(map(_constrained, parts_of(node)))


def _is_pydantics(node: Mapping[str, Any]) -> bool:
    """True for the functions by which pydantic enforces constraints on types of others."""
    return str(getattr(_function_of(node), "__module__", "")).startswith("pydantic")


def _is_value_of_enum(node: Mapping[str, Any]) -> bool:
    """True for an enum in a model with ``use_enum_values``: its serialiser takes anything in place of a value."""
    return repr(_function_of(node)) == "operator.attrgetter('value')"


def _function_of(node: Mapping[str, Any]) -> Any:
    function = node["function"]
    return function["function"] if is_mapping(function) else function


_FINITE = frozenset(
    {
        "str", "int", "bool", "none", "date", "time", "datetime", "timedelta", "uuid", "url", "multi-host-url",
        "list", "tuple", "set", "frozenset", "dict", "nullable", "union", "default", "definition-ref", "typed-dict",
        "typed-dict-field", "model", "model-fields", "model-field", "computed-field", "dataclass", "dataclass-args",
        "dataclass-field", "function-after", "function-before", "function-wrap",
    }
)  # fmt: skip
"""Types that are neither numbers with a point nor of unknown contents, as long as none of their parts is."""


def is_finite(nodes: Iterable[Node]) -> bool:
    """True when nothing that these serialisers write can hold NaN or Infinity.

    Args:
        nodes: Made by `Rendered`, which gives a serialiser to whatever says nothing of its contents.
    """
    return not any(_maybe_infinite(node) for node in nodes)


def _maybe_infinite(node: Node) -> bool:
    if node["type"] not in _FINITE or "serialization" in node or _is_open(node):
        return True
    return any(map(_maybe_infinite, parts_of(node)))


def _is_open(node: Node) -> bool:
    """True when an object of this type may have members that the type does not name."""
    config: Node = node.get("config") or {}
    return "allow" in (node.get("extra_behavior"), config.get("extra_fields_behavior"))


def is_wrapped(nodes: Iterable[Node]) -> bool:
    """True when a function in Python wraps one of these serialisers."""
    return any(map(_wrapped, nodes))


def _wrapped(node: Node) -> bool:
    how: Node = node.get("serialization") or {}
    return how.get("type") == "function-wrap" or any(map(_wrapped, (*parts_of(how), *parts_of(node))))


def struct_union(types: Types, node: Node) -> Node | None:
    """A tagged union of Structs as a plain one, None for others: a Struct has its tag in its class, not in a field."""
    choices = [types.resolve(choice) for choice in node["choices"].values()]
    if not any(struct_of(choice) is not None for choice in choices):
        return None
    return {"type": "union", "choices": list(node["choices"].values())}


class Rendered(TypesRewriter):
    """What the serialiser is built from: NaN is shown instead of becoming null, Any is as strict as msgspec."""

    def visit(self, node: Node) -> Node:
        made = super().visit(node)
        how: Node = made.get("serialization") or {}
        # Left to the serialiser of whatever class the value has, it may be null instead of NaN.
        return {**made, "serialization": _PLAIN} if how.get("type") == "any" else made

    def on_any(self, node: Node) -> Node:
        return node if "serialization" in node else {**node, "serialization": _PLAIN}

    on_function_plain = on_any

    def on_bytes(self, node: Node) -> Node:
        return node if "serialization" in node else {**node, "serialization": _BASE64}

    def _items(self, node: Node) -> Node:
        made = self.parts(node)
        made.setdefault("items_schema", {"type": "any", "serialization": _PLAIN})
        return made

    on_list = on_set = on_frozenset = _items

    def on_dict(self, node: Node) -> Node:
        made = self.parts(node)
        if node.get("keys_schema", _ANY)["type"] == "any":
            made["keys_schema"] = {"type": "any", "serialization": _PLAIN_KEY}
        made.setdefault("values_schema", {"type": "any", "serialization": _PLAIN})
        return made

    def on_tagged_union(self, node: Node) -> Node:
        structs = struct_union(self._types, node)
        return self.parts(node if structs is None else structs)

    def _with_config(self, node: Node) -> Node:
        made = self.parts(node)
        made["config"] = {**(made.get("config") or {}), "ser_json_inf_nan": "constants"}
        return made

    def on_typed_dict(self, node: Node) -> Node:
        made = self._with_config(node)
        return _with_plain_extras(made) if _is_open(made) else made

    def on_dataclass(self, node: Node) -> Node:
        made = self._with_config(node)
        if made["config"].pop("polymorphic_serialization", False) and "serialization" not in made:
            made["serialization"] = core_schema.wrap_serializer_function_ser_schema(
                functools.partial(_polymorphic, made["cls"])
            )
        return made

    def on_model(self, node: Node) -> Node:
        made = self.on_dataclass(node)
        if _is_open(made):
            made["schema"] = _with_plain_extras(made["schema"])
        return made


def _with_plain_extras(node: Node) -> Node:
    """The same fields, and whatever comes beside them written as what Any is."""
    if (
        node["type"].startswith("function-") and "schema" in node
    ):  # a validator that runs before the fields are looked at
        return {**node, "schema": _with_plain_extras(node["schema"])}
    if node["type"] not in ("model-fields", "typed-dict"):
        return node
    return {"extras_schema": {"type": "any", "serialization": _PLAIN}, **node}


class Loose(Labelled):
    """What converts a value of another shape: a dict where a model is promised, a tuple where a list is."""

    def _strict(self, node: Node) -> Node:
        return node if "strict" in node else {**node, "strict": True}

    on_bool = on_str = on_int = on_bytes = on_uuid = on_url = on_multi_host_url = _strict
    on_date = on_time = on_datetime = on_timedelta = on_enum = _strict

    def _finite(self, node: Node) -> Node:
        return {"strict": True, **node, "allow_inf_nan": False}

    on_float = on_decimal = _finite

    def _container(self, node: Node) -> Node:
        return self._strict(self.parts(node))

    on_set = on_frozenset = on_dict = on_deque = _container

    def _sequence(self, node: Node) -> Node:
        made = self._container(node)
        other = tuple if node["type"] == "list" else list
        converted = {"type": "chain", "steps": [core_schema.is_instance_schema(other), {**made, "strict": False}]}
        return {"type": "union", "mode": "left_to_right", "choices": [(made, "\0value"), (converted, "\0null")]}

    on_list = on_tuple = _sequence

    def on_lax_or_strict(self, node: Node) -> Node:
        return self.visit(node["strict_schema"])

    def on_json_or_python(self, node: Node) -> Node:
        return self.visit(node["python_schema"])

    def on_typed_dict(self, node: Node) -> Node:
        return self.parts(node) if says_extra(node) else closed(self.parts(node))

    def on_tagged_union(self, node: Node) -> Node:
        structs = struct_union(self._types, node)
        return super().on_tagged_union(node) if structs is None else self.visit(structs)

    def _object(self, node: Node) -> Node:
        return {**self.parts(node), "strict": False}

    on_model = on_dataclass = _object

    def on_function_after(self, node: Node) -> Node:
        made = self.parts(node)
        cls = struct_of(node)
        if cls is None:
            return made
        return {
            "type": "union",
            "mode": "left_to_right",
            "choices": [(core_schema.is_instance_schema(cls), "\0null"), (made, "\0value")],
        }


class Checked(Loose):
    """What checks the constraints of a value that has the right types already; it runs no code of the tool's author."""

    def _object(self, node: Node) -> Node:
        made = {**self.parts(node), "strict": False, "revalidate_instances": "always"}
        if node["type"] == "dataclass":
            return {**made, "post_init": False}
        made.pop("post_init", None)
        return {**made, "custom_init": False}

    on_model = on_dataclass = _object

    def on_enum(self, node: Node) -> Node:
        # A model with ``use_enum_values`` keeps what its members stand for.
        return {**{key: value for key, value in node.items() if key != "missing"}, "strict": False}

    def _inner(self, node: Node) -> Node:
        cls = struct_of(node)
        if cls is not None:
            dump = as_dict(cls)
            fields = self.visit(node["schema"])
            function: Node = {"type": "no-info", "function": functools.partial(_dumped, dump)}
            return {"type": "function-before", "function": function, "schema": fields}
        return self.parts(node) if _is_pydantics(node) else self.visit(node["schema"])

    on_function_after = on_function_before = on_function_wrap = _inner

    def on_function_plain(self, node: Node) -> Node:
        return node if _is_pydantics(node) else {"type": "any"}


def _dumped(dump: Callable[[Any], Any], value: Any) -> Any:
    try:
        return dump(value)
    except PydanticSerializationUnexpectedValue:
        return value  # the typed-dict behind it says what is wrong


def _plain(value: Any) -> Any:
    """A value of type Any in JSON's own types; raises for what has no JSON form."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    return msgspec.to_builtins(value, enc_hook=jsonable, str_keys=True)


def _polymorphic(cls: type, value: Any, handler: Callable[[Any], Any]) -> Any:
    """An object of a class that inherits from `cls` as its own class writes it."""
    return _plain(value) if isinstance(value, cls) and type(value) is not cls else handler(value)


def _plain_key(value: Any) -> Any:
    if type(value) is str:
        return value
    (name,) = msgspec.to_builtins({value: None}, enc_hook=jsonable, str_keys=True)
    return name


def _to_base64(value: Any) -> str:
    return base64.b64encode(value).decode()


_ANY = core_schema.any_schema()
_PLAIN: Any = core_schema.plain_serializer_function_ser_schema(_plain, return_schema=_ANY)
_PLAIN_KEY: Any = core_schema.plain_serializer_function_ser_schema(_plain_key, return_schema=core_schema.str_schema())
_BASE64: Any = core_schema.plain_serializer_function_ser_schema(_to_base64, return_schema=core_schema.str_schema())
