"""The conventional application: settings of the process, and every tool declared with ``@tool``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .._config.settings import Settings
from .._tools.declaration import ToolDeclaration, declared
from .app import App


def app(name: str | None = None, *, timeout: float | None = None) -> App:
    """A conventional application: settings from ``carmy.toml`` and ``CARMY_*``, and every tool declared with ``@tool``.

    Tools may be declared before or after the call: they are collected when the application is opened. The environment wins
    over the file, which wins over what is given here or set on the application.

    Args:
        name: The server's name in discovery documents.
        timeout: Seconds; the default deadline of an execution.

    Raises:
        ConfigurationError: A setting is unknown or out of range; lists all of them, each with its source.
    """
    return conventional(declared, name=name, timeout=timeout)


def conventional(
    registered: Callable[[], Sequence[ToolDeclaration]], *, name: str | None = None, timeout: float | None = None
) -> App:
    """`app` over other tools than all that are registered: those that `registered` returns when asked."""
    return _ConventionalApp(registered, Settings().name if name is None else name, timeout)


class _ConventionalApp(App):
    def __init__(self, registered: Callable[[], Sequence[ToolDeclaration]], name: str, timeout: float | None) -> None:
        super().__init__(name, timeout=timeout, configure=True)
        self._contents.registered = registered
