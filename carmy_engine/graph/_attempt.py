"""One attempt at a node: its cancel scope, and the tool calls in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import trio

from .._engine.engine import BoundEngine
from .._execution.grace import GRACE_SECONDS
from .._model.cause import Cause
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from ._position import Doubt, Question

STOPPING_SECONDS = 2 * GRACE_SECONDS
"""Time for a tool call to end by itself after its deadline or its cancel: its clean-up, and the record of its outcome. A call that
the node's own scope cancels leaves no recorded outcome."""


class Attempt:
    """The scope of one attempt.

    A tool call in it has a time limit of its own, and ends at the deadline with an outcome that is recorded. While calls run, the
    scope therefore allows `STOPPING_SECONDS` more.

    Attributes:
        scope: Around the node.
        deadline: Absolute, on trio's clock.
        question: Asked by the node, without an answer.
        doubt: A call with an unknown outcome.
        stopping: The node is to end once its calls have ended.
        has_ended: The function of the node has returned, or was cancelled.
        counts: The calls and the questions, by step.
        calls: The calls that have ended, by ``request_id``.
    """

    __slots__ = (
        "_cause",
        "_executors",
        "calls",
        "counts",
        "deadline",
        "doubt",
        "has_ended",
        "question",
        "scope",
        "stopping",
    )

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.scope = trio.CancelScope(deadline=deadline)
        self.question: Question | None = None
        self.doubt: Doubt | None = None
        self.stopping = False
        self.has_ended = False
        self.counts: dict[str, int] = {}
        self.calls: dict[str, tuple[ExecutionRequest, ExecutionResult]] = {}
        self._executors: list[BoundEngine] = []
        self._cause: Cause | None = None

    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - trio.current_time())

    @contextlib.contextmanager
    def calling(self, executor: BoundEngine) -> Iterator[None]:
        """Run a tool call inside the block."""
        self._executors.append(executor)
        self._adjust()
        try:
            yield
        finally:
            self._executors.remove(executor)
            self._adjust()

    async def stop_and_wait(self) -> Any:
        """Cancel the node once its other calls have ended, and wait for that."""
        self.stopping = True
        self._adjust()
        await trio.sleep_forever()

    def cancel(self, cause: Cause) -> None:
        """Cancel the calls, and the node after them."""
        self.stopping = True
        self._cause = cause
        for executor in self._executors:
            for execution_id in executor.running():
                executor.cancel(execution_id, cause)
        self._adjust()

    def next_number(self, of: str) -> int:
        """Count from 1."""
        number = self.counts[of] = self.counts.get(of, 0) + 1
        return number

    def _adjust(self) -> None:
        if self._executors:
            end = self.deadline if self._cause is None else min(self.deadline, trio.current_time())
            self.scope.deadline = end + STOPPING_SECONDS
        elif self.stopping:
            self.scope.cancel()
        else:
            self.scope.deadline = self.deadline
