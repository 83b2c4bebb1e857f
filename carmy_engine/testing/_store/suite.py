"""Where the checks for stores are collected, and what they work on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from ..._model.error_info import ErrorCategory, ErrorInfo
from ..._model.protocols import IdempotencyStore
from ..._model.reservation import Identity, Reservation, ReservationState
from ..._model.result import Outcome
from .._suite import Suite

VALUE = Outcome(execution_id="exec_1", data_json=b'{"text":"\xc3\xa9","n":1152921504606846977,"f":1.50}')
"""An output that a store must give back byte for byte."""

ERROR = Outcome(
    execution_id="exec_1",
    error=ErrorInfo(
        code="OUT_OF_STOCK",
        message="none left",
        category=ErrorCategory.CONFLICT,
        recoverable=True,
        retryable=False,
        retry_after=1.5,
        suggested_action="Order less.",
        details={"left": [0, {"of": None}]},
    ),
)
"""An error with every field set."""


class MakeStore(Protocol):
    """Opens a new, empty store for the length of a block."""

    def __call__(
        self, *, clock: Callable[[], float], retention: float, max_entries: int
    ) -> AbstractAsyncContextManager[IdempotencyStore]:
        """Open one.

        Args:
            clock: Unix seconds; what retention is measured with.
            retention: Seconds that a completed entry is kept, from its completion.
            max_entries: How many entries it holds before it is full.
        """
        ...


class Shelf:
    """Stores under test, with a clock that only the checks move.

    Attributes:
        now: Unix seconds.
    """

    RETENTION = 100.0
    MAX_ENTRIES = 4

    def __init__(self, make: MakeStore) -> None:
        self._make = make
        self.now = 1_700_000_000.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[IdempotencyStore]:
        """A new store."""
        async with self._make(clock=lambda: self.now, retention=self.RETENTION, max_entries=self.MAX_ENTRIES) as store:
            yield store

    def reservation(self, request_id: str = "r1", execution_id: str = "exec_1", **changes: Any) -> Reservation:
        """A running entry."""
        identity = Identity(principal="ana", session="s1", scope="", request_id=request_id)
        base = Reservation(
            identity=identity,
            fingerprint=b"\x00\xff" * 16,
            execution_id=execution_id,
            state=ReservationState.RUNNING,
            started_at=self.now,
            tool="pay",
        )
        return msgspec.structs.replace(base, **changes)


suite: Suite[Shelf] = Suite()
"""Its subject opens new stores."""
