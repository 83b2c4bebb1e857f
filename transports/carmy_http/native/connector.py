"""What all native connections of one server share."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from carmy_engine import Engine
from carmy_engine.transport import RateLimitedLogger, raise_single

from ..api.endpoints import Endpoints
from .connection import NativeConnection
from .event_writer import Teller
from .head import Head, read_native_head
from .idle_connection import ParkedConnection
from .leader_follower import Pump
from .timeouts import Keeper

log = logging.getLogger("carmy.http")

MAX_KNOWN_HEADS = 1024
"""Heads whose reading is remembered: of some dozens of clients, with bodies of some dozens of lengths."""

MAX_KNOWN_HEAD_BYTES = 1024
"""A head that is longer is read each time. Bounds the memory, together with the number."""


class NativeConnector:
    """Makes a connection of an accepted stream.

    Args:
        engine: An open engine.
        endpoints: Its endpoints.

    Attributes:
        teller: See `Surroundings`.
        log: See `Surroundings`.
    """

    def __init__(self, engine: Engine, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self.log = RateLimitedLogger(log)
        self.teller = Teller(self.log)
        self._keeper = Keeper(self.log)
        self._pump: Pump | None = Pump(self.log) if sys.platform == "linux" else None
        self.is_draining = engine.stopping.is_set
        self._max = engine.settings.http.max_connections
        self._header_seconds = engine.settings.http.header_timeout_secs
        self._known = functools.lru_cache(MAX_KNOWN_HEADS)(self._read)

    def is_full(self) -> bool:
        """See `Surroundings`."""
        return len(self._keeper) > self._max

    def read(self, raw: bytes) -> Head:
        """See `Surroundings`. Clients send few different heads, again and again."""
        return self._known(raw) if len(raw) <= MAX_KNOWN_HEAD_BYTES else self._read(raw)

    def _read(self, raw: bytes) -> Head:
        head = read_native_head(raw)
        head.plain = self._endpoints.plain_call(head)
        return head

    def connect(self, stream: trio.SocketStream) -> NativeConnection:
        """A connection like any other."""
        if self._pump is None:
            return self._connection(stream, reserved=False)
        return ParkedConnection(
            stream,
            self._endpoints,
            self._keeper,
            self,
            self._pump,
            header_seconds=self._header_seconds,
        )

    def connect_reserved(self, stream: trio.SocketStream) -> NativeConnection:
        """A connection beyond the limit."""
        return self._connection(stream, reserved=True)

    def _connection(self, stream: trio.SocketStream, *, reserved: bool) -> NativeConnection:
        return NativeConnection(
            stream,
            self._endpoints,
            self._keeper,
            self,
            header_seconds=self._header_seconds,
            reserved=reserved,
        )

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """The block in which connections are looked after."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._keeper.run)
                await nursery.start(self.teller.run)
                if self._pump is not None:
                    await nursery.start(self._pump.run)
                yield
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)
