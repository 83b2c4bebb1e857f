"""The rule for request ids."""

from __future__ import annotations

from .errors import AgentError

MAX_REQUEST_ID_BYTES = 256
"""Bytes of UTF-8. Room for any UUID, path or hash; small enough to index."""


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
