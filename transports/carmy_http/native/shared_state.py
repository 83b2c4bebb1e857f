"""The state that all connections of one native server share."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from carmy_engine import Engine
from carmy_engine.transport import RateLimitedLogger, raise_single

from ..api.endpoints import Endpoints
from .event_writer import EventWriter
from .leader_follower import Dispatcher
from .request import HeadCache
from .timeouts import Timeouts

log = logging.getLogger("carmy.http")


class SharedState:
    """The background tasks, limits and caches of one server.

    Args:
        engine: An open engine.
        endpoints: Its endpoints.

    Attributes:
        endpoints: Answer the requests.
        log: For connections, limited in rate.
        heads: Parses heads of requests.
        timeouts: Checks the connections' timers.
        event_writer: Writes streams of events.
        dispatcher: Serves idle connections; None where there is no epoll.
        settings: Limits in time and bytes.
    """

    def __init__(self, engine: Engine, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self.settings = engine.settings.http
        self.log = RateLimitedLogger(log)
        self.heads = HeadCache(self.settings.max_head_bytes)
        self.timeouts = Timeouts(self.log)
        self.event_writer = EventWriter(self.log, self.settings, engine.settings.limits.max_event_bytes)
        self.dispatcher: Dispatcher | None = Dispatcher(self.log) if sys.platform == "linux" else None
        self.is_draining = engine.stopping.is_set

    def is_full(self) -> bool:
        """True if there are more connections than the limit allows."""
        return len(self.timeouts) > self.settings.max_connections

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the background tasks for the length of a block."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.timeouts.run)
                await nursery.start(self.event_writer.run)
                if self.dispatcher is not None:
                    await nursery.start(self.dispatcher.run)
                yield
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)
