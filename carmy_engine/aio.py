"""The engine, and the clients of its transports, for asyncio programs.

::

    from carmy_engine import aio

    async with aio.open_app(app) as engine:
        products = await engine.call(search, query="mouse")

The engine runs under trio in a thread of its own; the objects here belong to the asyncio loop that opened them. They have the names of
the engine under trio. Cancelling a task cancels its execution.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from . import abc
from ._app.app import App
from ._app.plugins import find_client
from ._config.settings import Settings
from ._engine.engine import BoundEngine as TrioBoundEngine
from ._engine.engine import Engine as TrioEngine
from ._host.asyncio_engine import BoundEngine, Engine, Executor
from ._host.asyncio_host import AsyncioHost, EventStream, Opening
from ._loops.running import host_caller, wrong_loop

__all__ = [
    "BoundEngine",
    "Engine",
    "EventStream",
    "Executor",
    "engine_of",
    "open_app",
    "open_executor",
    "open_http",
    "open_mcp",
    "open_stdio",
    "open_websocket",
]


def open_app(app: App, *, settings: Settings | None = None) -> AbstractAsyncContextManager[Engine]:
    """Open an application as an engine; leaving the block shuts the engine down.

    Args:
        app: The application.
        settings: For this run, instead of the application's own.

    Raises:
        StartupError: It cannot start. Lists every problem of its tools, state, store and mounts.
        ConfigurationError: The only problem is a setting.
        WrongLoopError: No asyncio loop runs here.
    """

    def make_host() -> AsyncioHost[TrioEngine]:
        _require_asyncio("open_app(app)", "app.open()")
        return AsyncioHost(lambda: app.open(settings=settings), f"the engine {app.name!r}")

    return Opening(make_host, Engine)


def open_executor(
    open_subject: Callable[[], AbstractAsyncContextManager[abc.Executor]],
) -> AbstractAsyncContextManager[Executor[Any]]:
    """Open any executor that runs under trio, such as one that ``open_engine`` or a client of another package opens.

    Args:
        open_subject: Called in the trio thread; returns an async context manager.

    Raises:
        WrongLoopError: No asyncio loop runs here.
    """

    def make_host() -> AsyncioHost[abc.Executor]:
        _require_asyncio("open_executor(...)", "open_subject()")
        return AsyncioHost(open_subject, "the executor")

    return Opening(make_host, Executor)


def engine_of(engine: TrioBoundEngine) -> BoundEngine:
    """An engine under trio, for calls from its asyncio tools.

    ::

        @app.tool(effect="read", backend="asyncio")
        async def outer() -> int:
            return await aio.engine_of(engine).call(inner)

    Args:
        engine: The engine, from ``async with app.open() as engine``.

    Raises:
        WrongLoopError: No tool of asyncio runs here.
    """
    caller = host_caller.get()
    if caller is None or asyncio._get_running_loop() is not caller.loop:  # noqa: SLF001 - documented
        raise wrong_loop(
            "carmy_engine.aio.engine_of is for tools of asyncio",
            trio="await engine.call(...)",
            aio="async with carmy_engine.aio.open_app(app)",
            blocking="with carmy_engine.blocking.open_app(app)",
        )
    return BoundEngine(caller, engine)


def open_http(*args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Executor[Any]]:
    """Call a server over HTTP; takes the arguments of `carmy_http.open_http`."""
    return open_executor(partial(find_client("http"), *args, **kwargs))


def open_websocket(*args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Executor[Any]]:
    """Call a server over WebSocket; takes the arguments of `carmy_websocket.open_websocket`."""
    return open_executor(partial(find_client("websocket"), *args, **kwargs))


def open_stdio(*args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Executor[Any]]:
    """Start a program and call its tools; takes the arguments of `carmy_stdio.open_stdio`."""
    return open_executor(partial(find_client("stdio"), *args, **kwargs))


def open_mcp(*args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Executor[Any]]:
    """Call a server of MCP; takes the arguments of `carmy_mcp.open_mcp`."""
    return open_executor(partial(find_client("mcp"), *args, **kwargs))


def _require_asyncio(opener: str, under_trio: str) -> None:
    if asyncio._get_running_loop() is None:  # noqa: SLF001 - documented
        raise wrong_loop(
            f"carmy_engine.aio.{opener} needs a running asyncio loop",
            trio=f"async with {under_trio}",
            aio=f"async with carmy_engine.aio.{opener}",
            blocking=f"with carmy_engine.blocking.{opener}",
        )
