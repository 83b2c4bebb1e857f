"""The transport: an engine over HTTP, on the front end that the settings name."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any

import trio

from carmy_engine import ConfigurationError, Engine, Settings
from carmy_engine.transport import Transport, missing_extra
from carmy_net import Server, listener_url, network_problems, open_listeners

from .api.endpoints import Endpoints
from .api.mounts import open_mounts
from .asgi import asgi
from .native.connection import NativeConnection
from .native.shared_state import SharedState
from .tls import front_end_of, tls_context, tls_problems, wants_tls

log = logging.getLogger("carmy.http")


async def serve_http(engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve an engine over HTTP until it has stopped, or until cancelled.

    Once ``engine.stopping`` is set, the listener closes, idle connections close a moment later, and every answer is the last
    of its connection. Once ``engine.stopped`` is set, answers get two seconds to leave. When cancelled, nothing is left
    open and nothing is waited for.

    Args:
        engine: An open engine; its settings say where and how.
        task_status: Started with a line for people, which ends in the address, once connections are accepted.

    Raises:
        ConfigurationError: The settings do not allow it, or the address cannot be had.
    """
    async with open_mounts(engine) as mounts:
        await serve_endpoints(engine, Endpoints(engine, mounts), "http", task_status=task_status)


def _require(settings: Settings) -> None:
    """Import the packages that serving with these settings needs.

    Raises:
        ConfigurationError: A package is missing.
    """
    if front_end_of(settings.http) == "hypercorn":
        _hypercorn()


async def http_problems(settings: Settings, *, authenticated: bool) -> list[ConfigurationError]:
    """The reasons why `serve_endpoints` would refuse the settings; see `network_problems`."""
    return [*tls_problems(settings.http), *await network_problems(settings, authenticated=authenticated)]


serve = Transport(
    serve_http,
    help="Serve over HTTP.",
    options=("address", "http.server", "http.processes"),
    require=_require,
    problems=http_problems,
    listen=open_listeners,
)
"""The transport; see `serve_http`."""


def _hypercorn() -> Any:
    """What makes connections on hypercorn. Imported late: the native front end starts in a fifth less time without.

    Raises:
        ConfigurationError: Its packages are missing.
    """
    try:
        from .hypercorn.front_end import connector  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigurationError(str(missing_extra("http.server = hypercorn", "http", missing))) from missing
    return connector


async def serve_endpoints(
    engine: Engine,
    endpoints: Endpoints,
    name: str,
    path: str = "",
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve some endpoints; see `serve_http`.

    Args:
        engine: An open engine; its settings say where and how.
        endpoints: Its, or some of them.
        name: Of the transport, for people.
        path: The address that people should know.
        task_status: Started with a line for people, which ends in the URL.

    Raises:
        ConfigurationError: The settings do not allow it, or the address cannot be had.
    """
    settings = engine.settings
    for problem in tls_problems(settings.http):
        raise problem
    tls = tls_context(settings.http) if wants_tls(settings.http) else None
    native = SharedState(engine, endpoints) if front_end_of(settings.http) == "native" else None
    if native is None:
        plain = _hypercorn()(asgi(endpoints), settings.http, engine.stopping.is_set, endpoints.refusal, tls)
        server = Server(plain, settings.http, log=log)
    else:
        connect = functools.partial(NativeConnection, native)
        reserve = functools.partial(NativeConnection, native, reserved=True)
        server = Server(connect, settings.http, reserve=reserve, log=log)
    if engine.metrics is not None:
        engine.metrics.connections[name] = lambda: server.connections
    listeners = await open_listeners(settings, authenticated=engine.authenticator is not None)
    line = f"{name} listening on {listener_url(listeners[0], 'http' if tls is None else 'https', path)}"
    async with contextlib.AsyncExitStack() as keeping:
        if native is not None:
            await keeping.enter_async_context(native.running())
        await server.run(listeners, engine.stopping, engine.stopped, lambda: task_status.started(line))
