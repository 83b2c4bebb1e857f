"""Finds what other modules and packages offer through entry points: transports and stores.

The core imports none of them, so that an installation pays only for what it uses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from .._config.settings import StoreSettings
from .._model.errors import ConfigurationError
from .._model.extras import missing_extra
from .._model.protocols import IdempotencyStore
from ..stores import memory

TRANSPORTS = "carmy.transports"
"""``async def serve(engine, *, task_status)`` by the name of its command."""

STORES = "carmy.stores"
"""``def factory(settings: StoreSettings) -> IdempotencyStore`` by the scheme of its URL."""

_EXTRA_OF = {"http": "http", "ws": "websocket", "mcp": "mcp", "mcp+http": "mcp,http", "sqlite": "sqlite"}


def find(group: str, name: str) -> Any:
    """What an installed distribution offers under `name`.

    Args:
        group: `TRANSPORTS` or `STORES`.
        name: The entry point's name.

    Raises:
        ConfigurationError: No package offers it, or several do, or a package that it needs is missing; says what to install.
    """
    what = "transport" if group == TRANSPORTS else "store"
    found = tuple(entry_points(group=group, name=name))
    if not found:
        others = (
            ", ".join(sorted({*entry_points(group=group).names, *({"memory"} if group == STORES else ())})) or "none"
        )
        hint = f"; install a version that has it, with: pip install {_extra(name)}" if name in _EXTRA_OF else ""
        raise ConfigurationError(f"this installation has no {what} {name!r} (it has: {others}){hint}")
    if len({entry.value for entry in found}) > 1:
        offers = ", ".join(sorted(f"{entry.value} of {entry.dist.name if entry.dist else '?'}" for entry in found))
        raise ConfigurationError(f"several packages have a {what} {name!r}: {offers}; uninstall all but one")
    try:
        return found[0].load()
    except ModuleNotFoundError as missing:
        if name not in _EXTRA_OF:
            raise
        raise ConfigurationError(str(missing_extra(f"the {what} {name!r}", _EXTRA_OF[name], missing))) from missing


def find_store(settings: StoreSettings) -> Callable[[], IdempotencyStore]:
    """What makes the store that ``store.url`` names.

    Raises:
        ConfigurationError: The URL has no scheme, or one that nobody offers.
    """
    scheme, colon, rest = settings.url.partition(":")
    if not colon:
        raise ConfigurationError("store.url must be a scheme, a colon and what the store needs, such as memory:")
    if scheme != "memory":
        return functools.partial(find(STORES, scheme), settings)
    if rest:
        raise ConfigurationError("store.url memory: takes nothing after the colon; for a file use sqlite:PATH")
    return functools.partial(memory.from_settings, settings)


def _extra(name: str) -> str:
    return f"'carmy-engine[{_EXTRA_OF[name]}]'"
