"""The frame protocol, sans-IO: bytes in, frames out.

`ServerProtocol` and `ClientProtocol` have three verbs: ``receive_message`` decodes a message to a frame, ``send`` encodes one, and
``receive_end`` records the end of input. Misuse by this side raises `LocalProtocolError`. A fault of the peer raises
`RemoteProtocolError`, which holds the reply. `LineBuffer` splits a stream of bytes into messages.
"""

from __future__ import annotations

from ._codec import HELP_RESULT, MAX_MESSAGE_BYTES, PROTOCOL, decode_request, decode_server_frame, encode
from ._errors import LocalProtocolError, RemoteProtocolError
from ._frames import (
    NO_ARGUMENTS,
    RUNS,
    Call,
    Cancel,
    Complete,
    Describe,
    ErrorFrame,
    Event,
    Help,
    Id,
    Limits,
    Ping,
    Prompt,
    Prompts,
    Read,
    Ready,
    Request,
    Resources,
    ResultFrame,
    Run,
    ServerFrame,
    Tools,
)
from ._lines import LineBuffer
from ._protocols import ClientProtocol, ServerProtocol
from ._result_decoder import parse_catalog, parse_event, parse_result
from ._state import CALL, CLIENT, SERVER, CallState, ClientState, ServerState, Signal, Table, Word

__all__ = [
    "CALL",
    "CLIENT",
    "HELP_RESULT",
    "MAX_MESSAGE_BYTES",
    "NO_ARGUMENTS",
    "PROTOCOL",
    "RUNS",
    "SERVER",
    "Call",
    "CallState",
    "Cancel",
    "ClientProtocol",
    "ClientState",
    "Complete",
    "Describe",
    "ErrorFrame",
    "Event",
    "Help",
    "Id",
    "Limits",
    "LineBuffer",
    "LocalProtocolError",
    "Ping",
    "Prompt",
    "Prompts",
    "Read",
    "Ready",
    "RemoteProtocolError",
    "Request",
    "Resources",
    "ResultFrame",
    "Run",
    "ServerFrame",
    "ServerProtocol",
    "ServerState",
    "Signal",
    "Table",
    "Tools",
    "Word",
    "decode_request",
    "decode_server_frame",
    "encode",
    "parse_catalog",
    "parse_event",
    "parse_result",
]
