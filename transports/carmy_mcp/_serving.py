"""MCP over HTTP as a transport of its own, without the other addresses of `carmy_http`."""

from __future__ import annotations

import trio

from carmy_engine import Engine
from carmy_http._endpoints import Endpoints
from carmy_http._server import serve_endpoints

from ._http import run_application


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
    async with trio.open_nursery() as nursery:
        application = await nursery.start(run_application, engine, False)
        endpoints = Endpoints(engine, {"/mcp": application}, only_mounts=True)
        await serve_endpoints(engine, endpoints, "mcp", "/mcp", task_status=task_status)
        nursery.cancel_scope.cancel()
