"""The engine, and the clients of its transports, for programs without an event loop: scripts, WSGI applications, notebooks.

::

    from carmy_engine import blocking

    with blocking.open_app(app) as engine:
        products = engine.call(search, query="mouse")

The engine runs under trio in a thread of its own; the objects here can be used in all threads at once. They have the names of the engine
under trio. Like a file, an engine is open when `open_app` returns, and is closed by its block, by ``close``, or at the end of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from . import abc
from ._app.app import App
from ._app.plugins import find_client
from ._config.settings import Settings
from ._host.blocking_engine import BoundEngine, Engine, Executor, OpenEngine, OpenExecutor
from ._host.blocking_host import BlockingHost, EventStream

__all__ = [
    "BoundEngine",
    "Engine",
    "EventStream",
    "Executor",
    "OpenEngine",
    "OpenExecutor",
    "open_app",
    "open_executor",
    "open_http",
    "open_mcp",
    "open_stdio",
    "open_websocket",
]


def open_app(app: App, *, settings: Settings | None = None) -> OpenEngine:
    """Open an application as an engine.

    Args:
        app: The application.
        settings: For this run, instead of the application's own.

    Raises:
        StartupError: It cannot start. Lists every problem of its tools, state, store and mounts.
        ConfigurationError: The only problem is a setting.
        WrongLoopError: An event loop runs in this thread, and its calls would block it.
    """
    host = BlockingHost(lambda: app.open(settings=settings), f"the engine {app.name!r}")
    return OpenEngine(host, host.subject)


def open_executor(open_subject: Callable[[], AbstractAsyncContextManager[abc.Executor]]) -> OpenExecutor:
    """Open any executor that runs under trio, such as one that ``open_engine`` or a client of another package opens.

    Args:
        open_subject: Called in the trio thread; returns an async context manager.

    Raises:
        WrongLoopError: An event loop runs in this thread, and its calls would block it.
    """
    host = BlockingHost(open_subject, "the executor")
    return OpenExecutor(host, host.subject)


def open_http(*args: Any, **kwargs: Any) -> OpenExecutor:
    """Call a server over HTTP; takes the arguments of `carmy_http.open_http`."""
    return open_executor(partial(find_client("http"), *args, **kwargs))


def open_websocket(*args: Any, **kwargs: Any) -> OpenExecutor:
    """Call a server over WebSocket; takes the arguments of `carmy_websocket.open_websocket`."""
    return open_executor(partial(find_client("websocket"), *args, **kwargs))


def open_stdio(*args: Any, **kwargs: Any) -> OpenExecutor:
    """Start a program and call its tools; takes the arguments of `carmy_stdio.open_stdio`."""
    return open_executor(partial(find_client("stdio"), *args, **kwargs))


def open_mcp(*args: Any, **kwargs: Any) -> OpenExecutor:
    """Call a server of MCP; takes the arguments of `carmy_mcp.open_mcp`."""
    return open_executor(partial(find_client("mcp"), *args, **kwargs))
