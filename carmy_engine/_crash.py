"""What a tool's unexpected exception becomes: a generic answer, an id, and the traceback in the log under that id."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from typing import NoReturn, cast

import msgspec
import trio

from .errors import AgentError

log = logging.getLogger("carmy.engine")


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside nested groups, without the cancelled ones (trio wraps every nursery's error in a group)."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    elif not isinstance(error, trio.Cancelled):
        yield error


def reason_of(error: Exception) -> str:
    """Why, for a message: as the system says it, if that is the cause. The libraries between say only that it failed."""
    cause: BaseException | None = error
    while cause is not None:
        for leaf in leaves(cause):
            if isinstance(leaf, OSError) and leaf.errno is not None:
                # A negative number is not the system's, but one of looking up names.
                return os.strerror(leaf.errno) if leaf.errno > 0 else str(leaf.strerror)
        inner = cause.args[0] if cause.args else None  # one of the libraries keeps its cause there only
        cause = cause.__cause__ or (inner if isinstance(inner, BaseException) else None)
    return str(error) or type(error).__name__


def raise_single(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the only exception inside, with its own context; or the group, if there are several (or none)."""
    found = list(leaves(group))
    if len(found) != 1:
        raise group
    context = found[0].__context__
    try:
        raise found[0]
    finally:
        found[0].__context__ = context  # as it was: the group says nothing more


def as_agent_error(error: BaseException, what: str, *, expose: bool) -> tuple[AgentError, BaseException]:
    """Turn whatever a tool (or a host's callback) raised into an error for the caller.

    An `AgentError`, alone or as the only kind inside groups, passes as it is. Anything else is ``TOOL_PANIC``: its text may
    hold secrets, so the caller gets an id and the log gets the rest.

    Args:
        error: What was raised; holds at least one exception other than ``Cancelled``.
        what: Who raised it, for message and log, such as ``tool search``.
        expose: Development: add type and message of every leaf.

    Returns:
        The error, and the single exception (or the group) behind it.
    """
    found = list(leaves(error))
    if all(isinstance(leaf, AgentError) for leaf in found):
        first = found[0]
        assert isinstance(first, AgentError)
        return first, first
    error_id = secrets.token_hex(8)
    origin = found[0] if len(found) == 1 else error
    log.error("%s failed (error_id %s)", what, error_id, exc_info=error)
    details: dict[str, object] = {"error_id": error_id}
    if expose:
        details["exceptions"] = [{"type": type(leaf).__name__, "message": str(leaf)} for leaf in found]
    return (
        AgentError.standard(
            "TOOL_PANIC",
            f"{what} failed unexpectedly",
            suggested_action=f"Look for error_id {error_id} in the server's log.",
            details=details,
        ),
        origin,
    )


def sendable(error: AgentError) -> AgentError:
    """The same error, without details that cannot be written as JSON (which the log then names)."""
    try:
        msgspec.json.encode(error.info)
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        log.exception("the details of an AgentError %s cannot be written as JSON and are left out", error.code)
        return AgentError.of(msgspec.structs.replace(error.info, details=None))
    return error
