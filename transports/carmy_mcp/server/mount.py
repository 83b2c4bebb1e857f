"""MCP beside other addresses: the mount of ``carmy serve``, which imports the SDK on first use."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import trio

from carmy_engine import Engine
from carmy_engine.transport import contain, raise_single

log = logging.getLogger("carmy.mcp")

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Run: TypeAlias = Callable[..., Awaitable[None]]


def mount(engine: Engine) -> AbstractAsyncContextManager[AsgiApplication] | None:
    """An application for one address of `carmy_http`, and the block in which it lives.

    The SDK is imported when the first request comes, in a thread, while others are served: that request takes half a
    second longer, and a server without MCP clients saves the time and the memory.

    Args:
        engine: An open engine.

    Returns:
        None when the SDK is not installed, or when another module has taken its name, which is logged.
    """
    found = importlib.util.find_spec("mcp")
    if found is None:
        return None
    folders = found.submodule_search_locations or ()
    if not any(Path(folder, "server", "lowlevel").is_dir() for folder in folders):
        log.warning("MCP is not served: %s has the name of the SDK; rename it", found.origin or next(iter(folders)))
        return None
    return opened(engine, _import, several=engine.settings.http.processes > 1)


@asynccontextmanager
async def opened(
    engine: Engine, load: Callable[[], Awaitable[Run]], *, several: bool
) -> AsyncIterator[AsgiApplication]:
    """The application, as `mount` describes it.

    Args:
        engine: An open engine.
        load: Gives what runs it, `_http.run_application`.
        several: Other processes serve at the same address, so that there cannot be sessions.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield _Late(engine, nursery, load, several)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


async def _import() -> Run:
    module = await trio.to_thread.run_sync(importlib.import_module, "carmy_mcp.server.streamable_http")
    gc.freeze()  # it stays; to look through so much for garbage again and again would hold up all calls, also other ones
    run: Run = module.run_application
    return run


class _Late:
    """The application, made when it is first asked for something."""

    def __init__(
        self, engine: Engine, nursery: trio.Nursery, load: Callable[[], Awaitable[Run]], several: bool
    ) -> None:
        self._engine = engine
        self._nursery = nursery
        self._load = load
        self._several = several
        self._lock = trio.Lock()
        self._application: AsgiApplication | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        application = self._application
        if application is None:
            async with self._lock:
                application = self._application = self._application or await self._nursery.start(self._run)
        await application(scope, receive, send)

    async def _run(self, *, task_status: trio.TaskStatus[AsgiApplication]) -> None:
        run = await self._load()
        try:
            await run(self._engine, self._several, task_status=task_status)
        except BaseException as error:  # noqa: BLE001 - see below
            # A guard round the SDK, whose tasks run here: what fails there costs its sessions, and not the server.
            contain(error, log, "all sessions of MCP are lost; clients begin anew")
        finally:
            self._application = None
