"""The session with a server, and the next one after it was lost."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from carmy_engine import AgentError, ClosedError
from carmy_engine.abc import ClientFeatures
from carmy_engine.transport import RateLimitedLogger, raise_single

from .limits import McpClientLimits
from .link import Link
from .session import ClientSession

log = RateLimitedLogger(logging.getLogger("carmy.mcp"))


MAX_FALLS = 30
"""Counted ends of a command that has not worked in between: more would change nothing."""


class Connector:
    """Keeps a session with one server.

    A command that has ended is started again at once. If it ends again soon, each further start waits twice as long as the one before.

    Args:
        what: The server, for messages.
        open_link: Opens a link, each time.
        prepare: Prepares a session, within `limits.ready_secs`. Raises `ClosedError`, `AgentError` or `ConfigurationError`.
        limits: In time.
        client: See `ClientSession`.
    """

    def __init__(
        self,
        what: str,
        open_link: Callable[[], AbstractAsyncContextManager[Link]],
        prepare: Callable[[ClientSession], Awaitable[None]],
        limits: McpClientLimits,
        client: ClientFeatures | None,
    ) -> None:
        self.what = what
        self.is_closed = False
        self._open_link = open_link
        self._prepare = prepare
        self._limits = limits
        self._client = client
        self._session: ClientSession | None = None
        self._attempted = trio.Event()
        """Set unless a session is being opened."""
        self._why = ""
        self._next_start = math.inf
        self._falls = 0

    async def session(self) -> ClientSession:
        """The session; waits for one that is being opened.

        Raises:
            ClosedError: There is none. The message has the reason.
        """
        while self._session is None:
            if self.is_closed:
                raise ClosedError(f"the client of {self.what} was used after its block had ended")
            if self._attempted.is_set():
                raise ClosedError(f"{self._why}; it is started again in {self._wait():.1f} s; the call was not sent")
            await self._attempted.wait()
        return self._session

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Open a session, and another one whenever it is lost, until cancelled.

        Raises:
            ClosedError: The first one cannot be opened; so for the others.
            AgentError: The server refused.
            ConfigurationError: It does not fit the configuration.
        """
        has_started = False

        def started() -> None:
            nonlocal has_started
            if not has_started:
                has_started = True
                task_status.started()

        while True:
            try:
                await self._serve(started)
            except (ClosedError, AgentError) as problem:
                if not has_started:
                    raise
                self._note_loss(str(problem), was_stable=False)
            log.warning("%s; it is started again in %.1f s", self._why, self._wait())
            await trio.sleep_until(self._next_start)
            if self._attempted.is_set():
                self._attempted = trio.Event()

    async def _serve(self, started: Callable[[], None]) -> None:
        """Open a session, and wait for its end."""
        lost = trio.Event()
        ready_at = math.inf

        def end(why: str) -> None:
            if math.isfinite(ready_at) and not lost.is_set():
                self._note_loss(why, was_stable=trio.current_time() - ready_at >= self._limits.stable_secs)
            lost.set()

        try:
            async with self._open_link() as link, trio.open_nursery() as tasks:
                session = ClientSession(link, tasks, self._limits, self._client, end)
                # Closed when cancelled, too: a request that ends later would find no nursery for its cancel.
                with contextlib.closing(session):
                    tasks.start_soon(link.run, session)
                    try:
                        with trio.fail_after(self._limits.ready_secs):
                            await self._prepare(session)
                    except trio.TooSlowError:
                        seconds = self._limits.ready_secs
                        raise ClosedError(f"{self.what} was not ready within {seconds:g} s") from None
                    if lost.is_set():
                        raise ClosedError(f"{self.what} ended as soon as it was ready")
                    ready_at = trio.current_time()
                    self._session = session
                    self._attempted.set()
                    started()
                    await lost.wait()
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)

    def close(self) -> None:
        """End all requests, and refuse further ones."""
        self.is_closed = True
        if self._session is not None:
            self._session.close()
        self._session = None
        self._attempted.set()

    def _note_loss(self, why: str, *, was_stable: bool) -> None:
        """Forget the session, and decide when the next one is opened."""
        limits = self._limits
        self._session = None
        self._why = why
        if was_stable:
            self._falls = 0
        wait = min(limits.restart_secs * 2 ** (self._falls - 1), limits.max_restart_secs) if self._falls else 0.0
        self._falls = min(self._falls + 1, MAX_FALLS)
        self._next_start = trio.current_time() + wait
        if wait:
            self._attempted.set()  # calls do not wait for a start that is not due
        else:
            self._attempted = trio.Event()

    def _wait(self) -> float:
        return max(self._next_start - trio.current_time(), 0.0)
