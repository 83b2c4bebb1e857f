"""Numbers, texts, bytes, truth values and null."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

from pydantic_core import core_schema

from ..kind import AnyJson, Ask, Errors, Kind, Proof, Walk, certain, uncertain
from ..labels import first_of, named
from ..nodes import Node, without

EXACT_FLOAT = 2**53
"""Floats do not distinguish integers beyond this, so a JSON fraction that large is no integer."""

_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""Without NaN, Infinity, underscores and spaces, which Python's Decimal reads."""


def strictly(node: Node) -> Node:
    """The node, strict unless its author set ``strict``."""
    return node if "strict" in node else {**node, "strict": True}


def constrained(first: Node, node: Node, keys: tuple[str, ...]) -> Node:
    """`first`, and then the constraints of `node` if it has any."""
    if not any(key in node for key in keys):
        return first
    return {"type": "chain", "steps": [first, {**node, "strict": True}]}


BOUNDS: Errors = {
    "greater_than": ("out_of_range", "must be greater than {gt}"),
    "greater_than_equal": ("out_of_range", "must be at least {ge}"),
    "less_than": ("out_of_range", "must be less than {lt}"),
    "less_than_equal": ("out_of_range", "must be at most {le}"),
    "multiple_of": ("out_of_range", "must be a multiple of {multiple_of}"),
}


class Scalar(Kind):
    """A type whose values have no parts."""

    is_finite = True

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return False

    def accept(self, walk: Walk, node: Node) -> Node:
        return strictly(node)

    convert = accept


class AnyValue(AnyJson):
    """Any JSON."""

    def proof(self, walk: Walk, node: Node) -> Proof:
        return certain

    def accept_name(self, walk: Walk, node: Node) -> Node:
        return {"type": "str"}


class Null(Scalar):
    word = "null"
    errors: ClassVar[Errors] = {"none_required": ("wrong_type", "must be null")}

    def is_light(self, node: Node, ask: Ask) -> bool:
        return True

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return True

    def accept(self, walk: Walk, node: Node) -> Node:
        return node

    convert = accept


class Boolean(Scalar):
    word = "true or false"
    is_name = True
    errors: ClassVar[Errors] = {
        "bool_type": ("wrong_type", "must be true or false"),
        "bool_parsing": ("wrong_type", "must be true or false"),
    }

    def is_light(self, node: Node, ask: Ask) -> bool:
        return True

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def publish_name(self, generator: Any, node: Any) -> Node:
        return {"enum": ["true", "false"]}


class Integer(Scalar):
    word = "an integer"
    is_name = True
    errors: ClassVar[Errors] = {
        "int_type": ("wrong_type", "must be an integer"),
        "int_parsing": ("wrong_type", "must be an integer"),
        "int_parsing_size": ("wrong_type", "must be an integer of reasonable length"),
        "int_from_float": ("wrong_type", "must be an integer"),
        "carmy_integer_name": ("wrong_type", "must be an integer"),
        **BOUNDS,
    }

    def is_light(self, node: Node, ask: Ask) -> bool:
        return True

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def accept(self, walk: Walk, node: Node) -> Node:
        if "strict" in node or walk.is_marked:
            return strictly(node)
        return constrained(integer(), node, ("multiple_of", "le", "ge", "lt", "gt"))

    def accept_name(self, walk: Walk, node: Node) -> Node:
        text = core_schema.str_schema(strict=True, pattern=_INTEGER_NAME)
        return {
            "type": "chain",
            "steps": [named(text, "integer_name"), {**without(node, "serialization"), "strict": False}],
        }

    def convert(self, walk: Walk, node: Node) -> Node:
        return strictly(node)

    def publish_name(self, generator: Any, node: Any) -> Node:
        return {"pattern": _INTEGER_NAME}


_INTEGER_NAME = "^(0|-?[1-9][0-9]{0,4000})$"
"""One spelling for each integer: two spellings would be two names for one key."""


def integer() -> Node:
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


class Number(Scalar):
    word = "a number"
    is_name = True
    is_finite = False
    errors: ClassVar[Errors] = {
        "float_type": ("wrong_type", "must be a number"),
        "float_parsing": ("wrong_type", "must be a number"),
        "finite_number": ("wrong_type", "must be a finite number"),
    }

    def is_light(self, node: Node, ask: Ask) -> bool:
        return True

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def accept(self, walk: Walk, node: Node) -> Node:
        return {"strict": True, **node, "allow_inf_nan": False}

    convert = accept

    def publish_name(self, generator: Any, node: Any) -> Node:
        return {}


class Text(Scalar):
    word = "a string"
    is_name = True
    errors: ClassVar[Errors] = {
        "string_type": ("wrong_type", "must be a string"),
        "string_sub_type": ("wrong_type", "must be a string"),
        "string_unicode": ("wrong_format", "must be valid Unicode"),
        "string_not_ascii": ("wrong_format", "must be ASCII only"),
        "string_too_short": ("too_short", "must have at least {min_length} characters"),
        "string_too_long": ("too_long", "must have at most {max_length} characters"),
        "string_pattern_mismatch": ("wrong_format", "must match the pattern {pattern}"),
    }

    def is_light(self, node: Node, ask: Ask) -> bool:
        return True

    def publish_name(self, generator: Any, node: Any) -> Node:
        made = generator.generate_inner(without(node, "serialization"))
        return without(made, "type")


class Instance(Scalar):
    """A scalar that JSON carries as a string, and that validators of the author may hand over ready-made."""

    cls: ClassVar[type]
    is_name = True

    def or_ready(self, walk: Walk, parsed: Node, node: Node) -> Node:
        """`parsed`, or what is an instance already where that can be."""
        if not walk.is_behind:
            return parsed
        ready = {**without(node, "serialization"), "strict": True}
        return first_of(parsed, {"type": "chain", "steps": [core_schema.is_instance_schema(self.cls), ready]})

    def publish_name(self, generator: Any, node: Any) -> Node:
        return without(generator.generate_inner(without(node, "serialization")), "type")


class Unique(Instance):
    word = "a UUID"
    cls = uuid.UUID
    errors: ClassVar[Errors] = {
        "carmy_uuid": ("wrong_format", "must be a UUID in a string"),
        "uuid_type": ("wrong_format", "must be a UUID in a string"),
        "uuid_parsing": ("wrong_format", "must be a UUID in a string"),
        "uuid_version": ("wrong_format", "must be a UUID of version {expected_version}"),
    }

    def accept(self, walk: Walk, node: Node) -> Node:
        if node.get("strict") is False:
            return node
        # pydantic also reads "urn:uuid:...", braces and forms without hyphens, which the schema does not offer.
        text = core_schema.str_schema(strict=True, pattern=_UUID)
        bare = {**without(node, "serialization", "version"), "strict": False}
        parsed = named({"type": "chain", "steps": [text, bare]}, "uuid")
        both = {"type": "chain", "steps": [parsed, node]} if "version" in node else parsed
        return self.or_ready(walk, both, node)


_UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


class Exact(Instance):
    word = "a decimal number in a string"
    cls = Decimal
    is_finite = False
    errors: ClassVar[Errors] = dict.fromkeys(
        ("carmy_decimal", "decimal_type", "decimal_parsing"),
        ("wrong_format", "must be a decimal number in a string, such as '12.50', or an integer"),
    ) | {
        "decimal_max_digits": ("out_of_range", "must have at most {max_digits} digits"),
        "decimal_max_places": ("out_of_range", "must have at most {decimal_places} decimal places"),
        "decimal_whole_digits": ("out_of_range", "must have at most {whole_digits} digits before the decimal point"),
    }

    def accept(self, walk: Walk, node: Node) -> Node:
        if node.get("strict") is False:
            return {**node, "allow_inf_nan": False}
        text = core_schema.str_schema(strict=True, pattern=_DECIMAL)
        given: Node = {"type": "union", "mode": "left_to_right", "choices": [text, integer()]}
        made = {**without(node, "serialization"), "allow_inf_nan": False}
        read = {"type": "chain", "steps": [named(given, "decimal"), {**made, "strict": False}]}
        return self.or_ready(walk, read, made)

    def check(self, walk: Walk, node: Node) -> Node:
        made = {**without(node, "serialization"), "allow_inf_nan": False, "strict": False}
        return {"type": "chain", "steps": [core_schema.str_schema(strict=True), made]}

    def accept_name(self, walk: Walk, node: Node) -> Node:
        return self.accept(walk, node)

    def convert(self, walk: Walk, node: Node) -> Node:
        return {"strict": True, **node, "allow_inf_nan": False}

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        text: Node = {"type": "string", "pattern": _DECIMAL}
        if generator.mode == "serialization":
            return text
        whole: Node = {"type": "integer"}
        generator.update_with_validations(whole, {**node, "type": "int"}, generator.ValidationsMapping.numeric)
        return {"anyOf": [text, {key: _bound(value) for key, value in whole.items()}]}

    def publish_name(self, generator: Any, node: Any) -> Node:
        return {"pattern": _DECIMAL}


def _bound(value: Any) -> Any:
    """A bound of a Decimal as a JSON number."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == int(value) else float(value)


class Binary(Instance):
    word = "a base64 string"
    cls = bytes
    errors: ClassVar[Errors] = dict.fromkeys(
        ("carmy_bytes", "bytes_invalid_encoding"),
        ("wrong_format", "must be base64 in the standard alphabet, with padding"),
    ) | {
        "bytes_type": ("wrong_type", "must be bytes"),
        "bytes_too_short": ("too_short", "must have at least {min_length} bytes"),
        "bytes_too_long": ("too_long", "must have at most {max_length} bytes"),
    }

    def accept(self, walk: Walk, node: Node) -> Node:
        given = core_schema.no_info_after_validator_function(_from_base64, core_schema.str_schema(strict=True))
        bare = {**without(node, "serialization"), "strict": False}
        return self.or_ready(walk, {"type": "chain", "steps": [named(given, "bytes"), bare]}, bare)

    def write(self, walk: Walk, node: Node) -> Node:
        return node if "serialization" in node else {**node, "serialization": _BASE64}

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        return {"type": "string", "contentEncoding": "base64"}


def _from_base64(text: str) -> bytes:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if base64.b64encode(data).decode() != text:
        raise ValueError("not base64")  # bits that decode to nothing: two spellings of one value
    return data


def _to_base64(value: Any) -> str:
    return base64.b64encode(value).decode()


_BASE64: Any = core_schema.plain_serializer_function_ser_schema(_to_base64, return_schema=core_schema.str_schema())


class Address(Scalar):
    word = "a URL"
    is_name = True
    errors: ClassVar[Errors] = dict.fromkeys(
        ("url_type", "url_parsing", "url_syntax_violation"), ("wrong_format", "must be a URL")
    ) | {
        "url_too_long": ("too_long", "must have at most {max_length} characters"),
        "url_scheme": ("wrong_format", "must be a URL that begins with {expected_schemes}"),
    }

    def publish_name(self, generator: Any, node: Any) -> Node:
        return {}


class EmbeddedJson(Scalar):
    """A string that holds JSON, which arrives read."""

    word = "a string of JSON"
    is_finite = False
    errors: ClassVar[Errors] = {"json_type": ("wrong_type", "must be JSON in a string")}

    def accept(self, walk: Walk, node: Node) -> Node:
        return walk.parts(node)

    def check(self, walk: Walk, node: Node) -> Node:
        return walk.visit(node.get("schema") or {"type": "any"})

    def convert(self, walk: Walk, node: Node) -> Node:
        return walk.visit(node.get("schema") or {"type": "any"})

    def write(self, walk: Walk, node: Node) -> Node:
        return walk.visit(node.get("schema") or {"type": "any"})

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return True

    def proof(self, walk: Walk, node: Node) -> Proof:
        return uncertain


class Missing(Scalar):
    """pydantic's sentinel for a value that was not given."""

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return True

    def accept(self, walk: Walk, node: Node) -> Node:
        return node

    convert = accept
