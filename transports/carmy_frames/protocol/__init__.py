"""The frame protocol, without a loop: bytes in, frames out.

A message has at most one meaning, so there are three verbs: ``receive_message`` gives the frame in it, ``send`` gives
the bytes of one, ``receive_end`` tells that the peer has said its last. Misuse of ours raises `LocalProtocolError`; a
peer's raises `RemoteProtocolError`, with the reply that the peer deserves. Lines (`LineBuffer`) and server-sent events
(`EventReader`) are two ways to find the messages in a stream of bytes.
"""

from __future__ import annotations

from ._codec import HELP_RESULT, MAX_MESSAGE_BYTES, PROTOCOL, decode_request, decode_server_frame, encode, one_line
from ._errors import LocalProtocolError, RemoteProtocolError
from ._frames import (
    NO_ARGUMENTS,
    Call,
    Cancel,
    Describe,
    ErrorFrame,
    Event,
    Help,
    Id,
    Limits,
    Ping,
    Ready,
    Request,
    ResultFrame,
    ServerFrame,
    Tools,
)
from ._lines import LineBuffer
from ._protocols import ClientProtocol, ServerProtocol
from ._result_decoder import parse_catalog, parse_event, parse_result
from ._state import CALL, CLIENT, SERVER, CallState, ClientState, ServerState, Signal, Table

__all__ = [
    "CALL",
    "CLIENT",
    "HELP_RESULT",
    "MAX_MESSAGE_BYTES",
    "NO_ARGUMENTS",
    "PROTOCOL",
    "SERVER",
    "Call",
    "CallState",
    "Cancel",
    "ClientProtocol",
    "ClientState",
    "Describe",
    "ErrorFrame",
    "Event",
    "Help",
    "Id",
    "Limits",
    "LineBuffer",
    "LocalProtocolError",
    "Ping",
    "Ready",
    "RemoteProtocolError",
    "Request",
    "ResultFrame",
    "ServerFrame",
    "ServerProtocol",
    "ServerState",
    "Signal",
    "Table",
    "Tools",
    "decode_request",
    "decode_server_frame",
    "encode",
    "one_line",
    "parse_catalog",
    "parse_event",
    "parse_result",
]
