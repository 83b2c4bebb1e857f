"""``/health`` and ``/ready``: for load balancers and supervisors, without credentials."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import msgspec
import trio

from carmy_engine import BoundEngine, Engine, ErrorInfo
from carmy_engine.errors import AgentError
from carmy_engine.transport import RateLimitedLogger, contain

from ..message import JSON_TYPE, NO_STORE, Request, Response
from .errors import retry_after

HEALTH_PATH = "/health"
READY_PATH = "/ready"

MAX_CHECK_THREADS = 8
"""Threads for plain functions among the checks; a check that hangs keeps its thread, not its caller."""

_OK = b'{"ok":true}'
_limiter = trio.CapacityLimiter(MAX_CHECK_THREADS)


class ReadyCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one readiness check."""

    ok: bool
    error: ErrorInfo | None = None


class ReadyAnswer(msgspec.Struct, frozen=True):
    """The outcome of all readiness checks."""

    ready: bool
    checks: dict[str, ReadyCheck]


async def health(_request: Request, _engine: BoundEngine) -> Response:
    """Answer ``GET /health``: this process serves requests. The state of what it depends on is not checked."""
    return Response(200, (JSON_TYPE, NO_STORE), _OK)


async def ready(engine: Engine, log: RateLimitedLogger, _request: Request, _caller: BoundEngine) -> Response:
    """Answer ``GET /ready``: 200 when every check passes and no shutdown has begun, otherwise 503 with the failed checks."""
    checks: dict[str, ReadyCheck] = {}
    if engine.stopping.is_set():
        checks["engine"] = _failed(AgentError.standard("SHUTTING_DOWN", "the engine is draining or closing"))
    else:
        outcomes = dict[str, ReadyCheck]()
        async with trio.open_nursery() as nursery:
            for name, check in engine.ready_checks.items():
                nursery.start_soon(_run, name, check, engine.settings.http.ready_timeout_secs, outcomes, log)
        checks = {name: outcomes[name] for name in engine.ready_checks}
    is_ready = all(check.ok for check in checks.values())
    waits = [header for check in checks.values() if check.error is not None for header in retry_after(check.error)]
    body = msgspec.json.encode(ReadyAnswer(is_ready, checks))
    return Response(200 if is_ready else 503, (JSON_TYPE, NO_STORE, *waits[:1]), body)


def _failed(error: AgentError) -> ReadyCheck:
    return ReadyCheck(False, error.info)


async def _run(
    name: str,
    check: Callable[[], Awaitable[object] | object],
    seconds: float,
    outcomes: dict[str, ReadyCheck],
    log: RateLimitedLogger,
) -> None:
    outcomes[name] = _failed(
        AgentError.standard("READY_TIMEOUT", f"the check did not finish within {seconds:g} seconds")
    )
    with trio.move_on_after(seconds):
        try:
            passed = await _call(check)
        except AgentError as error:
            outcomes[name] = _failed(error)
        except BaseException as error:  # noqa: BLE001 - see below
            # The host's own code: any failure in it is a failed check. The text of the line is the key of the rate limit,
            # so each check has a limit to itself.
            contain(error, log, f"the readiness check {name!r} failed")
            outcomes[name] = _failed(AgentError.standard("CHECK_FAILED", "the check failed; the log has the reason"))
        else:
            if passed is False:
                outcomes[name] = _failed(AgentError.standard("CHECK_FAILED", "the check returned false"))
            else:
                outcomes[name] = ReadyCheck(True)


async def _call(check: Callable[[], Awaitable[object] | object]) -> object:
    if inspect.iscoroutinefunction(check):
        return await check()
    # A plain function may block, so it runs in a thread. It may also return an awaitable, which trio would reject as
    # the result of a thread; hence the tuple.
    (outcome,) = await trio.to_thread.run_sync(lambda: (check(),), abandon_on_cancel=True, limiter=_limiter)
    return await outcome if inspect.isawaitable(outcome) else outcome
