"""The tools of an application for every client of the Model Context Protocol.

- `serve`: the transport, as the command ``carmy mcp`` runs it, over standard input and output.

Built on the official SDK's low-level server, which negotiates the version and knows the shapes of the messages. Inside:
`_listing` and `_results` say what a catalog and a result look like there, `_exchange` is one request on its way,
`_server` maps the SDK's handlers to an executor, `_messages` reads and writes JSON-RPC, `_connection` drives one
connection so that no accepted call loses its answer, and `_stdio` brings the descriptors.
"""

from __future__ import annotations

from ._stdio import serve

__all__ = ["serve"]
