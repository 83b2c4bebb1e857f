"""What scripted tools act on: gates that hold calls, and counts of what ran. Works across threads."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import trio


class Stage:
    """The memory of the scripted tools of one engine.

    Gates and tags are names that the caller of a tool makes up. A gate is shut until it is opened, and stays open. What
    happened is waited for, never slept for.

    Every method may be called in any thread; those that are ``async`` need trio.

    Args:
        journal: A file that gets one line for each effect, so that effects can be counted across restarts of a
            process; what it holds already counts. None keeps them in memory.
    """

    def __init__(self, journal: Path | None = None) -> None:
        self._journal = journal
        self._changed = threading.Condition()  # a re-entrant lock: conditions are checked with it held
        self._opened: set[str] = set()
        self._arrived: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()
        self._most_inside: Counter[str] = Counter()
        self._effects: Counter[str] = Counter()
        self._waiters: list[tuple[int, trio.lowlevel.TrioToken, trio.Event]] = []
        if journal is not None and journal.exists():
            self._effects.update(journal.read_text().splitlines())

    def effect(self, tag: str) -> int:
        """Count one effect; return how often this one has happened."""
        with self._changed:
            self._effects[tag] += 1
            if self._journal is not None:
                with self._journal.open("a") as file:
                    file.write(tag + "\n")
            self._notify()
            return self._effects[tag]

    def effects(self, tag: str) -> int:
        """How often an effect has happened."""
        with self._changed:
            return self._effects[tag]

    def arrived(self, gate: str) -> int:
        """How many calls have come to a gate."""
        with self._changed:
            return self._arrived[gate]

    def left(self, gate: str) -> int:
        """How many calls have left a gate, let through or cancelled."""
        with self._changed:
            return self._left[gate]

    def most_inside(self, gate: str) -> int:
        """The largest number of calls that were at a gate at the same time."""
        with self._changed:
            return self._most_inside[gate]

    def open(self, gate: str) -> None:
        """Let all calls through, those to come as well."""
        with self._changed:
            self._opened.add(gate)
            self._notify()

    def is_open(self, gate: str) -> bool:
        """Whether calls get through."""
        with self._changed:
            return gate in self._opened

    async def pass_gate(self, gate: str) -> None:
        """Come to a gate and wait until it is open. If cancelled, the call has left."""
        with self._at(gate):
            await self.until(lambda: self.is_open(gate))

    def pass_gate_in_thread(self, gate: str) -> None:
        """The same for plain functions; nothing interrupts the wait."""
        with self._at(gate), self._changed:
            self._changed.wait_for(lambda: gate in self._opened)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on this stage is true."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            event = trio.Event()
            entry = (threading.get_ident(), trio.lowlevel.current_trio_token(), event)
            with self._changed:
                self._waiters.append(entry)
            try:
                if condition():
                    return
                await event.wait()
            finally:
                with self._changed, contextlib.suppress(ValueError):  # taken by _notify
                    self._waiters.remove(entry)

    @contextlib.contextmanager
    def _at(self, gate: str) -> Iterator[None]:
        with self._changed:
            self._arrived[gate] += 1
            self._inside[gate] += 1
            self._most_inside[gate] = max(self._most_inside[gate], self._inside[gate])
            self._notify()
        try:
            yield
        finally:
            with self._changed:
                self._inside[gate] -= 1
                self._left[gate] += 1
                self._notify()

    def _notify(self) -> None:
        """Wake all waiters; the lock is held."""
        self._changed.notify_all()
        waiters, self._waiters = self._waiters, []
        for thread, token, event in waiters:
            if thread == threading.get_ident():
                event.set()
            else:
                with contextlib.suppress(trio.RunFinishedError):
                    token.run_sync_soon(event.set)
