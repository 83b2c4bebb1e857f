"""HTTP for carmy-engine: the protocol ``carmy/1``.

- `serve`: the transport, as the command ``carmy serve`` runs it.
- `application`: the same endpoints as an ASGI application, to be mounted in another one.

Inside: `_endpoints` is the table of routes and knows no front end; `_message` is what it shares with one. `_asgi` adapts
it to ASGI, `_hypercorn` carries that over guarded connections, `_server` accepts and drains them.
"""

from __future__ import annotations

from ._asgi import application
from ._server import serve

__all__ = ["application", "serve"]
