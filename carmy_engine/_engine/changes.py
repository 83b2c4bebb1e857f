"""Changes of the lists of an engine, and of the content of its resources, for watchers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Self

import trio

from .._model.errors import AgentError
from .._model.resources import Change

MAX_SUBSCRIPTIONS = 1000
"""Resources that one watcher subscribes to. A person has far fewer open."""


class Changes:
    """All watchers of an engine. Made in the trio thread.

    A change wakes each watcher once, however often it occurs before the watcher looks.
    """

    def __init__(self) -> None:
        self._watches: set[Watch] = set()
        self._subscribed: dict[str, set[Watch]] = {}
        self._token = trio.lowlevel.current_trio_token()
        self._from_threads: set[str] = set()

    @contextmanager
    def watch(self, check: Callable[[str], Awaitable[None]]) -> Iterator[Watch]:
        """A watcher, for the length of a block.

        Args:
            check: Raises `AgentError` for a resource that the caller may not read.
        """
        watch = Watch(self._subscribed, check)
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            watch.close()

    def publish(self, kind: Literal["tools", "resources", "prompts"]) -> None:
        """Announce a change of a list."""
        for watch in self._watches:
            watch.put(Change(kind))

    def publish_resource(self, uri: str) -> None:
        """Announce a change of the content of a resource. Safe in any thread; never blocks."""
        if trio.lowlevel.in_trio_task():
            self._publish(uri)
        elif uri in self._subscribed:
            # Subscribed addresses only, so a flood from a thread has a bound.
            self._from_threads.add(uri)
            self._token.run_sync_soon(self._publish_from_threads, idempotent=True)

    def _publish_from_threads(self) -> None:
        while self._from_threads:
            self._publish(self._from_threads.pop())

    def _publish(self, uri: str) -> None:
        for watch in self._subscribed.get(uri, ()):
            watch.put(Change("resource", uri))


class Watch:
    """The changes that one watcher has not seen yet, at most one of each kind and resource. Made by `Changes.watch`."""

    def __init__(self, subscribed: dict[str, set[Watch]], check: Callable[[str], Awaitable[None]]) -> None:
        self._subscribed = subscribed
        self._check = check
        self._uris: set[str] = set()
        self._pending: dict[Change, None] = {}
        self._wake = trio.Event()

    async def subscribe(self, uri: str) -> None:
        """Announce changes of the content of a resource from now on. A second time, it has no effect.

        Raises:
            AgentError: ``RESOURCE_NOT_FOUND``, for one that the caller may not read as well; ``OVERLOADED``, beyond
                `MAX_SUBSCRIPTIONS`.
        """
        await self._check(uri)
        if uri not in self._uris and len(self._uris) >= MAX_SUBSCRIPTIONS:
            raise AgentError.standard("OVERLOADED", f"one client subscribes to at most {MAX_SUBSCRIPTIONS} resources")
        self._uris.add(uri)
        self._subscribed.setdefault(uri, set()).add(self)

    def unsubscribe(self, uri: str) -> None:
        """End a subscription; without one, it has no effect."""
        if uri in self._uris:
            self._uris.discard(uri)
            self._pending.pop(Change("resource", uri), None)
            watches = self._subscribed[uri]
            watches.discard(self)
            if not watches:
                del self._subscribed[uri]

    def put(self, change: Change) -> None:
        """Add a change, unless it is waiting already."""
        self._pending[change] = None
        self._wake.set()

    def close(self) -> None:
        """End all subscriptions."""
        for uri in [*self._uris]:
            self.unsubscribe(uri)

    async def receive(self) -> Change:
        """Wait for a change."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._pending:
            self._wake = trio.Event()
            await self._wake.wait()
        change = next(iter(self._pending))
        del self._pending[change]
        return change

    def __aiter__(self) -> Self:
        return self

    __anext__ = receive
