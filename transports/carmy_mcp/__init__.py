"""The Model Context Protocol: a server for the tools of an application, and an executor in front of any MCP server.

- `serve`: the transport of the command ``carmy mcp``, over standard input and output or HTTP.
- `serve_http`: the same over HTTP alone.
- `mount`: the same at the address ``/mcp`` of ``carmy serve``.
- `open_mcp`: a client of any MCP server; an executor. `McpClientLimits`: its limits.

Folders: `protocol` has JSON-RPC messages, catalogs and results, `server` the front ends over the SDK's low-level server, and
`client` the executor over the SDK's client.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from carmy_engine.transport import missing_extra

from .server.mount import mount

if TYPE_CHECKING:
    from .client.executor import open_mcp
    from .client.limits import McpClientLimits
    from .server.transport import serve, serve_http

__all__ = ["McpClientLimits", "mount", "open_mcp", "serve", "serve_http"]


def __getattr__(name: str) -> Any:
    """Import the SDK on first use: it takes half a second."""
    try:
        if name in {"serve", "serve_http"}:
            if importlib.util.find_spec("mcp") is None:
                raise ModuleNotFoundError(name="mcp")
            from .server import transport  # noqa: PLC0415 - see above

            return getattr(transport, name)
        if name in {"McpClientLimits", "open_mcp"}:
            from .client import executor  # noqa: PLC0415 - see above

            return getattr(executor, name)
    except ModuleNotFoundError as missing:
        raise missing_extra("MCP", "mcp", missing) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
