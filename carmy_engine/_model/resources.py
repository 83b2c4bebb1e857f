"""Resources and prompts as callers see them, the completion of their arguments, and changes of all lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from .content import Content


class ResourceSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource, or a template of resources; the order of the fields is the order on the wire.

    Attributes:
        name: Its name, for programs.
        uri: Its address; None for a template.
        uri_template: The addresses of a template (RFC 6570), such as ``orders://{id}``.
        title: Its name, for people.
        description: What it holds.
        mime_type: Of its content, if it is always the same.
        arguments: JSON Schema of the variables of a template.
    """

    name: str
    uri: str | None = None
    uri_template: str | None = None
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    arguments: Mapping[str, Any] | None = None


class PromptSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt; the order of the fields is the order on the wire.

    Attributes:
        name: Its name, for programs.
        title: Its name, for people.
        description: What it is for.
        arguments: JSON Schema of its arguments, root ``type: object``.
    """

    name: str
    title: str | None = None
    description: str = ""
    arguments: Mapping[str, Any]


class ResourceCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that one caller may read, in the order of their declaration.

    Attributes:
        resources: Those with an address of their own.
        templates: Those whose address has variables.
        document: The catalog as JSON, ``{"resources": [...], "templates": [...]}``.
        version: Lower-case hex SHA-256 of `document`.
    """

    resources: tuple[ResourceSpec, ...]
    templates: tuple[ResourceSpec, ...]
    document: bytes
    version: str


class PromptCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts that one caller may get, in the order of their declaration.

    Attributes:
        prompts: The entries.
        document: The catalog as JSON, ``{"prompts": [...]}``.
        version: Lower-case hex SHA-256 of `document`.
    """

    prompts: tuple[PromptSpec, ...]
    document: bytes
    version: str


class ResourceContents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of what a read resource holds: either `text` or `data`.

    Attributes:
        uri: Its address.
        mime_type: Such as ``text/csv``.
        text: The content of a text.
        data: The content of anything else.
    """

    uri: str
    mime_type: str | None = None
    text: str | None = None
    data: bytes | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of a prompt.

    Attributes:
        content: A text, or other content.
        role: Its speaker.
    """

    content: Content
    role: Literal["user", "assistant"] = "user"


class ReadResult(msgspec.Struct, frozen=True):
    """The data of a result of ``read_resource``; ``msgspec.json.decode(result.data_json, type=ReadResult)``.

    Attributes:
        contents: The parts of the resource.
    """

    contents: tuple[ResourceContents, ...]


class PromptResult(msgspec.Struct, frozen=True):
    """The data of a result of ``get_prompt``.

    Attributes:
        messages: The messages, in order.
        description: What the prompt is for.
    """

    messages: tuple[Message, ...]
    description: str = ""


MAX_COMPLETIONS = 100
"""Values in one completion, the limit of MCP. More do not help a person to choose."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Values for an argument of which the beginning is known.

    Attributes:
        values: At most `MAX_COMPLETIONS`.
        total: How many there are.
        has_more: There are others.
    """

    values: tuple[str, ...]
    total: int
    has_more: bool


class Change(msgspec.Struct, frozen=True):
    """A change, for watchers.

    Attributes:
        kind: The list that has changed: ``tools``, ``resources`` or ``prompts``; or ``resource``, the content of one.
        uri: Of a resource whose content has changed.
    """

    kind: Literal["tools", "resources", "prompts", "resource"]
    uri: str | None = None
