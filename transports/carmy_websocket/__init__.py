"""WebSocket for carmy-engine: ``carmy-frames/1``, one text message for each frame.

- `serve`: the transport, as the command ``carmy ws`` runs it.
- `open_websocket`: a client; an executor. `WebSocketClientLimits`: its limits.

Inside: `_handshake` decides on a request before the library reads it; `_guarded_stream` is the stream below the library,
`_channel` the messages above it; `_server` and `_client` are the two ends. Only this package imports trio-websocket, and only
its public names.
"""

from __future__ import annotations

from carmy_engine.transport import missing_extra

try:
    from ._client import WebSocketClientLimits, open_websocket
    from ._server import serve
except ModuleNotFoundError as missing:
    raise missing_extra("WebSocket", "websocket", missing) from None

__all__ = ["WebSocketClientLimits", "open_websocket", "serve"]
