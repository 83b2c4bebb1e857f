"""What a soak has seen: outcomes, wrong answers, answered executions, samples."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MAX_WRONG = 50
"""Wrong answers that are described; more are counted."""


@dataclass
class Tally:
    """The observations of one run.

    Attributes:
        outcomes: Number of calls by transport, tool and outcome.
        wrong: Descriptions of wrong answers.
        wrong_count: How many there were.
        answered: Ids of executions whose answers came from the server with the durable store.
        notes: Keys of notes that were answered as written.
        doubtful: Keys of notes whose attempt was interrupted: written once or not at all.
        faults: Number of injected faults by kind.
        samples: Vitals by server, each with its time.
    """

    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    wrong_count: int = 0
    answered: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[tuple[float, dict[str, float]]]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def saw(self, transport: str, tool: str, outcome: str) -> None:
        self.outcomes[transport, tool, outcome] += 1

    def complain(self, text: str) -> None:
        self.wrong_count += 1
        if len(self.wrong) < MAX_WRONG:
            self.wrong.append(text)

    def expect(self, transport: str, tool: str, got: Any, *allowed: Any) -> None:
        """Complain about an outcome that is not one of those allowed."""
        if got not in allowed:
            self.complain(f"{transport} {tool}: {got!r:.200}, not {' or '.join(f'{each!r:.100}' for each in allowed)}")

    def sample(self, server: str, vitals: dict[str, float]) -> None:
        self.samples.setdefault(server, []).append((time.monotonic() - self.began, vitals))

    @property
    def calls(self) -> int:
        return sum(self.outcomes.values())
