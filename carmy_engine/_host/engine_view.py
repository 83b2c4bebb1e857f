"""What an engine in the trio thread answers at once, in any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, cast

from .._config.settings import Settings
from .._engine.engine import BoundEngine, Engine, EngineStatistics
from .._execution.completion import MemorySink
from .._execution.execution import ExecutionSummary
from .._model.cause import Cause
from .._model.context import AgentContext
from .._model.protocols import Confirm
from .._model.run import RunContext
from ..providers import Format, Provider


class Bound(TypedDict, total=False):
    """The keyword arguments of `BoundEngine.bind`."""

    principal: str | None
    session: str | None
    permissions: Iterable[str] | None
    metadata: Mapping[str, Any] | None
    context: AgentContext | None
    transport: str | None
    gone: Cause | Callable[[], Cause] | None
    run: RunContext | None
    confirm: Confirm | None


class BoundView:
    """The part of a bound engine that neither waits nor changes anything."""

    _inner: BoundEngine

    @property
    def context(self) -> AgentContext:
        """The trusted context of every call."""
        return self._inner.context

    def running(self) -> tuple[str, ...]:
        """See `BoundEngine.running`."""
        return self._inner.running()

    def lookup(self, execution_id: str) -> ExecutionSummary | None:
        """See `BoundEngine.lookup`."""
        return self._inner.lookup(execution_id)


class EngineView(BoundView):
    """The part of an engine that neither waits nor changes anything."""

    @property
    def _engine(self) -> Engine:
        return cast("Engine", self._inner)

    @property
    def name(self) -> str:
        """See `Engine.name`."""
        return self._engine.name

    @property
    def settings(self) -> Settings:
        """See `Engine.settings`."""
        return self._engine.settings

    @property
    def audit(self) -> MemorySink:
        """See `Engine.audit`."""
        return self._engine.audit

    def statistics(self) -> EngineStatistics:
        """See `Engine.statistics`."""
        return self._engine.statistics()


# Functions that do not wait, as calls of the trio thread, where policies and executions live.


async def cancel(engine: BoundEngine, execution_id: str, cause: Cause) -> bool:
    """See `BoundEngine.cancel`."""
    return engine.cancel(execution_id, cause)


async def make_provider(engine: BoundEngine, format: Format) -> Provider:  # noqa: A002 - the usual name
    """See `BoundEngine.provider`."""
    return engine.provider(format)


async def stop(engine: Engine) -> None:
    """See `Engine.stop`."""
    engine.stop()
