"""Strict reading of HTTP/1 requests, shared by every listener that speaks it. Pure: no loop, no sockets, no clocks.

Two parties that disagree about where a message ends can be made to see different requests (request smuggling). So each listener
reads heads and bodies with these classes, and a parser behind them gets only what they have accepted.

- `HeadReader` takes a complete head off a buffer; `read_head` parses it to a `ParsedHead`.
- `BodyReader` takes the body that the head announces off the same buffer.
- `FramingError` is what they raise: the status and reason of the answer, after which the connection closes.

Every rule costs time linear in the bytes it sees: lengths are bounded before anything is matched, and no pattern has a repetition
next to another one that takes the same bytes.
"""

from __future__ import annotations

from ._body import MAX_BODY_CHUNKS, MAX_EXTENSION_BYTES, MAX_TRAILER_BYTES, BodyReader
from ._error import FramingError
from ._head import END_OF_HEAD, MAX_HEAD_BYTES, MAX_HEADER_LINES, HeadReader, ParsedHead, read_head

__all__ = [
    "END_OF_HEAD",
    "MAX_BODY_CHUNKS",
    "MAX_EXTENSION_BYTES",
    "MAX_HEADER_LINES",
    "MAX_HEAD_BYTES",
    "MAX_TRAILER_BYTES",
    "BodyReader",
    "FramingError",
    "HeadReader",
    "ParsedHead",
    "read_head",
]
