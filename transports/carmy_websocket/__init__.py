"""WebSocket for carmy-engine: ``carmy-frames/1``, one text message for each frame.

- `serve`: the transport, as the command ``carmy ws`` runs it.
- `open_websocket`: a client; an executor.

Inside: `_handshake` decides on a request; `_link` writes to the stream and closes it, `_channel` is the messages on it, found and made
by wsproto; `_server` and `_client` are the two ends.
"""

from __future__ import annotations

from ._client import open_websocket
from ._server import serve

__all__ = ["open_websocket", "serve"]
