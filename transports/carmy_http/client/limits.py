"""Limits of the client in time, bytes and numbers."""

from __future__ import annotations

import msgspec


class HttpClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of `open_http`.

    Attributes:
        connect_secs: For a connection. A running server accepts it at once.
        write_secs: Without progress in sending a request.
        margin_secs: Added to the time that the server may take, before a silent connection counts as lost. Tools clean up meanwhile.
        catalog_secs: For the catalog.
        silence_secs: On a stream of events. A server sends a heartbeat every 15 seconds.
        max_connections: At one time; as many executions as a server runs by default. Each call has a connection to itself.
        max_idle_connections: Kept for the next calls.
        idle_secs: For keeping them; shorter than servers do, so that a call does not use a connection that is being closed.
        max_request_bytes: Of one request, as servers take by default.
        max_answer_bytes: Of one answer. The largest outputs that tools are allowed by default have an eighth of it.
        max_attempts: Of one request. With the waits below, a server may be away for about a second and a half.
        first_wait_secs: Before the second attempt; doubled before each later one.
        max_wait_secs: The longest ``Retry-After`` that is obeyed. A longer one is left to the caller.
    """

    connect_secs: float = 10.0
    write_secs: float = 30.0
    margin_secs: float = 10.0
    catalog_secs: float = 30.0
    silence_secs: float = 60.0
    max_connections: int = 1000
    max_idle_connections: int = 20
    idle_secs: float = 30.0
    max_request_bytes: int = 1024 * 1024
    max_answer_bytes: int = 64 * 1024 * 1024
    max_attempts: int = 4
    first_wait_secs: float = 0.2
    max_wait_secs: float = 10.0


DEFAULT_LIMITS = HttpClientLimits()
