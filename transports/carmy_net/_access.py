"""Access rules: checks of ``Host``, ``Origin`` and credentials, in this order."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from carmy_engine import AgentContext, AgentError, BoundEngine, Cause, ConfigurationError, Engine, HttpSettings
from carmy_engine.abc import Credentials, PeerProcess
from carmy_engine.transport import ask_foreign

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Headers in the order of their arrival; names in lower case."""

AUTHENTICATION_SECONDS = 10.0
"""Limit for an asynchronous authenticator: a request waits for it before any other step."""

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._~\[\]:-]+\Z")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]/@?#]+)(?::([0-9]{1,5}))?\Z")


def _forbidden(message: str, action: str) -> AgentError:
    return AgentError.standard("FORBIDDEN", message, suggested_action=action)


def _split_host(value: str) -> tuple[str, str | None] | None:
    """Name and port of a ``Host`` value, in lower case, without brackets and trailing dot; None if it is malformed."""
    match = _HOST.match(value.strip().lower())
    return None if match is None else (match[1].strip("[]").removesuffix("."), match[2])


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _checked_host(listed: str) -> tuple[str, str | None]:
    host = _split_host(listed)
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


def access_problems(settings: HttpSettings) -> Iterator[ConfigurationError]:
    """Errors for listed hosts and origins that no request can match."""
    checks: list[tuple[Sequence[str], Callable[[str], object]]] = [
        (settings.allowed_hosts, _checked_host),
        (settings.allowed_origins, _checked_origin),
    ]
    for names, check in checks:
        for name in names:
            try:
                check(name)
            except ConfigurationError as problem:
                yield problem


def header_values(headers: Headers, name: bytes) -> list[bytes]:
    """All values of a header, in order."""
    return [value for key, value in headers if key == name]


class Access:
    """The access rules of one engine and transport.

    Args:
        engine: The engine that callers reach.
        transport: The name of the transport, for credentials and records.

    Raises:
        ConfigurationError: A listed host or origin matches no request.
    """

    def __init__(self, engine: Engine, transport: str) -> None:
        settings = engine.settings.http
        self._engine = engine
        self._transport = transport
        has_tls = transport == "http" and settings.tls_cert is not None
        self._scheme = b"https://" if has_tls else b"http://"
        self._origins = frozenset(_checked_origin(origin) for origin in settings.allowed_origins)
        self._hosts = frozenset(_checked_host(host) for host in settings.allowed_hosts)
        self.anonymous = self._bind(AgentContext(transport=transport))
        """The engine bound to a caller without identity; it records refusals."""
        self.public = self.anonymous if engine.authenticator is None else None
        """The engine for every caller if no authenticator is set; None otherwise."""
        self._host_problem = functools.lru_cache(256)(self._find_host_problem)

    def _bind(self, context: AgentContext) -> BoundEngine:
        return self._engine.bind(context=context, transport=self._transport, gone=Cause.DISCONNECT)

    @property
    def lists_origins(self) -> bool:
        """True if the setting ``allowed_origins`` lists any browser page."""
        return bool(self._origins)

    def check_host(self, *values: bytes | None) -> None:
        """Refuse names that are neither loopback nor listed: a defence against DNS rebinding.

        Args:
            values: The host names of the request; each has to pass. None stands for a missing header.

        Raises:
            AgentError: ``FORBIDDEN``, naming the setting.
        """
        for value in values:
            problem = self._host_problem(value)
            if problem is not None:
                raise _forbidden(
                    problem, "List the name in the setting http.allowed_hosts if it is one of this server's."
                )

    def _find_host_problem(self, value: bytes | None) -> str | None:
        if value is None:
            return "the request does not have one Host header, so it cannot be checked against allowed_hosts"
        host = _split_host(value.decode("latin-1"))
        if host is None:
            return "the Host header is malformed, so it is not in allowed_hosts"
        name, _ = host
        if _is_loopback(name) or host in self._hosts or (name, None) in self._hosts:
            return None
        return "the host name of the request is not loopback and not listed in allowed_hosts"

    def check_origin(self, values: Sequence[bytes], host: bytes | None) -> bytes | None:
        """Refuse browser pages that are neither listed nor served from this address. A request without ``Origin`` passes.

        Args:
            values: All headers ``Origin``.
            host: The header ``Host``, already checked: the address that the browser used.

        Returns:
            The allowed origin; None if the request has none.

        Raises:
            AgentError: ``FORBIDDEN``, naming the setting.
        """
        if not values:
            return None
        if len(values) > 1 or not (values[0] in self._origins or self._is_own(values[0], host)):
            raise _forbidden(
                "the origin of the request is not listed in allowed_origins",
                "List the page's origin in the setting http.allowed_origins if it may call this server.",
            )
        return values[0]

    def _is_own(self, origin: bytes, host: bytes | None) -> bool:
        """True if a page and its request have the same origin (RFC 6454, section 4)."""
        return host is not None and origin.lower() == self._scheme + host.strip().lower()

    async def authenticate(self, headers: Headers, peer: str | None, process: PeerProcess | None = None) -> BoundEngine:
        """Return the engine bound to the caller.

        Args:
            headers: The request's headers.
            peer: The caller's address.
            process: The caller's process, if it is known.

        Raises:
            AgentError: ``UNAUTHENTICATED``.
            DeclarationError: The authenticator returned neither a context nor None.
            Fault: The authenticator failed, or exceeded `AUTHENTICATION_SECONDS`.
        """
        if self.public is not None:
            return self.public
        authenticator = self._engine.authenticator
        assert authenticator is not None
        context: AgentContext | None = await ask_foreign(
            AUTHENTICATION_SECONDS,
            authenticator,
            Credentials(
                transport=self._transport,
                bearer=_bearer(header_values(headers, b"authorization")),
                headers={name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(headers)},
                peer=peer,
                process=process,
            ),
        )
        if context is None:
            raise AgentError.standard(
                "UNAUTHENTICATED",
                "the credentials are missing or wrong",
                suggested_action=self._engine.challenge.action,
            )
        return self._bind(context)


_TRACEPARENT = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def within_trace(caller: BoundEngine, values: Sequence[bytes]) -> BoundEngine:
    """The caller with the span that its request names (W3C Trace Context), unless its authenticator has given one.

    Args:
        caller: The caller.
        values: All headers ``traceparent``. The caller stays as it is if there are several, or one that is malformed.
    """
    if len(values) != 1 or caller.context.traceparent is not None or not _TRACEPARENT.fullmatch(values[0]):
        return caller
    return caller.bind(context=msgspec.structs.replace(caller.context, traceparent=values[0].decode()))


def _bearer(values: Sequence[bytes]) -> str | None:
    if len(values) != 1:
        # Two credentials are ambiguous, and no honest client sends two.
        return None
    scheme, _, token = values[0].decode("latin-1").partition(" ")
    return token.strip(" ") or None if scheme.lower() == "bearer" else None
