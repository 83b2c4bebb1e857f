"""Observers of runs and nodes, such as spans."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from .._model.error_boundary import Fault, call_foreign, log_fault
from .._model.errors import AgentError

Ended = Callable[[str, str | None], object]
"""Receives a status and an error code."""


class Observer(Protocol):
    """Entered around each run and each attempt at a node, in the task in which it runs. It must not block.

    An observer that raises is logged and has no effect on the run.
    """

    def run(self, graph: str, thread_id: str, run_id: str) -> AbstractContextManager[Ended]:
        """Around a run. The value is called with its status and error code."""
        ...

    def node(self, graph: str, run_id: str, node: str, attempt: int) -> AbstractContextManager[Ended]:
        """Around an attempt. The value is called with ``ok``, ``failed`` or ``stopped``, and the error code."""
        ...


def _ignore(status: str, code: str | None) -> None:
    pass


@contextlib.contextmanager
def observed_run(observers: tuple[Observer, ...], graph: str, thread_id: str, run_id: str) -> Iterator[Ended]:
    """Enter all observers around a run."""
    if not observers:
        yield _ignore
        return
    with _entered([partial(each.run, graph, thread_id, run_id) for each in observers]) as ended:
        yield ended


@contextlib.contextmanager
def observed_node(observers: tuple[Observer, ...], graph: str, run_id: str, node: str, attempt: int) -> Iterator[Ended]:
    """Enter all observers around an attempt."""
    if not observers:
        yield _ignore
        return
    with _entered([partial(each.node, graph, run_id, node, attempt) for each in observers]) as ended:
        yield ended


@contextlib.contextmanager
def _entered(makers: list[Callable[[], AbstractContextManager[Ended]]]) -> Iterator[Ended]:
    managers: list[AbstractContextManager[Ended]] = []
    receivers: list[Ended] = []
    for make in makers:
        try:
            manager = call_foreign(make)
            receivers.append(call_foreign(manager.__enter__))
            managers.append(manager)
        except (AgentError, Fault) as error:
            log_fault("an observer of graphs", error)

    def ended(status: str, code: str | None) -> None:
        for receive in receivers:
            try:
                call_foreign(receive, status, code)
            except (AgentError, Fault) as error:
                log_fault("an observer of graphs", error)

    try:
        yield ended
    finally:
        for manager in reversed(managers):
            try:
                call_foreign(manager.__exit__, None, None, None)
            except (AgentError, Fault) as error:
                log_fault("an observer of graphs", error)
