"""HTTP for carmy-engine: the protocol ``carmy/1``.

- `serve`: the transport, as the command ``carmy serve`` runs it.
- `application`: the same endpoints as an ASGI application, to be mounted in another one.
- `open_http`: a client; an executor.

Inside: `_endpoints` is the table of routes and knows no front end; `_message` is what it shares with one. `_asgi` adapts
it to ASGI, `_hypercorn` runs that on hypercorn over a `_guarded_stream`, `_native` speaks HTTP itself (both read with `carmy_net.http1`), `_server` accepts and drains. `_client` is the other end,
`_client_decide` its decisions, `_client_exchange` one request over the client's library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carmy_engine.transport import missing_extra

from .asgi import application
from .server import serve

if TYPE_CHECKING:
    from .client.executor import open_http

__all__ = ["application", "open_http", "serve"]


def __getattr__(name: str) -> Any:
    """Import the client when it is first asked for: servers need neither it nor the library below it."""
    if name == "open_http":
        try:
            from .client.executor import open_http  # noqa: PLC0415 - see above
        except ModuleNotFoundError as missing:
            raise missing_extra("the HTTP client", "http-client", missing) from None
        return open_http
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
