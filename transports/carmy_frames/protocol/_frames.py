"""The frames of ``carmy-frames/1``, in both directions: frozen, and checked when they are decoded."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from carmy_engine import ErrorInfo
from carmy_engine.transport import OnRunning

Id: TypeAlias = str | int
"""The id of a request, chosen by the client; echoed with its type."""


NO_ARGUMENTS = msgspec.Raw(b"null")
"""Stands for ``{}``, as a missing field does."""


class _Request(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="op"
):
    """A frame of a client.

    Attributes:
        id: Echoed in every frame that answers it.
    """

    id: Id


class Call(_Request, frozen=True, kw_only=True, tag="call"):
    """Run a tool.

    Attributes:
        tool: Its name.
        arguments: JSON; missing and null mean ``{}``.
        request_id: The idempotency identity.
        timeout_ms: Limit in milliseconds.
        on_running: ``wait`` to wait for a running attempt with the same request_id.
        stream: Send events before the answer.
    """

    tool: str
    arguments: msgspec.Raw = NO_ARGUMENTS
    request_id: str | None = None
    timeout_ms: float | None = None
    on_running: OnRunning = "refuse"
    stream: bool = False


class Cancel(_Request, frozen=True, kw_only=True, tag="cancel"):
    """Cancel a running call, by exactly one of `target` and `execution_id`. The call still gets its one answer.

    Attributes:
        target: The id of a call on this connection.
        execution_id: Any execution of the same principal.
        gone: With `target`: the caller discards the answer. A running write then counts as interrupted, as after a
            lost connection; otherwise the cancel is recorded as its outcome.
    """

    target: Id | None = None
    execution_id: str | None = None
    gone: bool = False


class Tools(_Request, frozen=True, kw_only=True, tag="tools"):
    """Ask for the catalog."""


class Describe(_Request, frozen=True, kw_only=True, tag="describe"):
    """Ask for one entry of the catalog.

    Attributes:
        tool: Its name.
    """

    tool: str


class Resources(_Request, frozen=True, kw_only=True, tag="resources"):
    """Ask for the resources and templates."""


class Prompts(_Request, frozen=True, kw_only=True, tag="prompts"):
    """Ask for the prompts."""


class Read(_Request, frozen=True, kw_only=True, tag="read"):
    """Read a resource. It is a call, and can be cancelled as one.

    Attributes:
        uri: Its address.
        timeout_ms: Limit in milliseconds.
    """

    uri: str
    timeout_ms: float | None = None


class Prompt(_Request, frozen=True, kw_only=True, tag="prompt"):
    """Render a prompt. It is a call, and can be cancelled as one.

    Attributes:
        name: Its name.
        arguments: By name.
        timeout_ms: Limit in milliseconds.
    """

    name: str
    arguments: dict[str, Any] | None = None
    timeout_ms: float | None = None


class Complete(_Request, frozen=True, kw_only=True, tag="complete"):
    """Ask for values of an argument.

    Attributes:
        kind: ``prompt`` or ``resource``.
        name: The name of the prompt; the name or the address of the template.
        argument: The argument.
        value: The beginning of its value.
        given: The other arguments, as far as they are known.
    """

    kind: Literal["prompt", "resource"]
    name: str
    argument: str
    value: str = ""
    given: dict[str, str] = {}


class Ping(_Request, frozen=True, kw_only=True, tag="ping"):
    """Ask for an answer."""


class Help(_Request, frozen=True, kw_only=True, tag="help"):
    """Ask for the operations."""


Run: TypeAlias = Call | Read | Prompt | Complete
"""A request that runs code of the application, beside others."""

RUNS = (Call, Read, Prompt, Complete)
"""The classes of `Run`, the most frequent first."""

Request: TypeAlias = Run | Cancel | Tools | Describe | Resources | Prompts | Ping | Help


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a server.

    Attributes:
        max_message_bytes: Bytes of one message to the server.
        max_calls: Unanswered calls on one connection.
    """

    max_message_bytes: int
    max_calls: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The first frame of a connection, from the server.

    Attributes:
        protocol: Always ``carmy-frames/1``.
        server: The server's name.
        tools: Number of tools that the caller may use.
        tools_version: The version of the catalog.
        limits: See `Limits`.
    """

    protocol: str
    server: str
    tools: int
    tools_version: str
    limits: Limits


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a streaming call.

    Attributes:
        id: The id of the call.
        event: Its kind.
        seq: Its position, from 0.
        data: Its payload, JSON.
    """

    id: Id
    event: str
    seq: int
    data: msgspec.Raw


class ResultFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a valid request, also if the execution failed.

    Attributes:
        id: The id of the request.
        ok: True.
        result: JSON.
    """

    id: Id
    ok: bool = True
    result: msgspec.Raw


class ErrorFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an invalid or refused request.

    Attributes:
        id: The id of the request; None if it could not be read.
        ok: False.
        error: The reason.
    """

    id: Id | None
    ok: bool = False
    error: ErrorInfo


ServerFrame: TypeAlias = Ready | Event | ResultFrame | ErrorFrame
