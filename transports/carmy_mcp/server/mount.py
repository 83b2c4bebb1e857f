"""MCP at one address of an HTTP server: the mount of ``carmy serve``, and the transport ``carmy mcp --http``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from carmy_engine import Engine
from carmy_engine.transport import raise_single
from carmy_http.api.endpoints import Endpoints
from carmy_http.api.mounts import HandlerOf
from carmy_http.server import serve_endpoints

from .http import HttpApplication


def mount(engine: Engine) -> AbstractAsyncContextManager[HandlerOf]:
    """An application for one address of `carmy_http`, and the block in which it lives.

    Args:
        engine: An open engine.
    """
    return opened(engine, several=engine.settings.http.processes > 1)


@asynccontextmanager
async def opened(engine: Engine, *, several: bool) -> AsyncIterator[HandlerOf]:
    """The application, as `mount` describes it.

    Args:
        engine: An open engine.
        several: Other processes serve at the same address, so that there cannot be sessions.
    """
    try:
        async with trio.open_nursery() as nursery:
            application = HttpApplication(engine, nursery, several=several)
            nursery.start_soon(application.run)
            yield application.handler
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


async def serve_http(engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve an engine to clients of MCP at ``/mcp`` until it has stopped, or until cancelled.

    Connections, ``Host``, ``Origin`` and credentials are those of `carmy_http.serve`, with the same settings. Sessions end
    with this function.

    Args:
        engine: An open engine; its settings say where.
        task_status: Started with a line for people, which ends in the address, once connections are accepted.

    Raises:
        ConfigurationError: The settings do not allow it, or the address cannot be had.
    """
    async with opened(engine, several=False) as handler_of:
        endpoints = Endpoints(engine, {"/mcp": handler_of}, only_mounts=True)
        await serve_endpoints(engine, endpoints, "mcp", "/mcp", task_status=task_status)
