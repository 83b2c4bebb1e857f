"""The position of a run, as a checkpoint contains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .._model.error_info import ErrorInfo
from .._model.errors import DeclarationError
from ._saved_calls import SavedCall

Owner = tuple[str | None, str | None, str]
"""The principal, the session and, if there is neither, the transport: these are part of the identity of every call of a run."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a node has asked with ``ctx.interrupt``.

    Attributes:
        node: The path of the node.
        value: The question, JSON-shaped.
    """

    node: str
    value: Any


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call with an unknown outcome.

    Attributes:
        node: The path of the node.
        tool: The name of the tool.
        execution_id: The execution whose outcome is not known.
        request_id: The identity of the call.
        state: ``interrupted``, or ``running`` if the first attempt has not ended.
    """

    node: str
    tool: str
    execution_id: str | None
    request_id: str
    state: str


class Cursor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A position on one way through the graph.

    Attributes:
        node: The next node; with `branches`, the node that has fanned out; None at the end.
        state: The state as JSON.
        error: The error that led to the node over an error edge.
        branches: The positions in the branches of a fan-out, by first node.
    """

    node: str | None
    state: msgspec.Raw
    error: ErrorInfo | None = None
    branches: dict[str, Cursor] | None = None

    def active(self) -> Iterator[Cursor]:
        """The positions at which a node is next, itself or those in its branches."""
        if self.branches is not None:
            for branch in self.branches.values():
                yield from branch.active()
        elif self.node is not None:
            yield self


class Position(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that a run needs to go on.

    Attributes:
        version: The graph's lines (`Layout.describe`) and the state's schema.
        cursor: The position.
        owner: The caller.
        visits: How often each node has ended.
        answers: The answers that the current visit of a node has had so far, by path.
        questions: Those without an answer, by path.
        calls: The completed calls of nodes that wait, by path and ``request_id``.
        doubts: Those of the last stop, by path.
        metadata: Of the run.
        error: The error that the run has ended with.
    """

    version: msgspec.Raw
    cursor: Cursor
    owner: Owner
    visits: dict[str, int] = {}
    answers: dict[str, list[Any]] = {}
    questions: dict[str, Question] = {}
    calls: dict[str, dict[str, SavedCall]] = {}
    doubts: dict[str, Doubt] = {}
    metadata: Mapping[str, Any] = {}
    error: ErrorInfo | None = None


def json_copy(value: Any, what: str) -> Any:
    """The value as it is read from a checkpoint.

    Args:
        value: JSON-shaped.
        what: Begins the message.

    Raises:
        DeclarationError: It has no JSON form.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise DeclarationError(f"{what} has no JSON form: {problem}") from None


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Position).decode
