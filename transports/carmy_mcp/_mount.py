"""MCP beside other addresses: what ``carmy serve`` finds, without the half second that importing the SDK takes."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import trio

from carmy_engine import Engine
from carmy_engine.transport import raise_single

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def mount(engine: Engine) -> AbstractAsyncContextManager[AsgiApplication] | None:
    """An application for one address of `carmy_http`, and the block in which it lives.

    The SDK is imported when the first request comes, in a thread, while others are served: that request takes half a
    second longer, and a server that nobody asks for MCP neither takes the time nor the memory.

    Args:
        engine: An open engine.

    Returns:
        None when the SDK is not installed.
    """
    return None if importlib.util.find_spec("mcp") is None else _mounted(engine)


@asynccontextmanager
async def _mounted(engine: Engine) -> AsyncIterator[AsgiApplication]:
    try:
        async with trio.open_nursery() as nursery:
            yield _Late(engine, nursery)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


class _Late:
    """The application, made when it is first asked for something."""

    def __init__(self, engine: Engine, nursery: trio.Nursery) -> None:
        self._engine = engine
        self._nursery = nursery
        self._lock = trio.Lock()
        self._application: AsgiApplication | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        application = self._application
        if application is None:
            async with self._lock:
                application = self._application = self._application or await self._make()
        await application(scope, receive, send)

    async def _make(self) -> AsgiApplication:
        module = await trio.to_thread.run_sync(importlib.import_module, "carmy_mcp._http")
        several = self._engine.settings.http.processes > 1
        application: AsgiApplication = await self._nursery.start(module.run_application, self._engine, several)
        return application
