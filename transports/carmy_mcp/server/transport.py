"""The transport of the command ``carmy mcp``. Importing it does not import the SDK, which takes half a second."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType

import trio

from carmy_engine import ConfigurationError, Engine, Settings
from carmy_engine.transport import Transport, missing_extra
from carmy_stdio import claim


def _load(module: str) -> ModuleType:
    """Import a module that needs the SDK.

    Raises:
        ConfigurationError: A package is missing.
    """
    try:
        return importlib.import_module(f".{module}", __package__)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(str(missing_extra("MCP", "mcp", missing))) from missing


def _prepare_stdio() -> None:
    """Import the SDK, then take standard input and output."""
    _load("stdio")
    claim()


def _prepare_http() -> None:
    _load("http_transport")


async def _http_problems(settings: Settings, *, authenticated: bool) -> list[ConfigurationError]:
    """See `carmy_http.server.http_problems`."""
    from carmy_http.server import http_problems  # noqa: PLC0415 - MCP over standard input and output needs none of it

    return await http_problems(settings, authenticated=authenticated)


async def serve_stdio(
    engine: Engine,
    *,
    principal: str | None = None,
    permissions: Iterable[str] = (),
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """See `carmy_mcp.server.stdio.serve_stdio`."""
    serve = _load("stdio").serve_stdio
    await serve(engine, principal=principal, permissions=permissions, task_status=task_status)


async def serve_http(engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """See `carmy_mcp.server.http_transport.serve_http`."""
    await _load("http_transport").serve_http(engine, task_status=task_status)


serve = Transport(
    serve_stdio,
    help="Serve clients of MCP, over standard input and output or, with --http, over HTTP at /mcp.",
    options=(),
    has_local_callers=True,
    claims_stdout=True,
    prepare=_prepare_stdio,
    over_http=Transport(serve_http, options=("address", "http.server"), prepare=_prepare_http, problems=_http_problems),
)
"""The transport."""
