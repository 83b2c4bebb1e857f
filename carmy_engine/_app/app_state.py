"""The state of an application: ready values, factories, overrides, and the functions of start and end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from .._config.settings import Settings
from .._execution.grace import grace
from .._execution.provided_state import failing_start, open_state, run_hook
from .._model import host_objects
from .._model.error_boundary import Fault, log_fault
from .._model.errors import AgentError, DeclarationError
from .._model.provision import Provision, StateScope, type_name
from .._tools.provided import in_order_of_need, problems_of_state, provision_of

if TYPE_CHECKING:
    from .._loops.asyncio_loop import AsyncioLoop


class AppState:
    """What `App.state`, `App.provide`, `App.override`, `App.on_start` and `App.on_stop` have collected."""

    def __init__(self) -> None:
        self._values: dict[Any, object] = {}
        self._provisions: dict[Any, Provision] = {}
        self._overrides: dict[Any, object] = {}
        self._starts: list[Provision] = []
        self._stops: list[Provision] = []

    def add(self, value: object, as_type: Any, owner: str) -> None:
        """Add a ready value; see `App.state`."""
        if as_type is None:
            host_objects.check_state(value, owner)
        key = type(value) if as_type is None else as_type
        self._check_free(key, owner)
        if not _may_be(value, key):
            raise DeclarationError(f"{type(value).__name__} object is not a {type_name(key)}, the type in as_type")
        self._values[key] = value

    def provide(self, provision: Provision, owner: str) -> None:
        """Add a factory; see `App.provide`."""
        self._check_free(provision.key, owner)
        self._provisions[provision.key] = provision

    def _check_free(self, key: Any, owner: str) -> None:
        if key in self._values or key in self._provisions:
            raise DeclarationError(
                f"{owner} has state of type {type_name(key)} already; wrap one of the two in a type of its own"
            )

    @contextlib.contextmanager
    def override(self, as_type: Any, value: object, owner: str) -> Iterator[None]:
        """Replace a value for the length of a block; see `App.override`."""
        known = (*self._values, *self._provisions)
        if as_type not in known:
            there = ", ".join(sorted(map(type_name, known))) or "none"
            raise DeclarationError(f"{owner} has no state of type {type_name(as_type)}; it has: {there}")
        before = self._overrides
        self._overrides = {**before, as_type: value}
        try:
            yield
        finally:
            self._overrides = before

    def add_hook(self, function: object, owner: str, *, starts: bool) -> None:
        """Add a function of the start or the end; see `App.on_start`."""
        hook = provision_of(function, object, StateScope.APP, owner, enters=False, depth=2)
        (self._starts if starts else self._stops).append(hook)

    @property
    def by_type(self) -> dict[Any, object]:
        """All state by type, with a `Provision` for what is not made yet."""
        return {**self._values, **self._provisions, **self._overrides}

    @property
    def is_provided(self) -> bool:
        """True if a factory makes some of it."""
        return any(isinstance(made, Provision) for made in self.by_type.values())

    def problems(self) -> list[AgentError]:
        """Every problem of the needs of factories and hooks."""
        state = self.by_type
        provisions = {key: made for key, made in state.items() if isinstance(made, Provision)}
        values = {key: value for key, value in state.items() if key not in provisions}
        problems = problems_of_state(provisions, values)
        reachable = {**values, **{key: made for key, made in provisions.items() if made.scope is StateScope.APP}}
        for hook in (*self._starts, *self._stops):
            problems += problems_of_state({hook: hook}, reachable)
        return problems

    @contextlib.asynccontextmanager
    async def open(self, settings: Settings, loop: AsyncioLoop | None = None) -> AsyncIterator[dict[Any, object]]:
        """Enter the state of the application and call the functions of its start. `problems` has found none.

        Args:
            settings: Have the limits.
            loop: Runs async factories and functions; None for the trio run.

        Yields:
            All state by type, with a `Provision` for what each execution makes.

        Raises:
            StartupError: ``STATE_FAILED``.
        """
        state = self.by_type
        made = {key: value for key, value in state.items() if isinstance(value, Provision)}
        of_app = {key: value for key, value in made.items() if value.scope is StateScope.APP}
        async with (
            open_state(
                in_order_of_need(of_app),
                {key: value for key, value in state.items() if key not in of_app},
                startup_timeout=settings.startup_timeout_secs,
                shutdown_timeout=settings.shutdown_timeout_secs,
                loop=loop,
            ) as entered,
            self._hooks(entered, settings, loop),
        ):
            yield entered

    @contextlib.asynccontextmanager
    async def _hooks(
        self, state: dict[Any, object], settings: Settings, loop: AsyncioLoop | None
    ) -> AsyncIterator[None]:
        """Call the functions of the start, and after the block those of the end."""
        for hook in self._starts:
            with failing_start(f"on_start: {hook.place}", settings.startup_timeout_secs):
                await run_hook(hook, state, loop=loop)
        try:
            yield
        finally:
            with grace(len(self._stops) * settings.shutdown_timeout_secs):
                for hook in reversed(self._stops):
                    try:
                        await run_hook(hook, state, settings.shutdown_timeout_secs, loop)
                    except (AgentError, Fault) as error:
                        log_fault(f"on_stop: {hook.place}", error)


def _may_be(value: object, key: Any) -> bool:
    try:
        return isinstance(value, key)
    except TypeError:  # not everything that can be annotated can be checked: list[int], most protocols
        return True
