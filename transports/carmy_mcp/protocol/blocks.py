"""Content as the blocks of the protocol, and back."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from carmy_engine.content import (
    Audio,
    Content,
    File,
    Image,
    Message,
    PromptSpec,
    ResourceContents,
    ResourceLink,
    ResourceSpec,
    Text,
    text_for,
)

_SINCE: dict[type[Any], str] = {Audio: "2025-03-26", ResourceLink: "2025-06-18"}
"""The first version with a kind of block. Older clients get its words."""

_UNSET = msgspec.UNSET


def block_of(content: Content, version: str) -> dict[str, Any]:
    """The block of a piece of content.

    Args:
        content: The content.
        version: The version of the client.
    """
    if version < _SINCE.get(type(content), ""):
        return {"type": "text", "text": text_for(content)}
    match content:
        case Text():
            return {"type": "text", "text": content.text}
        case Image():
            return {"type": "image", "data": content.data, "mimeType": content.mime_type}
        case Audio():
            return {"type": "audio", "data": content.data, "mimeType": content.mime_type}
        case File():
            body = {"text": content.text} if content.text is not _UNSET else {"blob": content.data}
            return {"type": "resource", "resource": _given(uri=content.uri, mimeType=content.mime_type, **body)}
        case ResourceLink():
            return _given(
                type="resource_link",
                uri=content.uri,
                name=content.name,
                title=content.title,
                description=content.description,
                mimeType=content.mime_type,
                size=content.size,
            )


def content_of_block(block: Any) -> Content:
    """The content of a block; a text of its JSON for a block of another kind."""
    try:
        match block:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image", "data": str(data), "mimeType": str(mime_type)}:
                return Image(base64.b64decode(data, validate=True), mime_type)
            case {"type": "audio", "data": str(data), "mimeType": str(mime_type)}:
                return Audio(base64.b64decode(data, validate=True), mime_type)
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)} as found}:
                return File(uri=uri, text=text, mime_type=_text(found.get("mimeType")))
            case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)} as found}:
                binary = base64.b64decode(data, validate=True)
                return File(uri=uri, data=binary, mime_type=_text(found.get("mimeType")))
            case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
                size = block.get("size")
                return ResourceLink(
                    uri=uri,
                    name=name,
                    title=_text(block.get("title")),
                    description=_text(block.get("description")),
                    mime_type=_text(block.get("mimeType")),
                    size=size if isinstance(size, int) else _UNSET,
                )
            case _:
                pass
    except binascii.Error:
        pass
    return Text(msgspec.json.encode(block).decode())


def message_of(message: Message, version: str) -> dict[str, Any]:
    """A message of a prompt or of a conversation."""
    return {"role": message.role, "content": block_of(message.content, version)}


def contents_of(part: ResourceContents) -> dict[str, Any]:
    """One part of a resource."""
    body = {"text": part.text} if part.text is not None else {"blob": part.data or b""}
    return _given(uri=part.uri, mimeType=part.mime_type or _UNSET, **body)


def resource_entry(spec: ResourceSpec) -> dict[str, Any]:
    """A resource or a template in its list."""
    return _given(
        name=spec.name,
        uri=spec.uri or _UNSET,
        uriTemplate=spec.uri_template or _UNSET,
        title=spec.title or _UNSET,
        description=spec.description or _UNSET,
        mimeType=spec.mime_type or _UNSET,
    )


def prompt_entry(spec: PromptSpec) -> dict[str, Any]:
    """A prompt in its list."""
    required = spec.arguments.get("required", ())
    arguments = [
        _given(name=name, description=schema.get("description", _UNSET), required=name in required)
        for name, schema in spec.arguments.get("properties", {}).items()
    ]
    return _given(
        name=spec.name, title=spec.title or _UNSET, description=spec.description or _UNSET, arguments=arguments
    )


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not _UNSET}


def _text(value: object) -> str | msgspec.UnsetType:
    return value if isinstance(value, str) else _UNSET
