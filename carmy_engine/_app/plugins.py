"""Transports, clients, stores and the ASGI application that installed distributions offer through entry points.

The core imports none of them, so a process loads only what it uses.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import Any, Protocol

from .._config.settings import StoreSettings
from .._model.errors import ConfigurationError
from .._model.protocols import Executor, IdempotencyStore
from ..stores import memory
from .transport import Transport, as_transport

TRANSPORTS = "carmy.transports"
"""`Transport` objects, or plain ``async def serve(engine, *, task_status)``, by the name of the command."""

CLIENTS = "carmy.clients"
"""Functions that open a client, an executor, as an async context manager under trio; by the name of the transport."""

SERVICES = "carmy.services"
"""Functions ``async def serve(engine, *, task_status)`` that a command runs beside a transport."""
ASGI = "carmy.asgi"
"""``def make(app: App) -> AsgiApp``, by the protocol; for `App.asgi`."""

STORES = "carmy.stores"
"""``def factory(settings: StoreSettings) -> IdempotencyStore`` by the scheme of its URL."""

_COMMAND = re.compile(r"[a-z][a-z0-9-]*")


def transport_names() -> list[str]:
    """The names of all installed transports that can be the name of a command, sorted."""
    return sorted(name for name in entry_points(group=TRANSPORTS).names if _COMMAND.fullmatch(name))


def find_transport(name: str) -> Transport[...]:
    """The transport of this name.

    Raises:
        ConfigurationError: No package offers it, or several do, or a package that it needs is missing.
    """
    return as_transport(_find(TRANSPORTS, "transport", name), name)


def find_client(name: str) -> Callable[..., AbstractAsyncContextManager[Executor]]:
    """The function that opens a client of this transport.

    Raises:
        ConfigurationError: No package offers it, or several do, or a package that it needs is missing.
    """
    opener: Callable[..., AbstractAsyncContextManager[Executor]] = _find(CLIENTS, "client for", name)
    return opener


def find_metrics_service() -> Transport[...]:
    """The service of metrics for Prometheus, as a transport.

    Raises:
        ConfigurationError: No package offers it, or several do, or a package that it needs is missing.
    """
    return as_transport(_find(SERVICES, "service", "metrics"), "metrics")


class AsgiApp(Protocol):
    """An ASGI 3 application for servers on asyncio or trio."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any, /) -> None:
        """Answer one scope."""
        ...

    def lifespan(self, app: object = None, /) -> AbstractAsyncContextManager[None]:
        """Open the engine for the length of a block: the ``lifespan`` of FastAPI or Starlette, where this is mounted."""
        ...


def make_asgi(app: Any) -> AsgiApp:
    """An application for ASGI servers.

    Raises:
        ConfigurationError: No package offers it.
    """
    made: AsgiApp = _find(ASGI, "ASGI application for", "http")(app)
    return made


def find_store(settings: StoreSettings) -> Callable[[], IdempotencyStore]:
    """A factory for the store that ``store.url`` names.

    Raises:
        ConfigurationError: The URL has no scheme, or no package offers its scheme, or a package is missing.
    """
    scheme, colon, rest = settings.url.partition(":")
    if not colon:
        raise ConfigurationError("store.url must be a scheme, a colon and what the store needs, such as memory:")
    if scheme != "memory":
        return functools.partial(_find(STORES, "store", scheme, "memory"), settings)
    if rest:
        raise ConfigurationError("store.url memory: takes nothing after the colon; for a file use sqlite:PATH")
    return functools.partial(memory.from_settings, settings)


def _find(group: str, kind: str, name: str, *builtin: str) -> Any:
    found = tuple(entry_points(group=group, name=name))
    if not found:
        others = ", ".join(sorted({*entry_points(group=group).names, *builtin})) or "none"
        raise ConfigurationError(f"this installation has no {kind} {name!r} (it has: {others})")
    if len({entry.value for entry in found}) > 1:
        offers = ", ".join(sorted(f"{entry.value} of {entry.dist.name if entry.dist else '?'}" for entry in found))
        raise ConfigurationError(f"several packages have a {kind} {name!r}: {offers}; uninstall all but one")
    try:
        return found[0].load()
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"the {kind} {name!r} cannot be loaded: {missing}") from missing
