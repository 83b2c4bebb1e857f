"""Execution ids, and the rule for request ids."""

from __future__ import annotations

import os

from .errors import AgentError

MAX_REQUEST_ID_BYTES = 256
"""Bytes of UTF-8. Room for any UUID, path or hash; small enough to index."""

_BATCH = 256
"""Ids generated at once: one at a time takes three times as long."""

_LAYOUT = b"exec_########-####-4###-@###-############ "
"""``#`` stands for a random digit, ``@`` for one of 8, 9, a and b."""

_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)

_ready: list[str] = []
os.register_at_fork(after_in_child=_ready.clear)  # otherwise parent and child would use the same ids


def new_execution_id() -> str:
    """``exec_`` and a random UUID (version 4, RFC 9562): 41 characters, not guessable, safe in threads and after a fork."""
    try:
        return _ready.pop()
    except IndexError:
        first, *others = _batch()
        _ready.extend(others)
        return first


def _batch() -> list[str]:
    digits = os.urandom(16 * _BATCH).hex().encode()
    text = bytearray(_LAYOUT * _BATCH)
    drawn = 0
    for place, kind in enumerate(_LAYOUT):
        if kind in b"#@":  # one column for all ids
            column = digits[drawn::32]
            text[place :: len(_LAYOUT)] = column if kind == ord("#") else column.translate(_VARIANT)
            drawn += 1
    return text.decode().split()


def check_request_id(request_id: object) -> str:
    """Return a valid request_id unchanged.

    Raises:
        AgentError: ``INVALID_ID``, if it is not a string of 1-256 bytes of UTF-8.
    """
    if not isinstance(request_id, str):
        raise AgentError.standard("INVALID_ID", "request_id must be a string")
    if not request_id:
        raise AgentError.standard("INVALID_ID", "request_id is empty; leave it out, or send 1-256 bytes")
    try:
        size = len(request_id.encode())
    except UnicodeEncodeError:
        raise AgentError.standard("INVALID_ID", "request_id is not valid Unicode") from None
    if size > MAX_REQUEST_ID_BYTES:
        raise AgentError.standard(
            "INVALID_ID", f"request_id has {size} bytes; at most {MAX_REQUEST_ID_BYTES} may be sent"
        )
    return request_id
