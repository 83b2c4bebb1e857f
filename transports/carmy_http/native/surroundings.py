"""What a connection of the native front end knows of its server."""

from __future__ import annotations

from typing import Protocol

from carmy_engine.transport import RateLimitedLogger

from .event_writer import Teller
from .head import Head


class Surroundings(Protocol):
    """The server of a connection.

    Attributes:
        teller: Tells what happens to those who follow a call.
        log: For connections, limited in rate.
    """

    teller: Teller
    log: RateLimitedLogger

    def read(self, raw: bytes) -> Head:
        """Read a complete head, blank line included.

        Raises:
            FramingError: It is no head of a request.
        """
        ...

    def is_draining(self) -> bool:
        """The next answer of each connection is its last one."""
        ...

    def is_full(self) -> bool:
        """There are more connections than the limit allows."""
        ...
