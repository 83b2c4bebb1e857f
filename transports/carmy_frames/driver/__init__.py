"""Drives the frame protocol on trio, over any channel of messages.

- `serve_channel`: an engine behind one connection, until the connection ends.
- `open_client`: an executor in front of one.

The channel's ``receive`` raises `trio.EndOfChannel` when the peer has said its last but still reads, and
`trio.BrokenResourceError` when it has gone. Its ``send`` is called by one task at a time, and a send that was cancelled
is the last one. It may be one of `Batches`, and `Immediate`, as well.
"""

from __future__ import annotations

from ._client import ClientExecutor, open_client
from ._event_channel import EventChannel
from ._requests import call_frame
from ._server import WRITE_SECONDS, ConnectionEnd, serve_channel

__all__ = [
    "WRITE_SECONDS",
    "ClientExecutor",
    "ConnectionEnd",
    "EventChannel",
    "call_frame",
    "open_client",
    "serve_channel",
]
