"""What code that is not ours can let out, by name. Each is made anew, so that no traceback grows from one use to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import trio

SECRET = "hunter2"
"""In the text of each. Never for a caller."""


class Unprintable(Exception):
    """An exception that cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError(SECRET)

    def __repr__(self) -> str:
        raise RuntimeError(SECRET)


async def _keep() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept = error
            raise
    return kept


_KEPT = trio.run(_keep)


def foreign() -> trio.Cancelled:
    """A cancel of a scope that has been left long since, as ``outcome.acapture`` keeps one."""
    return _KEPT.with_traceback(None)


def _group(*inside: BaseException) -> BaseException:
    return BaseExceptionGroup(SECRET, inside)


ESCAPES: Mapping[str, Callable[[], BaseException]] = {
    "Exception": lambda: LookupError(SECRET),
    "SystemExit": lambda: SystemExit(SECRET),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(SECRET),
    "GeneratorExit": lambda: GeneratorExit(SECRET),
    "Cancelled": foreign,
    "asyncio.CancelledError": asyncio.CancelledError,
    "Unprintable": Unprintable,
    "group": lambda: _group(LookupError(SECRET), SystemExit(SECRET)),
    "group_of_Cancelled": lambda: _group(foreign(), foreign()),
    "nested": lambda: _group(
        foreign(), _group(GeneratorExit(SECRET), _group(KeyboardInterrupt(SECRET), Unprintable()))
    ),
}


class OwnBase(BaseException):
    """Not an `Exception`."""


class Unspeakable(Exception):
    """Raises no mere `Exception`, wherever formatting a traceback touches it."""

    def __str__(self) -> str:
        raise SystemExit(SECRET)

    def __repr__(self) -> str:
        raise GeneratorExit

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # in the place of an attribute
        raise OwnBase(SECRET)


def _deep(error: BaseException) -> BaseException:
    for _ in range(2000):
        error = _group(error)
    return error


RARE_ESCAPES: Mapping[str, Callable[[], BaseException]] = {
    "OwnBase": OwnBase,
    "Unspeakable": Unspeakable,
    "StopAsyncIteration": StopAsyncIteration,
    "RecursionError": RecursionError,
    "deep": lambda: _deep(LookupError(SECRET)),
    "deep_Cancelled": lambda: _deep(foreign()),
    "group_of_Unspeakable": lambda: _group(Unspeakable(), SystemExit(SECRET)),
}
"""More of them, for what every transport shares."""


def made(name: str) -> BaseException:
    """The exception of this name."""
    return {**ESCAPES, **RARE_ESCAPES}[name]()
