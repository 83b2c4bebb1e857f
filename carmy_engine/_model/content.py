"""Content for people and models: what a tool, a resource or a prompt gives besides JSON-shaped data.

In JSON each item is an object with a ``type``, such as ``{"type": "image", "mime_type": "image/png", "data": "..."}``, with bytes in
base64. The output schema of a tool marks these objects with `CONTENT_KEYWORD`, so that transports and providers recognise them.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec

from .result import ExecutionResult
from .type_guards import is_dict, is_list

CONTENT_KEYWORD = "x-carmy-content"
"""The keyword in the JSON Schema of a content object; its value is the object's ``type``."""

_UNSET = msgspec.UNSET


class _Content(msgspec.Struct, frozen=True, tag_field="type"):
    """The base of all kinds of content."""


class Text(_Content, frozen=True, tag="text"):
    """A text.

    Attributes:
        text: The text.
    """

    text: str


class _Media(_Content, frozen=True):
    data: bytes
    mime_type: str

    @classmethod
    def read(cls, path: str | Path, mime_type: str | None = None) -> Self:
        """The content of a file. Blocks while it reads: in an ``async`` tool, call it in a thread.

        Args:
            path: The file.
            mime_type: Default: guessed from the name.

        Raises:
            OSError: The file cannot be read.
            ValueError: No type can be guessed.
        """
        mime_type = mime_type or mimetypes.guess_type(path)[0]
        if mime_type is None:
            raise ValueError(f"the name of {Path(path).name} has no known type; pass mime_type=")
        return cls(Path(path).read_bytes(), mime_type)


class Image(_Media, frozen=True, tag="image"):
    """An image.

    Attributes:
        data: The bytes of the file.
        mime_type: Such as ``image/png``.
    """


class Audio(_Media, frozen=True, tag="audio"):
    """A recording.

    Attributes:
        data: The bytes of the file.
        mime_type: Such as ``audio/wav``.
    """


class File(_Content, frozen=True, kw_only=True, omit_defaults=True, tag="file"):
    """A file, with its content: either `text` or `data`.

    Attributes:
        uri: Its address.
        mime_type: Such as ``text/csv``.
        text: The content of a text file.
        data: The content of any other.
    """

    uri: str
    mime_type: str | msgspec.UnsetType = _UNSET
    text: str | msgspec.UnsetType = _UNSET
    data: bytes | msgspec.UnsetType = _UNSET

    def __post_init__(self) -> None:
        if (self.text is _UNSET) == (self.data is _UNSET):
            raise ValueError("a File has either text or data")


class ResourceLink(_Content, frozen=True, kw_only=True, omit_defaults=True, tag="resource_link"):
    """The address of a resource that the reader may fetch.

    Attributes:
        uri: Its address.
        name: Its name, for programs.
        title: Its name, for people.
        description: What it holds.
        mime_type: Such as ``text/csv``.
        size: In bytes.
    """

    uri: str
    name: str
    title: str | msgspec.UnsetType = _UNSET
    description: str | msgspec.UnsetType = _UNSET
    mime_type: str | msgspec.UnsetType = _UNSET
    size: int | msgspec.UnsetType = _UNSET


Content: TypeAlias = Text | Image | Audio | File | ResourceLink
"""Any content."""

KINDS: tuple[type[_Content], ...] = (Text, Image, Audio, File, ResourceLink)


def tag_of(kind: Any) -> str | None:
    """The ``type`` of a class of content; None for other classes."""
    return str(kind.__struct_config__.tag) if kind in KINDS else None


def has_content(schema: Mapping[str, Any]) -> bool:
    """True if results with this output schema may hold content."""
    seen: set[int] = set()
    ahead: list[Any] = [schema]
    while ahead:
        one = ahead.pop()
        if not is_dict(one) or id(one) in seen:
            continue
        if isinstance(one.get(CONTENT_KEYWORD), str):
            return True
        seen.add(id(one))
        reference = one.get("$ref")
        if isinstance(reference, str):
            ahead.append(schema.get("$defs", {}).get(reference.rpartition("/")[2]))
        for keyword in ("anyOf", "oneOf", "prefixItems"):
            ahead += one.get(keyword, ())
        ahead.append(one.get("items"))
    return False


def content_of(output_schema: Mapping[str, Any], result: ExecutionResult) -> list[Content] | None:
    """The content of a result; None if its tool returns plain data, or if it failed.

    Whatever stands beside content in a list is text: strings as they are, other values as JSON.

    Args:
        output_schema: Of the tool, as its spec or the catalog has it.
        result: The result.
    """
    if result.data_json is None or not has_content(output_schema):
        return None
    value = msgspec.json.decode(result.data_json)
    if value is None:
        return []
    return [_item(one) for one in (value if is_list(value) else [value])]


def _item(value: Any) -> Content:
    if isinstance(value, str):
        return Text(value)
    try:
        content: Content = msgspec.convert(value, Content)
    except msgspec.ValidationError:
        return Text(msgspec.json.encode(value).decode())
    return content


def text_for(content: Content) -> str:
    """Content in words, for readers that take text only: texts as they are, a placeholder for the others."""
    match content:
        case Text():
            return content.text
        case File(text=str(text)):
            return text
        case File(data=bytes(data)):
            return f"[file {content.uri}, {len(data)} bytes]"
        case ResourceLink():
            return f"[{content.name if content.title is _UNSET else content.title}]({content.uri})"
        case Image() | Audio():
            return f"[{content.__struct_config__.tag} {content.mime_type}, {len(content.data)} bytes]"
        case _:
            raise AssertionError  # a File has either
