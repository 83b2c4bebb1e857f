"""Every setting, with its default and its unit. Where the values come from is the business of `_config`."""

from __future__ import annotations

import msgspec


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[http]``.

    Attributes:
        server: The front end: ``hypercorn`` or ``native``.
        header_timeout_secs: From the connection's start (or the last answer) to the end of a request's head.
        body_timeout_secs: For a whole request body.
        max_connections: Connections beyond this wait in the kernel's backlog.
        security_headers: Add defensive headers to every answer.
        allowed_hosts: Names accepted in ``Host`` beside loopback, with or without a port.
        allowed_origins: Browser origins that may call, exact (``https://app.example``).
    """

    server: str = "hypercorn"
    header_timeout_secs: float = 10.0
    body_timeout_secs: float = 30.0
    max_connections: int = 4096
    security_headers: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[store]``.

    Attributes:
        url: ``memory:`` or ``sqlite:PATH``.
        retention_days: How long a completed entry replays, counted from its completion.
    """

    url: str = "memory:"
    retention_days: float = 7.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one application.

    Attributes:
        name: The server's name in discovery documents.
        app: The application that commands without a target run, ``module:app`` or ``file.py:app``.
        address: ``HOST:PORT`` for servers; port 0 picks a free one.
        timeout_secs: The default deadline of an execution.
        drain_timeout_secs: How long running executions may go on once shutdown has begun.
        max_executions: Executions at one time; more are refused as ``OVERLOADED``.
        allow_anonymous: Serve on an address that is not loopback without an authenticator.
        expose_errors: Development only: tell callers type and message of a tool's unexpected exceptions.
        http: The HTTP transport.
        store: The idempotency store.
    """

    name: str = "carmy"
    app: str | None = None
    address: str = "127.0.0.1:3000"
    timeout_secs: float = 30.0
    drain_timeout_secs: float = 10.0
    max_executions: int = 1000
    allow_anonymous: bool = False
    expose_errors: bool = False
    http: HttpSettings = HttpSettings()
    store: StoreSettings = StoreSettings()
