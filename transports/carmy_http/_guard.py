"""Who may talk to us at all: ``Host``, ``Origin`` and the credentials, in this order, before any route is looked at."""

from __future__ import annotations

import functools
import inspect
import ipaddress
import re
from collections.abc import Sequence

import trio

from carmy_engine._context import AgentContext
from carmy_engine._engine import BoundEngine, Engine
from carmy_engine._model.cause import Cause
from carmy_engine._settings import HttpSettings
from carmy_engine.abc import Authenticator, Credentials
from carmy_engine.errors import AgentError, ConfigurationError

from ._errors import Refusal
from ._message import NO_STORE, HeaderList, Request, Response

AUTHENTICATION_SECONDS = 10.0
"""For an asynchronous authenticator. Callers wait for it before anything else happens, so it must not hang."""

PREFLIGHT_SECONDS = 600
"""How long a browser may remember that a cross-origin request is allowed."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]/@?#]+)(?::([0-9]{1,5}))?\Z")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._~\[\]:-]+\Z")
_VARY = (b"vary", b"Origin")
_EXPOSED = (
    b"access-control-expose-headers",
    b"ETag, Retry-After, Idempotent-Replayed, WWW-Authenticate, Allow",
)
_PREFLIGHT: HeaderList = (
    NO_STORE,
    (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE, OPTIONS"),
    (
        b"access-control-allow-headers",
        b"Accept, Authorization, Cache-Control, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID",
    ),
    (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
)

SECURITY_HEADERS: HeaderList = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""What ``security_headers`` adds to every answer."""


def _forbidden(message: str, action: str) -> Refusal:
    return Refusal(AgentError.standard("FORBIDDEN", message, suggested_action=action))


def split_host(value: str) -> tuple[str, str | None] | None:
    """Name and port of a ``Host`` value, lower case, without a trailing dot and brackets; None for nonsense."""
    match = _HOST.match(value.strip().lower())
    if match is None:
        return None
    return match[1].strip("[]").removesuffix("."), match[2]


def is_loopback(name: str) -> bool:
    """True for ``localhost`` and for every loopback address."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _checked_host(listed: str) -> tuple[str, str | None]:
    host = split_host(listed)
    if host is None or "*" in listed:
        raise ConfigurationError(
            f"http.allowed_hosts: {listed!r} must be one name or address, with or without a port, and nothing else"
        )
    return host


def _checked_origin(listed: str) -> bytes:
    if _ORIGIN.match(listed) is None:
        raise ConfigurationError(
            f"http.allowed_origins: {listed!r} must be an origin as browsers send it, such as https://app.example: no path,"
            " no slash at the end, no wildcard"
        )
    return listed.lower().encode()


class Guard:
    """The checks before any route, with the settings they follow.

    Raises:
        ConfigurationError: A listed host or origin could never match.
    """

    def __init__(self, engine: Engine) -> None:
        settings: HttpSettings = engine.settings.http
        self._engine = engine
        self._authenticator: Authenticator | None = engine.authenticator
        self._origins = frozenset(_checked_origin(origin) for origin in settings.allowed_origins)
        self._hosts = frozenset(_checked_host(host) for host in settings.allowed_hosts)
        self._anonymous = self._bind(AgentContext(transport="http"))
        self._host_problem = functools.lru_cache(256)(self._find_host_problem)

    def _bind(self, context: AgentContext) -> BoundEngine:
        return self._engine.bind(context=context, transport="http", gone=Cause.DISCONNECT)

    # Host

    def check_host(self, request: Request) -> None:
        """Refuse names that are neither loopback nor listed, so that no web page can reach us by rebinding a name.

        Raises:
            Refusal: 403, naming the setting.
        """
        problem = self._host_problem(request.first(b"host"))
        if problem is None and request.authority is not None:
            problem = self._host_problem(request.authority)
        if problem is not None:
            raise _forbidden(problem, "List the name in the setting http.allowed_hosts if it is one of this server's.")

    def _find_host_problem(self, value: bytes | None) -> str | None:
        if value is None:
            return "the request has no Host header, so it cannot be checked against allowed_hosts"
        host = split_host(value.decode("latin-1"))
        if host is None:
            return "the Host header is malformed, so it is not in allowed_hosts"
        name, _ = host
        if is_loopback(name) or host in self._hosts or (name, None) in self._hosts:
            return None
        return "the host name of the request is not loopback and not listed in allowed_hosts"

    # Origin

    def check_origin(self, request: Request) -> HeaderList:
        """Refuse browsers on pages that are not listed; return the headers that let listed ones read the answer.

        Raises:
            Refusal: 403, naming the setting.
        """
        origin = request.first(b"origin")
        if origin is None:
            # An answer that caches keep must not be reused for a page of another origin.
            return (_VARY,) if self._origins else ()
        if origin in self._origins and len(request.every(b"origin")) == 1:
            return ((b"access-control-allow-origin", origin), _VARY, _EXPOSED)
        raise _forbidden(
            "the origin of the request is not listed in allowed_origins",
            "List the page's origin in the setting http.allowed_origins if it may call this server.",
        )

    def preflight(self, request: Request) -> Response | None:
        """The answer to a browser's question before a cross-origin request; None when this is none."""
        if request.method != "OPTIONS" or request.first(b"access-control-request-method") is None:
            return None
        if request.first(b"origin") is None:
            return None
        return Response(204, _PREFLIGHT)

    # Credentials

    async def authenticate(self, request: Request) -> BoundEngine:
        """The engine as this caller may use it.

        Raises:
            Refusal: 401.
            Exception: Whatever the host's authenticator raises, and `trio.TooSlowError` when it hangs.
        """
        if self._authenticator is None:
            return self._anonymous
        answer = self._authenticator(credentials_of(request))
        if inspect.isawaitable(answer):
            with trio.fail_after(AUTHENTICATION_SECONDS):
                context = await answer
        else:
            context = answer
        if context is None:
            raise Refusal(
                AgentError.standard(
                    "UNAUTHENTICATED",
                    "the credentials are missing or wrong",
                    suggested_action="Send a valid token in the header 'Authorization: Bearer TOKEN'.",
                ),
                headers=[(b"www-authenticate", b"Bearer")],
            )
        return self._bind(context)


def credentials_of(request: Request) -> Credentials:
    """What the caller presented."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.headers)}
    return Credentials(
        transport="http", bearer=_bearer(request.every(b"authorization")), headers=headers, peer=request.peer
    )


def _bearer(values: Sequence[bytes]) -> str | None:
    if len(values) != 1:
        # Two different credentials could be read in two ways; nobody sends them by mistake.
        return None
    scheme, _, token = values[0].decode("latin-1").partition(" ")
    return token.strip(" ") or None if scheme.lower() == "bearer" else None
