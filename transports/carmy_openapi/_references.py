"""A document of OpenAPI: its references, and bounds on what a document of strangers can cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard
from urllib.parse import unquote

import msgspec

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""Size of a document. The largest public ones have about ten million bytes."""

MAX_OPERATIONS = 1000
"""Operations that become tools. No model chooses among more."""

MAX_REFERENCES = 32
"""References that are followed, one to the next."""

MAX_PARTS = 20_000
"""Parts of the schemas of one operation. Each can take a kilobyte of memory."""

MAX_DEPTH = 64
"""Levels of nesting of one schema."""


class DocumentError(Exception):
    """A part of a document that cannot be used; the text is the reason."""


def is_object(part: object) -> TypeGuard[dict[str, Any]]:
    """True for an object of JSON."""
    return isinstance(part, dict)


def is_array(part: object) -> TypeGuard[list[Any]]:
    """True for an array of JSON."""
    return isinstance(part, list)


def object_in(part: object, name: str) -> dict[str, Any]:
    """The object under a name; an empty one if there is none."""
    found: Any = part.get(name) if is_object(part) else None
    return found if is_object(found) else {}


class Document:
    """A document.

    Args:
        root: The parsed JSON.

    Attributes:
        root: The parsed JSON.
        is_3_0: Its schemas are those of OpenAPI 3.0, which are not JSON Schema.

    Raises:
        DocumentError: It is no document of OpenAPI 3.
    """

    def __init__(self, root: object) -> None:
        version = root.get("openapi") if is_object(root) else None
        if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
            what = f"its version is {version!r:.40}" if version is not None else "it has no member 'openapi'"
            raise DocumentError(f"it is no document of OpenAPI 3.0 or 3.1: {what}")
        assert is_object(root)
        self.root = root
        self.is_3_0 = version.startswith("3.0")

    @classmethod
    def parse(cls, data: bytes) -> Document:
        """The document in JSON.

        Raises:
            DocumentError: It is too large, no JSON, or no document of OpenAPI 3.
        """
        if len(data) > MAX_DOCUMENT_BYTES:
            raise DocumentError(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
        try:
            root = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise DocumentError("it is not JSON; convert YAML to JSON first") from None
        return cls(root)

    def at(self, pointer: str) -> Any:
        """What a reference refers to.

        Raises:
            DocumentError: It refers to another document, or to nothing.
        """
        if not pointer.startswith("#/"):
            raise DocumentError(f"the reference {pointer!r:.100} leads out of the document, which is not followed")
        part: Any = self.root
        for step in pointer[2:].split("/"):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if is_object(part) and name in part:
                part = part[name]
            elif is_array(part) and name.isdigit() and len(name) < 6 and int(name) < len(part):
                part = part[int(name)]
            else:
                raise DocumentError(f"the reference {pointer!r:.100} refers to nothing")
        return part

    def resolved(self, part: Any) -> Mapping[str, Any]:
        """An object, or the object that it refers to.

        Raises:
            DocumentError: It refers to nothing, in circles, or to something else.
        """
        for _ in range(MAX_REFERENCES):
            if not is_object(part):
                raise DocumentError("there is something else where an object belongs")
            reference = part.get("$ref")
            if not isinstance(reference, str):
                return part
            part = self.at(reference)
        raise DocumentError(f"more than {MAX_REFERENCES} references follow each other")
