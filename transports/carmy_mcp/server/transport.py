"""The transport of the command ``carmy mcp``."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from carmy_engine import ConfigurationError, Engine, Settings
from carmy_engine.transport import Transport
from carmy_stdio import claim


async def serve_stdio(
    engine: Engine,
    *,
    principal: str | None = None,
    permissions: Iterable[str] = (),
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """See `carmy_mcp.server.stdio.serve_stdio`."""
    from . import stdio  # noqa: PLC0415 - each of the two ways needs half of the modules

    await stdio.serve_stdio(engine, principal=principal, permissions=permissions, task_status=task_status)


async def serve_http(engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """See `carmy_mcp.server.mount.serve_http`."""
    from . import mount  # noqa: PLC0415 - as above

    await mount.serve_http(engine, task_status=task_status)


async def _http_problems(settings: Settings, *, authenticated: bool) -> list[ConfigurationError]:
    """See `carmy_http.server.http_problems`."""
    from carmy_http.server import http_problems  # noqa: PLC0415 - as above

    return await http_problems(settings, authenticated=authenticated)


serve = Transport(
    serve_stdio,
    help="Serve clients of MCP, over standard input and output or, with --http, over HTTP at /mcp.",
    options=(),
    has_local_callers=True,
    claims_stdout=True,
    prepare=claim,
    over_http=Transport(serve_http, options=("address", "http.server"), problems=_http_problems),
)
"""The transport."""
