"""The checks of ``Host``, ``Origin`` and credentials: the rules of `carmy_net`, applied to a request's head."""

from __future__ import annotations

from carmy_engine import AgentError, BoundEngine, Engine
from carmy_net import Access

from ..message import NO_STORE, Headers, Refusal, Request, RequestHead, Response
from .protected_resource import ProtectedResource

PREFLIGHT_SECONDS = 600
"""How long a browser may cache that a cross-origin request is allowed."""

_VARY = (b"vary", b"Origin")
_EXPOSED = (
    b"access-control-expose-headers",
    b"ETag, Retry-After, Idempotent-Replayed, WWW-Authenticate, Allow, Mcp-Session-Id",
)
_PREFLIGHT: Headers = (
    NO_STORE,
    (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE, OPTIONS"),
    (
        b"access-control-allow-headers",
        (
            b"Accept, Authorization, Cache-Control, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID,"
            b" Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id"
        ),
    ),
    (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
)

SECURITY_HEADERS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Added to every answer when the setting ``security_headers`` is on."""


class Guard:
    """The checks before any route, configured by the engine's settings.

    Raises:
        ConfigurationError: A listed host or origin could never match.
    """

    def __init__(self, engine: Engine) -> None:
        self._access = Access(engine, "http")
        self.anonymous = self._access.anonymous
        """The engine as a caller without an identity, for records of refusals."""
        self.public = self._access.public
        """The engine for every caller if no credentials are required; None otherwise."""
        self.resource = ProtectedResource(engine)

    def check_host(self, head: RequestHead) -> None:
        """Refuse names that are neither loopback nor listed; those of an absolute target as well.

        Raises:
            AgentError: 403, naming the setting.
        """
        host = head.first(b"host")
        if head.authority is None:
            self._access.check_host(host)
        else:
            self._access.check_host(host, head.authority)

    def check_origin(self, head: RequestHead) -> Headers:
        """Refuse requests from pages that are not listed; return the CORS headers for a listed one.

        Raises:
            AgentError: 403, naming the setting.
        """
        if head.first(b"origin") is None:
            # An answer that caches keep must not be reused for a page of another origin.
            return (_VARY,) if self._access.lists_origins else ()
        origin = self._access.check_origin(head.every(b"origin"), head.first(b"host"))
        assert origin is not None
        return ((b"access-control-allow-origin", origin), _VARY, _EXPOSED)

    def is_preflight(self, head: RequestHead) -> bool:
        """True for a CORS preflight request."""
        return (
            head.method == "OPTIONS"
            and head.first(b"access-control-request-method") is not None
            and head.first(b"origin") is not None
        )

    async def preflight(self, _request: Request, _engine: BoundEngine) -> Response:
        """Answer a CORS preflight request."""
        return Response(204, _PREFLIGHT)

    async def authenticate(self, request: Request) -> BoundEngine:
        """The engine for this caller.

        Raises:
            Refusal: 401.
            DeclarationError: The host's authenticator returned something else than a context.
            Fault: It failed, or took too long.
        """
        try:
            return await self._access.authenticate(request.head.headers, request.peer, request.process)
        except AgentError as error:
            if error.code != "UNAUTHENTICATED":
                raise
            raise Refusal(error, headers=[(b"www-authenticate", self.resource.refusal(request.head))]) from None
