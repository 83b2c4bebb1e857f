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
RESOURCES_PATH = "/agent/resources"
PROMPTS_PATH = "/agent/prompts"
COMPLETE_PATH = "/agent/complete"
MCP_PATH = "/mcp"
"""Where the transport for MCP is mounted, if it is."""

_CACHE_CONTROL = (b"cache-control", b"private, max-age=60")


class DiscoveryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The discovery document. Optional members are absent where the caller has no use for them."""

    protocol: str
    server: str
    capabilities: tuple[str, ...]
    tools_url: str
    tools_version: str
    execute_url: str
    resources_url: str | msgspec.UnsetType = msgspec.UNSET
    resources_version: str | msgspec.UnsetType = msgspec.UNSET
    prompts_url: str | msgspec.UnsetType = msgspec.UNSET
    prompts_version: str | msgspec.UnsetType = msgspec.UNSET
    complete_url: str | msgspec.UnsetType = msgspec.UNSET
    mcp_url: str | msgspec.UnsetType = msgspec.UNSET


@functools.lru_cache(256)
def _discovery_document(
    server: str, root: str, version: str, resources: str | None, prompts: str | None, has_mcp: bool
) -> tuple[bytes, bytes]:
    """The document and its entity tag.

    Args:
        server: The server's name.
        root: What the addresses begin with.
        version: Of the catalog.
        resources: The version of their list; None where the caller has none. So for prompts.
        prompts: See `resources`.
        has_mcp: MCP is served.
    """
    optional = {"resources": resources is not None, "prompts": prompts is not None, "mcp": has_mcp}
    body = msgspec.json.encode(
        DiscoveryDocument(
            protocol=PROTOCOL,
            server=server,
            capabilities=("tools", "streaming", "idempotency", *(name for name, there in optional.items() if there)),
            tools_url=root + CATALOG_PATH,
            tools_version=version,
            execute_url=root + EXECUTE_PATH,
            resources_url=root + RESOURCES_PATH if resources is not None else msgspec.UNSET,
            resources_version=resources or msgspec.UNSET,
            prompts_url=root + PROMPTS_PATH if prompts is not None else msgspec.UNSET,
            prompts_version=prompts or msgspec.UNSET,
            complete_url=root + COMPLETE_PATH if optional["resources"] or optional["prompts"] else msgspec.UNSET,
            mcp_url=root + MCP_PATH if has_mcp else msgspec.UNSET,
        )
    )
    return body, b'"%b"' % hashlib.sha256(body).hexdigest().encode()


async def discovery(server: str, mounts: Container[str], request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET /.well-known/agent``: the addresses of this server, and the version of this caller's catalog."""
    catalog, resources, prompts = await engine.catalog(), await engine.resources(), await engine.prompts()
    body, etag = _discovery_document(
        server,
        request.head.root,
        catalog.version,
        resources.version if resources.resources or resources.templates else None,
        prompts.version if prompts.prompts else None,
        MCP_PATH in mounts,
    )
    return cached(request, body, etag)


async def catalog(request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET /agent/tools``: the tools that this caller may use."""
    document = await engine.catalog()
    return cached(request, document.document, b'"%b"' % document.version.encode())


def cached(request: Request, body: bytes, etag: bytes) -> Response:
    """A document that a client may keep, or 304 if it has it already."""
    headers = (JSON_TYPE, (b"etag", etag), _CACHE_CONTROL)
    if matches_etag(request.head.every(b"if-none-match"), etag):
        return Response(304, headers)
    return Response(200, headers, body)
