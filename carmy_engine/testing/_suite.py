"""Published suites: named checks, each with the identifier and the words of the requirement that it proves."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

S = TypeVar("S")

CHECK_SECONDS = 20.0
"""For one check, which takes a fraction of a second unless something hangs."""

Make = Callable[[], AbstractAsyncContextManager[S]]
"""Opens a subject for the length of a block."""


class RequirementError(AssertionError):
    """A requirement is not met; the message has its identifier and its words."""


@dataclasses.dataclass(frozen=True, slots=True)
class Check(Generic[S]):
    """One requirement and its proof.

    Attributes:
        id: Stable, such as ``E-301``.
        statement: What is required, in one sentence.
        prove: Raises if the subject does not meet it.
    """

    id: str
    statement: str
    prove: Callable[[S], Awaitable[None]]

    async def run(self, make: Make[S]) -> None:
        """Open a subject and prove the requirement on it.

        Raises:
            RequirementError: It is not met, or proving it took more than `CHECK_SECONDS`.
        """
        try:
            with trio.fail_after(CHECK_SECONDS):
                async with make() as subject:
                    await self.prove(subject)
        except Exception as error:  # every failure is reported with its requirement
            raise RequirementError(f"{self.id}: {self.statement}") from error

    def __str__(self) -> str:
        return self.id


class Suite(Generic[S]):
    """Checks in the order of their identifiers."""

    def __init__(self) -> None:
        self._checks: dict[str, Check[S]] = {}

    def check(self, id: str) -> Callable[[Callable[[S], Awaitable[None]]], Callable[[S], Awaitable[None]]]:  # noqa: A002
        """Declare a function as the proof of a requirement; its docstring has the words."""

        def declare(prove: Callable[[S], Awaitable[None]]) -> Callable[[S], Awaitable[None]]:
            if id in self._checks:
                raise ValueError(f"two checks have the identifier {id}")
            statement = " ".join((prove.__doc__ or "").split())
            self._checks[id] = Check(id, statement, prove)
            return prove

        return declare

    def __iter__(self) -> Iterator[Check[S]]:
        return iter(sorted(self._checks.values(), key=lambda check: check.id))

    async def run(self, make: Make[S]) -> None:
        """Run every check, each on a subject of its own.

        Raises:
            ExceptionGroup: Of a `RequirementError` for every requirement that is not met.
        """
        failures: list[RequirementError] = []
        for check in self:
            try:
                await check.run(make)
            except RequirementError as failure:
                failures.append(failure)
        if failures:
            raise ExceptionGroup(f"{len(failures)} requirements are not met", failures)
