"""Observers of runs and nodes, such as spans and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from .._model.context import AgentContext
from .._model.error_boundary import Fault, call_foreign, log_fault
from .._model.errors import AgentError

Ended = Callable[[str, str | None], object]
"""Receives a status and an error code."""


class ObservedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, for observers.

    Attributes:
        graph: The name of the graph.
        thread_id: The thread.
        run_id: The run.
        is_resumed: It goes on from a checkpoint.
        context: The trusted context of the caller.
    """

    graph: str
    thread_id: str
    run_id: str
    is_resumed: bool
    context: AgentContext


class Observer(Protocol):
    """Entered around each run and each attempt at a node, in the task in which it runs. It must not block.

    The value of each context manager is called once with the outcome, before the context manager is left; with ``cancelled`` and
    ``CANCELLED`` if the caller's own scope has cut off the run. An observer that raises is logged and has no effect on the run.
    """

    def run(self, run: ObservedRun, /) -> AbstractContextManager[Ended]:
        """Around a run, from its start or its last checkpoint to its end or its next stop.

        The value receives the `RunStatus`, and the error code; ``EXECUTION_UNCERTAIN`` for ``in_doubt``.
        """
        ...

    def node(self, run: ObservedRun, node: str, attempt: int, /) -> AbstractContextManager[Ended]:
        """Around an attempt.

        The value receives ``completed``, ``failed``, ``interrupted``, ``in_doubt``, or ``cancelled``: the run stopped; and the error
        code.
        """
        ...


@contextlib.contextmanager
def entered(enter: Iterable[Callable[[], AbstractContextManager[Ended]]]) -> Iterator[Ended]:
    """Enter the context managers of observers. The value calls theirs."""
    managers: list[AbstractContextManager[Ended]] = []
    receivers: list[Ended] = []
    for make in enter:
        try:
            manager = call_foreign(make)
            receivers.append(call_foreign(manager.__enter__))
            managers.append(manager)
        except (AgentError, Fault) as error:
            log_fault("an observer of graphs", error)
    has_ended = False

    def ended(status: str, code: str | None) -> None:
        nonlocal has_ended
        has_ended = True
        for receive in receivers:
            try:
                call_foreign(receive, status, code)
            except (AgentError, Fault) as error:
                log_fault("an observer of graphs", error)

    try:
        yield ended
    finally:
        if not has_ended:
            ended("cancelled", "CANCELLED")
        for manager in reversed(managers):
            try:
                call_foreign(manager.__exit__, None, None, None)
            except (AgentError, Fault) as error:
                log_fault("an observer of graphs", error)
