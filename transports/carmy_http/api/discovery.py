"""The two documents that describe a server: discovery and the catalog. Rendered once per set of visible tools."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Container

import msgspec

from carmy_engine import BoundEngine

from ..message import JSON_TYPE, Request, Response
from .content_negotiation import matches_etag

PROTOCOL = "carmy/1"
DISCOVERY_PATH = "/.well-known/agent"
CATALOG_PATH = "/agent/tools"
EXECUTE_PATH = "/agent/execute"
MCP_PATH = "/mcp"
"""Where the transport for MCP is mounted, if it is."""

_CACHE_CONTROL = (b"cache-control", b"private, max-age=60")


class _Discovery(msgspec.Struct, frozen=True, kw_only=True):
    protocol: str
    server: str
    capabilities: tuple[str, ...]
    tools_url: str
    tools_version: str
    execute_url: str
    mcp_url: str | msgspec.UnsetType = msgspec.UNSET


@functools.lru_cache(256)
def _discovery_document(server: str, root: str, version: str, has_mcp: bool) -> tuple[bytes, bytes]:
    """The document and its entity tag."""
    capabilities = ("tools", "streaming", "idempotency")
    body = msgspec.json.encode(
        _Discovery(
            protocol=PROTOCOL,
            server=server,
            capabilities=(*capabilities, "mcp") if has_mcp else capabilities,
            tools_url=root + CATALOG_PATH,
            tools_version=version,
            execute_url=root + EXECUTE_PATH,
            mcp_url=root + MCP_PATH if has_mcp else msgspec.UNSET,
        )
    )
    return body, b'"%b"' % hashlib.sha256(body).hexdigest().encode()


async def discovery(server: str, mounts: Container[str], request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET /.well-known/agent``: the addresses of this server, and the version of this caller's catalog."""
    catalog = await engine.catalog()
    body, etag = _discovery_document(server, request.head.root, catalog.version, MCP_PATH in mounts)
    return _cached(request, body, etag)


async def catalog(request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET /agent/tools``: the tools that this caller may use."""
    document = await engine.catalog()
    return _cached(request, document.document, b'"%b"' % document.version.encode())


def _cached(request: Request, body: bytes, etag: bytes) -> Response:
    headers = (JSON_TYPE, (b"etag", etag), _CACHE_CONTROL)
    if matches_etag(request.head.every(b"if-none-match"), etag):
        return Response(304, headers)
    return Response(200, headers, body)
