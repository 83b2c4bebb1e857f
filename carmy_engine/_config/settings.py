"""Every setting, with its default, its unit and its range. `sources` reads the values.

An object with a setting out of range cannot be created.
"""

from __future__ import annotations

import typing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .._model.errors import ConfigurationError
from .address import ADDRESS_FORMS, parse_address

_MAX_SECONDS = 31_536_000
"""A year. Beyond it a number is a mistake in the unit; it also keeps infinity out."""

Seconds = Annotated[float, Meta(gt=0, le=_MAX_SECONDS, description="a number of seconds above 0, at most a year")]
SecondsOrNone = Annotated[float, Meta(ge=0, le=_MAX_SECONDS, description="a number of seconds, 0 to a year")]
Days = Annotated[float, Meta(gt=0, le=36_500, description="a number of days above 0, at most 36500")]
Count = Annotated[int, Meta(ge=1, le=1_000_000, description="a whole number, 1 to 1000000")]
Entries = Annotated[int, Meta(ge=1, le=1_000_000_000, description="a whole number, 1 to 1000000000")]
Bytes = Annotated[int, Meta(ge=1, le=2**48, description="a whole number of bytes above 0, at most 2^48")]
Flag = Annotated[bool, Meta(description="true or false")]
Text = Annotated[str, Meta(min_length=1, description="a text that is not empty")]
Texts = Annotated[tuple[Text, ...], Meta(description="a list of texts, none of them empty")]
RootPath = Annotated[
    str,
    Meta(
        pattern=r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+\Z",
        max_length=256,
        description="a path such as /shop: of letters, digits and ._~-, without a slash at its end",
    ),
]
PublicUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~-]+)*\Z",
        max_length=1024,
        description="a URL such as https://shop.example or https://example.org/shop, without a slash at its end",
    ),
]
Address = Annotated[str, Meta(min_length=1, description=ADDRESS_FORMS)]
Processes = Annotated[int, Meta(ge=1, le=256, description="a whole number, 1 to 256")]
Durability = Annotated[Literal["full", "normal"], Meta(description="full or normal")]
Naming = Annotated[Literal["safe", "declared"], Meta(description="safe or declared")]
Asking = Annotated[Literal["ask", "refuse"], Meta(description="ask or refuse")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    Meta(description="debug, info, warning, error or critical"),
]
LogFormat = Annotated[Literal["text", "json"], Meta(description="text or json")]
Server = Annotated[Literal["auto", "hypercorn", "native"], Meta(description="auto, hypercorn or native")]


def field_types(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The declared type of every setting of a table, with its range; tables in it stand for themselves."""
    return typing.get_type_hints(struct, include_extras=True)


def check_value(key: str, expected: Any, value: Any) -> Any:
    """The value, converted where that loses nothing (an integer for a number, a list for a tuple).

    Args:
        key: The setting's name, for the message.
        expected: Its type, from `field_types`.
        value: What was given.

    Raises:
        ConfigurationError: The value does not fit. The message names the range, and never the value: the URL
            of a store may contain a password.
    """
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError:
        raise ConfigurationError(f"{key} must be {_describe(expected)}") from None


def _describe(expected: Any) -> str:
    for part in (expected, *typing.get_args(expected)):  # ``Text | None`` has its description one level down
        for meta in getattr(part, "__metadata__", ()):
            if isinstance(meta, Meta) and meta.description is not None:
                return meta.description
    return f"of type {getattr(expected, '__name__', expected)}"


class _Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Refuses values that its fields' types do not allow, in code as in a file."""

    def __post_init__(self) -> None:
        for name, expected in field_types(type(self)).items():
            msgspec.structs.force_setattr(self, name, check_value(name, expected, getattr(self, name)))


class HttpSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[http]``.

    Attributes:
        server: The front end: ``native`` (HTTP/1.1 without TLS), ``hypercorn``, or ``auto``, which takes ``hypercorn`` where TLS or
            HTTP/2 is configured, and ``native`` elsewhere.
        tls_cert: Path of the certificate chain in PEM; with `tls_key`, the server accepts TLS only.
        tls_key: Path of its private key in PEM, without a passphrase.
        http2: Offer HTTP/2 over TLS, beside HTTP/1.1.
        processes: Of the command ``serve``; each has an engine of its own.
        header_timeout_secs: From the connection's start, or a later request's first byte, to the end of the request's head.
        body_timeout_secs: For a whole request body.
        keep_alive_secs: Idle time between two requests.
        last_request_secs: For a request that is on its way when the server begins to drain.
        write_timeout_secs: Without progress. A client that takes nothing for so long counts as gone.
        linger_timeout_secs: For reading after the last answer, so that closing does not reset the connection and lose the answer.
        flush_timeout_secs: For answers to leave once the last execution of a stopping server has ended.
        heartbeat_secs: Silence on a stream of events after which a comment is sent.
        ready_timeout_secs: For each readiness check.
        max_connections: Connections beyond this wait in the kernel's backlog.
        max_connections_per_address: Connections of one client address; further ones are closed. None: no limit.
        max_head_bytes: Of request line and headers.
        max_body_bytes: Of a request's body.
        max_pipelined_bytes: Of pipelined requests behind the one that is being answered. A client that sends more is disconnected.
        max_unread_bytes: Of a body that the application has not read yet. Beyond it, reading pauses (back-pressure).
        max_linger_bytes: Discarded after the last answer. The connection of a client that sends more is reset.
        security_headers: Add defensive headers to every answer.
        allowed_hosts: Names accepted in ``Host`` beside loopback, with or without a port.
        allowed_origins: Browser origins that may call, exact (``https://app.example``).
        root_path: The prefix under which a proxy serves this server. Requests may arrive with it or without it, and the discovery
            document lists the addresses with it.
        public_url: The URL under which clients reach this server, for clients of OAuth. None: that by which a request came.
        mcp: Serve MCP beside the other addresses, if the package for it is installed.
    """

    server: Server = "auto"
    tls_cert: Text | None = None
    tls_key: Text | None = None
    http2: Flag = False
    processes: Processes = 1
    header_timeout_secs: Seconds = 10.0
    body_timeout_secs: Seconds = 30.0
    keep_alive_secs: Seconds = 75.0
    last_request_secs: Seconds = 0.1
    write_timeout_secs: Seconds = 10.0
    linger_timeout_secs: Seconds = 2.0
    flush_timeout_secs: Seconds = 2.0
    heartbeat_secs: Seconds = 15.0
    ready_timeout_secs: Seconds = 5.0
    max_connections: Count = 4096
    max_connections_per_address: Count | None = None
    max_head_bytes: Bytes = 32 * 1024
    max_body_bytes: Bytes = 1024 * 1024
    max_pipelined_bytes: Bytes = 64 * 1024
    max_unread_bytes: Bytes = 256 * 1024
    max_linger_bytes: Bytes = 8 * 1024 * 1024
    security_headers: Flag = False
    allowed_hosts: Texts = ()
    allowed_origins: Texts = ()
    root_path: RootPath | None = None
    public_url: PublicUrl | None = None
    mcp: Flag = True


class FramesSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[frames]``, for stdio and WebSocket. The first frame of a connection announces both.

    Attributes:
        max_message_bytes: Of one message from a client.
        max_calls: Calls of one connection without an answer.
    """

    max_message_bytes: Bytes = 4 * 1024 * 1024
    max_calls: Count = 1000


class WebSocketSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[websocket]``. Connections, heads, hosts and origins have the settings of ``[http]``.

    Attributes:
        ping_secs: Between pings.
        silence_secs: Without a byte from the peer, and without a byte that it takes.
        accept_timeout_secs: For the answer to an accepted handshake.
        write_timeout_secs: For sending one message.
        max_waiting_messages: Messages of one connection that wait to be handled.
        max_waiting_bytes: Bytes of these messages.
        max_unfinished_bytes: On the wire, for one message that has not ended: fragments have heads.
    """

    ping_secs: Seconds = 20.0
    silence_secs: Seconds = 40.0
    accept_timeout_secs: Seconds = 10.0
    write_timeout_secs: Seconds = 30.0
    max_waiting_messages: Count = 1024
    max_waiting_bytes: Bytes = 8 * 1024 * 1024
    max_unfinished_bytes: Bytes = 32 * 1024 * 1024


class McpSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[mcp]``.

    Attributes:
        confirm: ``ask``: ask the person behind a client about calls that need a confirmation; ``refuse``: refuse these calls.
        promote_after_secs: Time until the call of a client that supports tasks becomes a task; 0 for never.
        sessions: Over HTTP, sessions for the versions that have them. False where the requests of one client may reach
            different processes, such as behind a balancer.
        max_calls: Calls of one connection without an answer.
        max_requests: Requests of one connection without an answer, calls included.
        max_sessions: Open sessions.
        session_idle_secs: Without a request in a session, after which it ends.
        max_tasks: Tasks that run or are kept. While there are as many, calls are answered when they are over.
        max_task_bytes: Of outputs of ended tasks. Beyond it, those that ended first are dropped.
        task_retention_secs: After the end of a task, for its client to fetch the outcome.
        names: ``safe``: a tool whose name does not fit ``[A-Za-z0-9_-]{1,64}``, which common clients and models require, is listed
            under another one; ``declared``: as it is.
        max_text_bytes: Of the text of an output, in answers whose structured content carries the whole.
        max_replay_bytes: Of the events of one stream that are kept for a client that loses its connection.
        resume_timeout_secs: For a client to come back to a stream that it has lost, before its call is cancelled.
        max_questions: Open questions to persons. Further calls are refused; of those that wait for no answer, the oldest is dropped.
        question_timeout_secs: For a person's answer. A later one does not count.
    """

    confirm: Asking = "ask"
    promote_after_secs: SecondsOrNone = 2.0
    sessions: Flag = True
    max_calls: Count = 1000
    max_requests: Count = 2000
    max_sessions: Count = 1000
    session_idle_secs: Seconds = 1800.0
    max_tasks: Count = 1000
    max_task_bytes: Bytes = 64 * 1024 * 1024
    task_retention_secs: Seconds = 300.0
    names: Naming = "safe"
    max_text_bytes: Bytes = 256 * 1024
    max_replay_bytes: Bytes = 1024 * 1024
    resume_timeout_secs: Seconds = 10.0
    max_questions: Count = 1000
    question_timeout_secs: Seconds = 300.0


class LogSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[log]``: what commands log, unless the application has configured logging itself.

    Attributes:
        level: The least severe level that is logged.
        format: ``text``, or ``json`` for one object on each line.
        access: Log a line for each execution, at level info, to ``carmy.access``.
    """

    level: LogLevel = "info"
    format: LogFormat = "text"
    access: Flag = False


class MetricsSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[metrics]``.

    Attributes:
        address: Where commands serve the metrics to Prometheus, at ``/metrics``; None: nowhere.
    """

    address: Address | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.address is not None:
            parse_address(self.address)


class JwtSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[auth.jwt]``: access tokens that are accepted. With the first three keys, or none of them.

    Attributes:
        issuer: The authorization server, exactly as in the claim ``iss``.
        audience: The names of this server, one of which is in the claim ``aud``.
        jwks: The issuer's keys: a file, or an ``https`` URL.
        algorithms: The accepted signatures.
        leeway_secs: By which clocks may differ, at most 300.
        permissions: The claim with the permissions.
    """

    issuer: Text | None = None
    audience: Texts = ()
    jwks: Text | None = None
    algorithms: Texts = ("RS256", "ES256")
    leeway_secs: SecondsOrNone = 30.0
    permissions: Text = "scope"


class AuthSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[auth]``: which callers are accepted, beside an authenticator that the program gives.

    Attributes:
        tokens_file: A file of bearer tokens, which ``carmy token`` writes.
        require_permissions: A tool needs the permission for it: ``tool:NAME``, with ``*`` for any characters, or ``effect:EFFECT``.
        jwt: Access tokens of an authorization server.
    """

    tokens_file: Text | None = None
    require_permissions: Flag = False
    jwt: JwtSettings = JwtSettings()


class LimitSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[limits]``: bounds of one engine, beside ``max_executions``.

    Attributes:
        per_principal_executions: Executions of one principal at one time; more are refused as ``RATE_LIMITED``. None: no limit.
        max_output_bytes: Of one output, whatever its tool declares; None: the limit of the tool.
        max_event_bytes: Of progress reports and partial results that wait for the reader of one execution.
        max_threads: Worker threads for plain functions.
        max_recent: Ended executions that can still be looked up.
        max_recent_bytes: Of the outputs of these executions.
        max_audit_records: Of the newest records in memory.
    """

    per_principal_executions: Count | None = None
    max_output_bytes: Bytes | None = None
    max_event_bytes: Bytes = 256 * 1024
    max_threads: Count = 64
    max_recent: Count = 1000
    max_recent_bytes: Bytes = 16 * 1024 * 1024
    max_audit_records: Count = 1000


class WorkerSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[workers]``: the processes that run tools declared with ``run_in="process"``.

    Attributes:
        max_processes: Worker processes; each runs one call at a time.
        max_memory_bytes: Of the address space of a worker, its interpreter and modules included; None: no limit.
        max_cpu_secs: Of the processor for one call, rounded up to whole seconds; None: no limit.
    """

    max_processes: Annotated[int, Meta(ge=1, le=1000, description="a whole number, 1 to 1000")] = 4
    max_memory_bytes: Bytes | None = None
    max_cpu_secs: Seconds | None = None


class StoreSettings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[store]``.

    Attributes:
        url: ``memory:``, ``sqlite:PATH`` or ``postgresql://USER@HOST/DATABASE``.
        retention_days: How long a completed entry replays, counted from its completion.
        max_entries: Entries at one time; None for 100,000 in memory, 1,000,000 in a file, 10,000,000 in PostgreSQL.
        max_bytes: Bytes of entries and their outputs at one time; None for 256 MiB in memory, 2 GiB in a file, 20 GiB in PostgreSQL.
        durability: ``full``: answers survive a power cut; ``normal``: the end of the process. For stores that write.
        audit_days: How long audit records are kept, by stores that keep them.
        lease_secs: How long running entries outlive the last sign of their process, in stores that machines share.
    """

    url: Text = "memory:"
    retention_days: Days = 7.0
    max_entries: Entries | None = None
    max_bytes: Bytes | None = None
    durability: Durability = "full"
    audit_days: Days = 90.0
    lease_secs: Seconds = 15.0


class Settings(_Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one application.

    Attributes:
        name: The server's name in discovery documents.
        title: The server's name for people, for clients of MCP.
        version: The application's, for clients of MCP; None for that of the engine.
        instructions: How a model uses the tools together, for clients of MCP.
        app: The application that commands without a target run, ``module:app`` or ``file.py:app``.
        address: Where servers listen: ``HOST:PORT`` (port 0 picks a free one), ``unix:PATH`` or ``fd://N``.
        reuse_port: Share the port with other processes that say so too, by ``SO_REUSEPORT``.
        timeout_secs: The default deadline of an execution.
        drain_timeout_secs: How long running executions may go on once shutdown has begun.
        exit_timeout_secs: How long the process of a command may take to end after that, whatever its tools do.
        startup_timeout_secs: How long each provided state, and each function of the start, may take.
        shutdown_timeout_secs: How long each may take at the end.
        max_executions: Executions at one time; more are refused as ``OVERLOADED``.
        confirmation_timeout_secs: How long a confirmation waits for its answer, and how long the answer counts.
        allow_anonymous: Serve on an address that is not loopback without an authenticator.
        expose_errors: Development only: send callers the type and message of a tool's unexpected exceptions.
        http: The HTTP transport.
        frames: Messages over stdio and WebSocket.
        websocket: The WebSocket transport.
        mcp: MCP.
        store: The idempotency store.
        limits: Bounds of the engine.
        workers: Processes that run tools.
        auth: Which callers are accepted.
        log: What is logged.
        metrics: Where metrics are served.
        trust_traceparent: Make the spans of executions children of the span that a caller names in the header ``traceparent``.

    Raises:
        ConfigurationError: A value is out of range; the message names the field.
    """

    name: Text = "carmy"
    title: Text | None = None
    version: Text | None = None
    instructions: Text | None = None
    app: Text | None = None
    address: Address = "127.0.0.1:3000"
    reuse_port: Flag = False
    timeout_secs: Seconds = 30.0
    drain_timeout_secs: SecondsOrNone = 10.0
    exit_timeout_secs: Seconds = 8.0
    startup_timeout_secs: Seconds = 30.0
    shutdown_timeout_secs: Seconds = 10.0
    max_executions: Count = 1000
    confirmation_timeout_secs: Seconds = 600.0
    allow_anonymous: Flag = False
    expose_errors: Flag = False
    trust_traceparent: Flag = False
    http: HttpSettings = HttpSettings()
    frames: FramesSettings = FramesSettings()
    websocket: WebSocketSettings = WebSocketSettings()
    mcp: McpSettings = McpSettings()
    store: StoreSettings = StoreSettings()
    limits: LimitSettings = LimitSettings()
    workers: WorkerSettings = WorkerSettings()
    auth: AuthSettings = AuthSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_address(self.address)
