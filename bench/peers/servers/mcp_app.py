"""The two MCP servers for Python: ``mcp_app.py fastmcp|sdk stdio|PORT``.

Over HTTP both are stateless and answer with JSON, which is what they recommend for many clients.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import pydantic

from bench.peers.servers.catalog import PRODUCTS


class Product(pydantic.BaseModel):
    sku: str
    name: str
    price_cents: int


CATALOG = [Product(**product) for product in PRODUCTS]


async def search(query: str, limit: int = 10) -> list[Product]:
    """Search the catalog."""
    return [product for product in CATALOG if query in product.name][:limit]


def fastmcp_server() -> Any:
    from fastmcp import FastMCP  # noqa: PLC0415 - only the one that is measured

    server = FastMCP("bench")
    server.tool(search)
    return server


def sdk_server() -> Any:
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - as above

    server = MCPServer("bench", log_level="ERROR")
    server.tool()(search)
    return server


def main(kind: str, way: str) -> None:
    logging.disable(logging.INFO)
    server = fastmcp_server() if kind == "fastmcp" else sdk_server()
    if way == "stdio":
        server.run("stdio", **({"show_banner": False} if kind == "fastmcp" else {}))
        return
    import uvicorn  # noqa: PLC0415 - not part of a server over stdio

    make = server.http_app if kind == "fastmcp" else server.streamable_http_app
    app = make(stateless_http=True, json_response=True)
    uvicorn.run(app, port=int(way), loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
