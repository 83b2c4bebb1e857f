"""Servers and clients of the frame protocol on trio, over any `carmy_net.BatchChannel`.

- `serve_channel`: serves an engine on one connection until it ends.
- `open_client`: an executor that sends its calls over one connection.
- `run_inline`: runs a call in the task that has read it, for servers of other protocols.
"""

from __future__ import annotations

from ._client import READY_SECONDS, ClientExecutor, open_client
from ._event_channel import EventChannel
from ._inline_call import run_inline
from ._requests import call_frame
from ._server import WRITE_SECONDS, ConnectionEnd, serve_channel

__all__ = [
    "READY_SECONDS",
    "WRITE_SECONDS",
    "ClientExecutor",
    "ConnectionEnd",
    "EventChannel",
    "call_frame",
    "open_client",
    "run_inline",
    "serve_channel",
]
