"""Other applications at addresses of this server, behind the same checks and with the authenticated caller.

Packages offer one through the entry-point group ``carmy.http_mounts``. The entry point has the name of the address (``mcp`` for
``/mcp``). It is a function that takes the open engine and returns a context manager for a `HandlerOf`, or None when it cannot
serve. It is loaded only where it is served.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import entry_points
from typing import TypeAlias

from carmy_engine import Engine

from ..message import Handler, RequestHead

HandlerOf: TypeAlias = Callable[[RequestHead], Handler]
"""Returns the handler of all requests with equal heads. It may keep what it reads from the head."""

Mount: TypeAlias = Callable[[Engine], AbstractAsyncContextManager[HandlerOf] | None]

NO_MOUNTS: Mapping[str, HandlerOf] = {}

GROUP = "carmy.http_mounts"
"""The entry points, by the name of their address."""


@asynccontextmanager
async def open_mounts(engine: Engine) -> AsyncIterator[Mapping[str, HandlerOf]]:
    """The mounted applications by their path, according to the settings and the installed packages."""
    found: dict[str, HandlerOf] = {}
    async with AsyncExitStack() as opened:
        if engine.settings.http.mcp:
            for entry in entry_points(group=GROUP, name="mcp"):
                mount: Mount = entry.load()
                if (block := mount(engine)) is not None:
                    found["/mcp"] = await opened.enter_async_context(block)
        yield found
