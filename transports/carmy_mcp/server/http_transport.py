"""MCP over HTTP as a transport of its own, without the other addresses of `carmy_http`."""

from __future__ import annotations

import trio

from carmy_engine import Engine
from carmy_http.api.endpoints import Endpoints
from carmy_http.server import serve_endpoints

from .mount import Run, opened
from .streamable_http import run_application


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
    async with opened(engine, _loaded, several=False) as application:
        endpoints = Endpoints(engine, {"/mcp": application}, only_mounts=True)
        await serve_endpoints(engine, endpoints, "mcp", "/mcp", task_status=task_status)


async def _loaded() -> Run:
    await trio.lowlevel.checkpoint()
    return run_application
