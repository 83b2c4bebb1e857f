"""HTTP for carmy-engine: the protocol ``carmy/1``.

- `serve`: the transport, as the command ``carmy serve`` runs it.
- `application`: the same endpoints as an ASGI application, to mount in another one.
- `open_http`: a client; an executor. `HttpClientLimits`: its limits.

``api/`` is the table of routes, and imports no front end. ``message`` holds the types that it shares with one. A front end is ``native/``,
or ``hypercorn/``, which runs the ASGI application of ``asgi``, and has TLS and HTTP/2. Both read requests with `carmy_net.http1`. ``server``
chooses one, accepts connections and drains them. ``client/`` is the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carmy_engine.transport import missing_extra

from .asgi import application
from .server import serve

if TYPE_CHECKING:
    from .client.executor import open_http
    from .client.limits import HttpClientLimits

__all__ = ["HttpClientLimits", "application", "open_http", "serve"]


def __getattr__(name: str) -> Any:
    """Import the client on first use: servers need neither it nor its HTTP library."""
    if name in {"HttpClientLimits", "open_http"}:
        try:
            from .client import executor  # noqa: PLC0415 - see above
        except ModuleNotFoundError as missing:
            raise missing_extra("the HTTP client", "http-client", missing) from None
        return getattr(executor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
