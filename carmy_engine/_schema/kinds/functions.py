"""Validators of the author and of pydantic round a type, and classes that pydantic does not know."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import pydantic
from pydantic.types import Base64UrlEncoder
from pydantic_core import PydanticSerializationUnexpectedValue, core_schema

from ..._model.type_guards import is_dict
from ..annotations import UnusableType, names_of_types
from ..expander import Expander
from ..kind import AnyJson, Errors, Kind, Proof, Steps, Walk, uncertain
from ..labels import NULL, VALUE
from ..nodes import Node, function_of, is_pydantics
from ..structs import is_struct, struct_of
from .wrappers import Transparent


class After(Transparent):
    """A validator that gets a value which has its type; a Struct is one, too."""

    def expand(self, walk: Walk, node: Node) -> Node:
        owner = getattr(function_of(node), "__self__", None)
        if isinstance(owner, pydantic.EncodedBytes):
            return walk.visit(_encoded(node, owner))
        if isinstance(owner, pydantic.EncodedStr):
            decode = functools.partial(_decode_text, owner.encoder)
            return walk.parts({**node, "function": {"type": "no-info", "function": decode}})
        return walk.parts(node)

    def accept(self, walk: Walk, node: Node) -> Node:
        cls = struct_of(node)
        if walk.is_bare and cls is None:
            return walk.visit(node["schema"])
        made = walk.parts(node)
        if cls is None or not walk.is_behind:
            return made
        ready = core_schema.is_instance_schema(cls)
        return {"type": "union", "mode": "left_to_right", "choices": [(made, VALUE), (ready, NULL)]}

    def check(self, walk: Walk, node: Node) -> Node:
        inner = walk.visit(node["schema"])
        if struct_of(node) is not None or not is_pydantics(node):
            return inner
        function: Node = {"type": "no-info", "function": functools.partial(_held, function_of(node))}
        is_plain = not is_dict(node["function"]) or node["function"]["type"] == "no-info"
        return {"type": "function-after", "function": function, "schema": inner} if is_plain else inner

    def convert(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        cls = struct_of(node)
        if cls is None:
            return made["schema"] if walk.is_bare else made
        return {
            "type": "union",
            "mode": "left_to_right",
            "choices": [(core_schema.is_instance_schema(cls), NULL), (made, VALUE)],
        }

    def proof(self, walk: Walk, node: Node) -> Proof:
        return uncertain if is_pydantics(node) else walk.proof(node["schema"])


def _held(function: Callable[[Any], Any], value: Any) -> Any:
    """A constraint of pydantic's, on values that it can be asked of."""
    # What is checked here is the JSON of an object, which the constraint may not be able to read.
    with contextlib.suppress(TypeError, AttributeError):
        function(value)
    return value


def _encoded(node: Node, owner: pydantic.EncodedBytes) -> Node:
    """Bytes that pydantic decodes from a text: one coding, and not base64 of it."""
    if owner.encoder is pydantic.Base64Encoder:
        return {"type": "bytes"}  # as all bytes are

    def encode(value: Any) -> str:
        if not isinstance(value, bytes):
            raise PydanticSerializationUnexpectedValue("expected bytes")
        return owner.encoder.encode(value).decode()

    return {
        **node,
        "function": {"type": "no-info", "function": functools.partial(_decode, owner.encoder)},
        "schema": {"type": "str"},
        "serialization": core_schema.plain_serializer_function_ser_schema(
            encode, return_schema=core_schema.str_schema()
        ),
    }


_ALPHABETS: dict[type, str] = {pydantic.Base64Encoder: "standard", Base64UrlEncoder: "URL-safe"}
"""Of the codings that pydantic brings. Both leave out what they do not know, and take the rest."""


def _decode(encoder: type[pydantic.EncoderProtocol], text: str) -> bytes:
    """The bytes of a text; of base64, only in its one spelling.

    Raises:
        ValueError: The text is not in the coding.
    """
    alphabet = _ALPHABETS.get(encoder)
    if alphabet is None:
        return encoder.decode(text.encode())
    with contextlib.suppress(ValueError):
        data = encoder.decode(text.encode())
        if encoder.encode(data).decode() == text:
            return data
    raise ValueError(f"must be base64 in the {alphabet} alphabet, with padding")


def _decode_text(encoder: type[pydantic.EncoderProtocol], text: str) -> str:
    """The text that a text encodes; see `_decode`.

    Raises:
        ValueError: It is none.
    """
    data = _decode(encoder, text)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("must encode a text in UTF-8") from None


class Before(Transparent):
    """A validator that gets what was sent, and hands on anything."""

    steps: ClassVar[Steps] = "author"

    def accept(self, walk: Walk, node: Node) -> Node:
        if is_pydantics(node):
            return walk.parts(node)
        if walk.is_bare:
            return {"type": "any"}
        before, walk.is_behind = walk.is_behind, True
        try:
            return walk.parts(node)
        finally:
            walk.is_behind = before

    def check(self, walk: Walk, node: Node) -> Node:
        return walk.visit(node["schema"])

    def convert(self, walk: Walk, node: Node) -> Node:
        return {"type": "any"} if walk.is_bare else walk.parts(node)


class Plain(AnyJson):
    """A validator in place of a type."""

    def accept(self, walk: Walk, node: Node) -> Node:
        return {"type": "any"} if walk.is_bare else node

    def accept_name(self, walk: Walk, node: Node) -> Node:
        return node

    def check(self, walk: Walk, node: Node) -> Node:
        return {"type": "any"}

    def convert(self, walk: Walk, node: Node) -> Node:
        return {"type": "any"} if walk.is_bare else node

    def publish_name(self, generator: Any, node: Any) -> Node:
        return {}


class Instances(Kind):
    """A class that pydantic does not know; the core schema of a Struct is made of it."""

    errors: ClassVar[Errors] = {"is_instance_of": ("wrong_type", "must be an instance of {class}")}

    def expand(self, walk: Walk, node: Node) -> Node:
        cls = node["cls"]
        if not is_struct(cls):
            raise UnusableType(
                f"{names_of_types(cls)} has no JSON form", "Use a model, a dataclass, a TypedDict or a msgspec Struct."
            )
        assert isinstance(walk, Expander)
        return walk.struct(cls)
