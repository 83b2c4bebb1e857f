"""Who may talk to us at all, before any route is looked at: the rules of `carmy_net`, in HTTP's terms."""

from __future__ import annotations

from carmy_engine import AgentError, BoundEngine, Engine
from carmy_net import Access

from ..message import NO_STORE, Headers, Request, RequestHead, Response
from .errors import Refusal

PREFLIGHT_SECONDS = 600
"""How long a browser may remember that a cross-origin request is allowed."""

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
"""What ``security_headers`` adds to every answer."""


class Guard:
    """The checks before any route, with the settings they follow.

    Raises:
        ConfigurationError: A listed host or origin could never match.
    """

    def __init__(self, engine: Engine) -> None:
        self._access = Access(engine, "http")
        self.nobody = self._access.anonymous
        """The engine as a caller without an identity, for records of refusals."""
        self.anyone = self._access.public
        """The engine as every caller may use it, when nobody has to show credentials; None otherwise."""

    def check_host(self, request: RequestHead) -> None:
        """Refuse names that are neither loopback nor listed; those of an absolute target as well.

        Raises:
            AgentError: 403, naming the setting.
        """
        host = request.first(b"host")
        if request.authority is None:
            self._access.check_host(host)
        else:
            self._access.check_host(host, request.authority)

    def check_origin(self, request: RequestHead) -> Headers:
        """Refuse browsers on pages that are not listed; return the headers that let listed ones read the answer.

        Raises:
            AgentError: 403, naming the setting.
        """
        if request.first(b"origin") is None:
            # An answer that caches keep must not be reused for a page of another origin.
            return (_VARY,) if self._access.lists_origins else ()
        origin = self._access.check_origin(request.every(b"origin"), request.first(b"host"))
        assert origin is not None
        return ((b"access-control-allow-origin", origin), _VARY, _EXPOSED)

    def preflight(self, request: Request) -> Response | None:
        """The answer to a browser's question before a cross-origin request; None when this is none."""
        if request.method != "OPTIONS" or request.first(b"access-control-request-method") is None:
            return None
        if request.first(b"origin") is None:
            return None
        return Response(204, _PREFLIGHT)

    async def authenticate(self, request: Request) -> BoundEngine:
        """The engine as this caller may use it.

        Raises:
            Refusal: 401.
            DeclarationError: The host's authenticator returned something else than a context.
            Fault: It failed, or took too long.
        """
        try:
            return await self._access.authenticate(request.headers, request.peer)
        except AgentError as error:
            if error.code != "UNAUTHENTICATED":
                raise
            raise Refusal(error, headers=[(b"www-authenticate", b"Bearer")]) from None
