"""The door for authors of transports: what a transport needs besides `carmy_engine`, `abc`, `codec` and `errors`.

The project's own transports import the core through this module only. ``docs/design.md`` explains how to write one.

- Both sides: `raise_single` and `flatten_exceptions` for the exception groups of nurseries, `new_execution_id`, `OnRunning` and `may_join`,
  `unknown_name_message`, `missing_extra` for a package that is not installed, `shortened` for a name from the wire.
- Foreign code, such as an authenticator: `ask_foreign`, `call_foreign` and `await_foreign`, which raise `AgentError` or `Fault`; `log_fault` and
  `log_traceback`.
- Servers: `Transport`, the object of the entry point; `as_agent_error`, `raise_own` and `contain` for the boundaries around one call,
  one connection and one task; `LazyDeadlineScope` for the scope of a call; `EventBuffer` for events; `unknown_tool`; `parse_address` and its
  kinds of address; `hard_limit`, `stop_limit`, `end_flushed`, `flush_at_forced_exit`, `descendants` and `kill_descendants` for the end of a process;
  `RateLimitedLogger` for lines that a peer can cause, of which it writes the first `BURST_LINES` in a minute.
- Applications for servers of others: `AsyncioHost`, a trio thread that belongs to an asyncio loop.
- Clients: `require_trio` against the wrong event loop, `parse_server_url`, `split_unix_url` and `check_token`, `reason_of` for a connection
  that failed, `encode_remote_arguments` and
  `encode_arguments`. For the tools of another protocol, the errors
  of its arguments and outputs: `invalid_arguments`, `invalid_output`, `output_too_large`, `output_subject`, `first_infinite`,
  `may_hide_infinite`, `fingerprint`, `DEFAULT_MAX_OUTPUT_BYTES`; and `wire_names` with a `NameRule`, for names that it does not take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._app.serve import descendants, end_flushed, flush_at_forced_exit, hard_limit, kill_descendants, stop_limit
from ._app.transport import Transport
from ._config.address import Address, InheritedAddress, TcpAddress, UnixAddress, parse_address, split_unix_url
from ._config.server_url import check_token, parse_server_url
from ._engine.remote_arguments import encode_remote_arguments
from ._execution.event_stream import EventBuffer
from ._execution.execution import new_execution_id
from ._execution.trio_internals import LazyDeadlineScope
from ._idempotency.decisions import may_join
from ._loops.running import require_trio
from ._model.error_boundary import (
    Fault,
    as_agent_error,
    ask_foreign,
    await_foreign,
    call_foreign,
    contain,
    flatten_exceptions,
    log_fault,
    log_traceback,
    raise_own,
    raise_single,
    reason_of,
)
from ._model.extras import missing_extra
from ._model.fingerprint import fingerprint
from ._model.rate_limited_log import BURST_LINES, RateLimitedLogger
from ._model.request import OnRunning
from ._model.spec import DEFAULT_MAX_OUTPUT_BYTES
from ._model.suggestions import shortened, unknown_name_message, unknown_tool
from ._schema.json_form import encode_arguments, first_infinite, may_hide_infinite
from ._schema.messages import invalid_arguments, output_subject
from ._tools.output import invalid_output
from ._tools.output import too_large as output_too_large
from .providers._names import NameRule, wire_names

if TYPE_CHECKING:
    from ._host.asyncio_host import AsyncioHost

__all__ = [
    "BURST_LINES",
    "DEFAULT_MAX_OUTPUT_BYTES",
    "Address",
    "AsyncioHost",
    "EventBuffer",
    "Fault",
    "InheritedAddress",
    "LazyDeadlineScope",
    "NameRule",
    "OnRunning",
    "RateLimitedLogger",
    "TcpAddress",
    "Transport",
    "UnixAddress",
    "as_agent_error",
    "ask_foreign",
    "await_foreign",
    "call_foreign",
    "check_token",
    "contain",
    "descendants",
    "encode_arguments",
    "encode_remote_arguments",
    "end_flushed",
    "fingerprint",
    "first_infinite",
    "flatten_exceptions",
    "flush_at_forced_exit",
    "hard_limit",
    "invalid_arguments",
    "invalid_output",
    "kill_descendants",
    "log_fault",
    "log_traceback",
    "may_hide_infinite",
    "may_join",
    "missing_extra",
    "new_execution_id",
    "output_subject",
    "output_too_large",
    "parse_address",
    "parse_server_url",
    "raise_own",
    "raise_single",
    "reason_of",
    "require_trio",
    "shortened",
    "split_unix_url",
    "stop_limit",
    "unknown_name_message",
    "unknown_tool",
    "wire_names",
]


def __getattr__(name: str) -> Any:
    """Import `AsyncioHost` on first use: asyncio is imported only where something runs in it."""
    if name != "AsyncioHost":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._host.asyncio_host import AsyncioHost  # noqa: PLC0415 - see above

    return AsyncioHost
