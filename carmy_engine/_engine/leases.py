"""The end of executions whose store has lost the lease on their entries."""

from __future__ import annotations

import contextlib

import trio

from .._execution.execution import Inflight
from .._model.cause import Cause
from .._model.protocols import LeasedStore


def cancel_with_lease(store: LeasedStore, inflight: Inflight) -> None:
    """Cancel executions, with cause ``shutdown``, when the store loses the lease on their entries: another process may run them again."""
    token = trio.lowlevel.current_trio_token()

    def cancel(lost: frozenset[str]) -> None:
        for execution_id in lost:
            inflight.cancel(execution_id, Cause.SHUTDOWN, None)

    def lose(lost: frozenset[str]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(cancel, lost)

    store.watch_lease(lose)
