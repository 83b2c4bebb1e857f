"""JSON texts on a command line."""

from __future__ import annotations

import sys

from .._model.codec import check_json, decode
from .._model.errors import AgentError
from ._outcome import UsageError


def json_word(word: str, what: str, hint: str = "") -> bytes:
    """The JSON text of a word, or for ``-`` that of standard input.

    Args:
        word: As on the command line.
        what: Begins the message for a text that is not valid.
        hint: Ends that message; not for a text from standard input.

    Raises:
        UsageError: It is not one JSON text.
    """
    text = sys.stdin.buffer.read() if word == "-" else word.encode("utf-8", "surrogateescape")
    try:
        check_json(text)
        decode(text)
    except AgentError as error:
        reason = (error.details or {}).get("reason")
        raise UsageError(f"{what} not valid JSON: {reason}{'' if word == '-' else hint}") from None
    return text
