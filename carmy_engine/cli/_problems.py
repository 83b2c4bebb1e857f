"""The reasons outside the program why an application cannot be served: one list for ``serve`` and ``check``."""

from __future__ import annotations

from .._app.app import App
from .._app.plugins import find_metrics_service, find_store
from .._app.transport import Transport
from .._config.settings import Settings
from .._execution.grace import grace
from .._model.errors import ConfigurationError
from .._model.protocols import CheckableStore
from ..stores.memory import MemoryStore


async def outside_problems(app: App, transport: Transport[...] | None, settings: Settings) -> list[ConfigurationError]:
    """Everything in the settings, the network and the store that keeps a transport from serving the application.

    Args:
        app: The application.
        transport: The transport; None if it cannot be loaded.
        settings: To be served with.
    """
    found: list[ConfigurationError] = await _store_problems(app, settings)
    if transport is not None and transport.problems is not None:
        found[:0] = await transport.problems(settings, authenticated=app.has_authenticator)
    return found + await _metrics_problems(app, settings)


async def _metrics_problems(app: App, settings: Settings) -> list[ConfigurationError]:
    """The reasons why the metrics cannot be served, if the settings have an address for them."""
    if settings.metrics.address is None:
        return []
    try:
        service = find_metrics_service()
    except ConfigurationError as problem:
        return [problem]
    if service.problems is None:
        return []
    return await service.problems(settings, authenticated=app.has_authenticator)


async def _store_problems(app: App, settings: Settings) -> list[ConfigurationError]:
    """The reason why the store cannot be used, if it is a `CheckableStore`."""
    given = app.given_store
    try:
        factory = find_store(settings.store)
    except ConfigurationError:
        return []  # `App.check` and `App.open` report it
    try:
        store = factory() if given is None else given
    except ConfigurationError as problem:
        return [problem]
    try:
        if isinstance(store, CheckableStore):
            await store.check()
    except ConfigurationError as problem:
        return [problem]
    finally:
        if given is None:
            with grace():
                await store.aclose()
    return []


def forgets(app: App) -> bool:
    """Whether the store of the application lives in this process alone."""
    return (
        app.settings.store.url.startswith("memory:")
        if app.given_store is None
        else isinstance(app.given_store, MemoryStore)
    )
