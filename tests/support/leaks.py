"""What asyncio logs instead of raising it: a task that was destroyed while it was pending, an exception that was never retrieved."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Errors(logging.Handler):
    """Collects the errors of a logger."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self.messages.append(record.getMessage())


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fail at the end of the block if asyncio has logged an error in it."""
    errors, logger = _Errors(), logging.getLogger("asyncio")
    logger.addHandler(errors)
    try:
        yield
    finally:
        logger.removeHandler(errors)
    assert not errors.messages, "asyncio has logged errors:\n" + "\n".join(errors.messages)
