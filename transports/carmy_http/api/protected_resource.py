"""The server as a protected resource of OAuth 2.1: its metadata (RFC 9728), and challenges to callers (RFC 6750)."""

from __future__ import annotations

import msgspec

from carmy_engine import BoundEngine, Engine

from ..message import JSON_TYPE, NO_STORE, Request, RequestHead, Response
from .discovery import MCP_PATH

METADATA_PATH = "/.well-known/oauth-protected-resource"
"""The metadata of the server; that of a part of it has the path of this part behind it."""


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9728, section 2."""

    resource: str
    authorization_servers: tuple[str, ...]
    bearer_methods_supported: tuple[str, ...] = ("header",)
    resource_name: str


class ProtectedResource:
    """What clients of OAuth learn about a server whose authenticator accepts access tokens.

    Args:
        engine: Its challenge names the issuers.

    Attributes:
        exists: There is an issuer. Otherwise callers get a plain challenge, and there is no metadata.
    """

    def __init__(self, engine: Engine) -> None:
        self._issuers = engine.challenge.issuers
        self._name = engine.settings.title or engine.settings.name
        self._public_url = engine.settings.http.public_url
        self._scheme = "http" if engine.settings.http.tls_cert is None else "https"
        self.exists = bool(self._issuers)

    def _url(self, head: RequestHead) -> str:
        """The URL of the server: the configured one, or that by which the client came, whose ``Host`` has been checked."""
        if self._public_url is not None:
            return self._public_url
        host = (head.authority or head.first(b"host") or b"localhost").decode("latin-1")
        return f"{self._scheme}://{host}{head.root}"

    def challenge(self, head: RequestHead, error: str | None = None, scope: str | None = None) -> bytes:
        """The value of ``WWW-Authenticate``.

        Args:
            head: The request.
            error: The code of RFC 6750; None if the caller has shown no credentials.
            scope: The permission that the caller lacks.
        """
        parts = [] if error is None else [f'error="{error}"']
        if scope is not None:
            parts.append(f'scope="{scope}"')
        if self.exists:
            part = MCP_PATH if head.path == MCP_PATH else ""
            parts.append(f'resource_metadata="{self._url(head)}{METADATA_PATH}{part}"')
        return f"Bearer {', '.join(parts)}".rstrip().encode("latin-1")

    def refusal(self, head: RequestHead) -> bytes:
        """The challenge to a caller without valid credentials."""
        has_token = self.exists and head.first(b"authorization") is not None
        return self.challenge(head, "invalid_token" if has_token else None)

    async def answer(self, part: str, request: Request, _engine: BoundEngine) -> Response:
        """The metadata of the server, or of a part of it."""
        document = _Metadata(
            resource=self._url(request.head) + part,
            authorization_servers=self._issuers,
            resource_name=self._name,
        )
        return Response(200, (JSON_TYPE, NO_STORE), msgspec.json.encode(document))
