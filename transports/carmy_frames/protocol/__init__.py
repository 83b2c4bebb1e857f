"""The frame protocol, without a loop: bytes in, frames out.

A message has at most one meaning, so there are three verbs: ``receive_message`` gives the frame in it, ``send`` gives
the bytes of one, ``receive_end`` tells that the peer has said its last. Misuse of ours raises `LocalProtocolError`; a
peer's raises `RemoteProtocolError`, with the reply that the peer deserves. Lines (`LineBuffer`) and server-sent events
(`EventReader`) are two ways to find the messages in a stream of bytes.
"""

from __future__ import annotations

from ._codec import MAX_MESSAGE_BYTES, PROTOCOL, decode_answer, decode_request, encode, one_line
from ._connection import ClientConnection, ServerConnection
from ._errors import LocalProtocolError, RemoteProtocolError
from ._frames import (
    NO_ARGUMENTS,
    Answer,
    Call,
    Cancel,
    Describe,
    Event,
    Help,
    Id,
    Limits,
    Ping,
    Ready,
    Refusal,
    Request,
    ServerFrame,
    Tools,
)
from ._lines import LineBuffer
from ._result_decoder import parse_catalog, parse_event, parse_result
from ._state import CALL, CLIENT, SERVER, CallState, ClientState, ServerState, Signal, Table

__all__ = [
    "CALL",
    "CLIENT",
    "MAX_MESSAGE_BYTES",
    "NO_ARGUMENTS",
    "PROTOCOL",
    "SERVER",
    "Answer",
    "Call",
    "CallState",
    "Cancel",
    "ClientConnection",
    "ClientState",
    "Describe",
    "Event",
    "Help",
    "Id",
    "Limits",
    "LineBuffer",
    "LocalProtocolError",
    "Ping",
    "Ready",
    "Refusal",
    "RemoteProtocolError",
    "Request",
    "ServerConnection",
    "ServerFrame",
    "ServerState",
    "Signal",
    "Table",
    "Tools",
    "decode_answer",
    "decode_request",
    "encode",
    "one_line",
    "parse_catalog",
    "parse_event",
    "parse_result",
]
