"""What code that is not ours can let out, by name. Each is made anew, so that no traceback grows from one use to the next."""

from __future__ import annotations

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
    "Unprintable": Unprintable,
    "group": lambda: _group(LookupError(SECRET), SystemExit(SECRET)),
    "group_of_Cancelled": lambda: _group(foreign(), foreign()),
    "nested": lambda: _group(
        foreign(), _group(GeneratorExit(SECRET), _group(KeyboardInterrupt(SECRET), Unprintable()))
    ),
}


def made(name: str) -> BaseException:
    """The exception of this name."""
    return ESCAPES[name]()
