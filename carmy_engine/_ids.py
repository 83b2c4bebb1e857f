"""Execution ids, and the rule for request ids."""

from __future__ import annotations

import os

from .errors import AgentError

MAX_REQUEST_ID_BYTES = 256
"""Of UTF-8. Room for any UUID, path or hash; small enough to index."""

_BATCH = 256
"""Ids for which random bytes are drawn at once: asking the kernel for each costs as much as the rest of the id."""

_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_random: list[str] = []
os.register_at_fork(after_in_child=_random.clear)  # or parent and child would give the same ids


def new_execution_id() -> str:
    """``exec_`` and a random UUID (version 4, RFC 9562): 41 characters, not guessable, safe in threads and after a fork."""
    # uuid.uuid4() gives the same in four times the time, and every call needs one.
    try:
        h = _random.pop()
    except IndexError:
        drawn = os.urandom(16 * _BATCH).hex()
        _random.extend(drawn[start : start + 32] for start in range(32, len(drawn), 32))
        h = drawn[:32]
    return f"exec_{h[:8]}-{h[8:12]}-4{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:]}"


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
