"""The Model Context Protocol: a server for the tools of an application, and an executor in front of any MCP server.

- `serve`: the transport of the command ``carmy mcp``, over standard input and output or HTTP.
- `serve_http`: the same over HTTP alone.
- `mount`: the same at the address ``/mcp`` of ``carmy serve``.
- `open_mcp`: a client of any MCP server; an executor. `McpClientLimits`: its limits.

Folders: `protocol` is the protocol, sans-IO; `server` answers requests over stdio and HTTP; `client` is the executor.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from carmy_engine.transport import missing_extra

if TYPE_CHECKING:
    from .client.executor import open_mcp
    from .client.limits import McpClientLimits
    from .server.mount import mount
    from .server.transport import serve, serve_http

__all__ = ["McpClientLimits", "mount", "open_mcp", "serve", "serve_http"]

_MODULES = {
    "McpClientLimits": "client.limits",
    "mount": "server.mount",
    "open_mcp": "client.executor",
    "serve": "server.transport",
    "serve_http": "server.transport",
}


def __getattr__(name: str) -> Any:
    """Import on first use: each use needs a part of the package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as missing:
        raise missing_extra("the client of MCP", "mcp", missing) from None
