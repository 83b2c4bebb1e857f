"""The order in which requests on many connections begin, so that a new connection waits for few of the others."""

from __future__ import annotations

import trio

MAX_PER_ROUND = 2
"""Requests that begin in one round of trio's scheduler. A request takes some twenty rounds, so under load each round has the work of
two whole requests. Without a bound, a thousand connections that ask without a pause keep a new one waiting for 8 s; with it, for
less than 0.1 s, and the server answers no fewer requests."""


class Admission:
    """Lets a few requests begin in each round of the scheduler; first those that are the first of their connection.

    A request that only waits holds up no other one, and a server with little to do never makes one wait. Without priority, a probe
    that connects for each question would wait behind every connection that is there already.
    """

    def __init__(self) -> None:
        self._first = trio.lowlevel.ParkingLot()
        self._later = trio.lowlevel.ParkingLot()
        self._begun = 0
        """In this round."""

    async def begin(self, *, is_first: bool) -> None:
        """Wait for the turn of a request. A checkpoint only if it has to wait.

        Args:
            is_first: It is the first one of its connection.
        """
        if self._begun == 0:
            trio.lowlevel.current_trio_token().run_sync_soon(self._next_round)
        if self._begun < MAX_PER_ROUND:
            self._begun += 1
        else:
            await (self._first if is_first else self._later).park()

    def _next_round(self) -> None:
        admitted = self._first.unpark(count=MAX_PER_ROUND)
        admitted += self._later.unpark(count=MAX_PER_ROUND - len(admitted))
        self._begun = len(admitted)
        if admitted:
            trio.lowlevel.current_trio_token().run_sync_soon(self._next_round)
