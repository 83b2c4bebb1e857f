"""The tools of an application for every client of the Model Context Protocol, and the tools of every server of it.

- `serve`: the transport, as the command ``carmy mcp`` runs it, over standard input and output.
- `mount`: the same at the address ``/mcp`` of ``carmy serve``; `_serving` is ``carmy mcp --http``.
- `open_mcp`: an executor in front of any MCP server.

Built on the official SDK's low-level server, which negotiates the version and knows the shapes of the messages. Inside:
`_listing` and `_results` say what a catalog and a result look like there, `_exchange` is one request on its way,
`_server` maps the SDK's handlers to an executor, `_confirm` asks the person behind a client, `_tasks` keeps what takes long,
`_messages` reads and writes JSON-RPC, `_connection` drives one
connection so that no accepted call loses its answer, and `_stdio` brings the descriptors. `_http` stands before the SDK's
sessions over HTTP, `_sessions` bounds them, `_short` leads most requests past them, `_asgi` has pieces for both, and `_mount` is what imports none of that before it is needed. `_client` is the
other end, on the SDK's client: `_client_tools`, `_client_calls` and `_client_results` say what a listing, a call and an answer
mean here, `_client_link` what `_client_stdio` and `_client_http` have in common.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from carmy_engine.transport import missing_extra

from .server.mount import mount

if TYPE_CHECKING:
    from .client.executor import open_mcp
    from .server.transport import serve

__all__ = ["mount", "open_mcp", "serve"]


def __getattr__(name: str) -> Any:
    """Import what needs the SDK when it is first asked for: that takes half a second."""
    try:
        if name == "serve":
            if importlib.util.find_spec("mcp") is None:
                raise ModuleNotFoundError(name="mcp")
            from .server.transport import serve  # noqa: PLC0415 - see above

            return serve
        if name == "open_mcp":
            from .client.executor import open_mcp  # noqa: PLC0415 - see above

            return open_mcp
    except ModuleNotFoundError as missing:
        raise missing_extra("MCP", "mcp", missing) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
