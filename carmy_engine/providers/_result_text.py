"""A result in words that a model can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .._model.errors import CODES
from .._model.result import ExecutionResult


def _same(name: str) -> str:
    return name


def text_of(result: ExecutionResult, name_for: Callable[[str], str] = _same) -> str:
    """A result as text for a model: a text as it is, other outputs as JSON, an error as the way to repair the call.

    Args:
        result: The result.
        name_for: Returns the exported name of a tool.
    """
    error = result.error
    if error is None:
        data = result.data_json or b"null"
        return msgspec.json.decode(data, type=str) if data.startswith(b'"') else data.decode()
    if error.code == "INVALID_ARGUMENTS":
        return f"invalid arguments: {error.message}"
    if error.code == "TOOL_NOT_PERMITTED":
        return "not permitted for this agent"
    if error.code == "TOOL_NOT_FOUND":
        near: Any = (error.details or {}).get("near") or ()
        names = " or ".join(name_for(name) for name in near)
        return f"no such tool; did you mean {names}?" if names else "no such tool"
    if error.code == "TOOL_PANIC":
        return error.message  # what to look for, and where, is for people
    text = error.message if error.code in CODES else f"the tool failed: {error.message}"
    if error.suggested_action is not None:
        text = f"{text.rstrip('.')}. {error.suggested_action}"
    if error.retry_after is not None:
        text = f"{text.rstrip('.')}. Try again in {error.retry_after:g} seconds."
    return text
