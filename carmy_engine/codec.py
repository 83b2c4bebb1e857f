"""JSON as the engine speaks it: what is refused on the way in, and the body of an answer on the way out.

Transports share this module, so that all of them refuse the same bytes and answer with the same ones.
"""

from ._model.codec import (
    LONG_MESSAGE_BYTES,
    MAX_JSON_DEPTH,
    MAX_REASON,
    UniqueNames,
    answer_body,
    check_json,
    check_timeout_ms,
    containers_in,
    decode,
    duplicate_key,
    escape_line_ends,
    event_body,
    invalid_request,
    is_json,
    one_line,
    refuse_undecodable,
)
from ._model.confirmation import confirmation_body
from ._model.json_pieces import no_pulse, read_in_pieces

__all__ = [
    "LONG_MESSAGE_BYTES",
    "MAX_JSON_DEPTH",
    "MAX_REASON",
    "UniqueNames",
    "answer_body",
    "check_json",
    "check_timeout_ms",
    "confirmation_body",
    "containers_in",
    "decode",
    "duplicate_key",
    "escape_line_ends",
    "event_body",
    "invalid_request",
    "is_json",
    "no_pulse",
    "one_line",
    "read_in_pieces",
    "refuse_undecodable",
]
