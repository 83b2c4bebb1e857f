"""A process that is killed, at every step of a call and at random moments: what has happened, and what a retry gets."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.durability.victim import KINDS, STEPS, Orders, Report
from tests.support.services import POSTGRESQL, expire_leases, needs_postgresql, new_schema

Follow = Callable[[Orders], Report]

RUNS = "runs"
DOUBT = "doubt"
REPLAY = "replay"

EXPECTED: dict[str, tuple[set[str], set[str], int]] = {
    # step: what a retry of a write gets, of something that may be repeated, and how often the effect has happened by then
    "before reserve": ({RUNS}, {RUNS}, 0),
    "reserve: before commit": ({RUNS}, {RUNS}, 0),
    "reserve: in commit": ({RUNS, DOUBT}, {RUNS}, 0),  # it is written or it is not; nobody has been told
    "reserve: after commit": ({DOUBT}, {RUNS}, 0),
    "after reserve": ({DOUBT}, {RUNS}, 0),
    "tool: before effect": ({DOUBT}, {RUNS}, 0),
    "tool: after effect": ({DOUBT}, {RUNS}, 1),
    "before record": ({DOUBT}, {RUNS}, 1),
    "record: before commit": ({DOUBT}, {RUNS}, 1),
    "record: in commit": ({DOUBT, REPLAY}, {RUNS, REPLAY}, 1),
    "record: after commit": ({REPLAY}, {REPLAY}, 1),
    "after record": ({REPLAY}, {REPLAY}, 1),
}


@pytest.fixture(scope="module")
def follow() -> Iterator[Follow]:
    """A process that makes children which follow orders."""
    command = [sys.executable, "-m", "tests.durability.victim"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(orders: Orders) -> Report:
            stdin.write(msgspec.json.encode(orders) + b"\n")
            stdin.flush()
            return msgspec.json.decode(stdout.readline(), type=Report)

        yield ask
        stdin.close()


class Backend:
    """A kind of store.

    Attributes:
        store: Its path or URL.
    """

    def __init__(self, store: str) -> None:
        self.store = store

    def forget_the_dead(self) -> None:
        """Let the time pass after which a killed process counts as dead. SQLite needs none."""
        url, _, schema = self.store.partition("?schema=")
        if url != self.store:
            expire_leases(schema)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Each kind of store, empty."""
    if request.param == "sqlite":
        yield Backend(str(tmp_path / "state.db"))
        return
    with new_schema() as schema:
        yield Backend(f"{POSTGRESQL}?schema={schema}")


def effects_of(orders: Orders) -> int:
    """How often the effect has happened."""
    path = Path(orders.effects)
    return path.read_text().splitlines().count(orders.request_id) if path.exists() else 0


def outcome(report: Report) -> str:
    """What a caller got, in a word."""
    assert not report.died
    if report.ok:
        return REPLAY if report.replayed else RUNS
    assert (report.code, report.state) == ("EXECUTION_UNCERTAIN", "interrupted")
    return DOUBT


def retries(follow: Follow, orders: Orders) -> str:
    """Send it again, twice: the second one has to agree with the first."""
    first = follow(orders)
    second = follow(orders)
    if first.ok:
        assert outcome(second) == REPLAY
        assert second.execution_id == first.execution_id
    else:
        assert outcome(second) == DOUBT
    return outcome(first)


def killed(follow: Follow, orders: Orders, backend: Backend, step: str) -> None:
    """Kill it at a step. The middle of a commit is that of a file: PostgreSQL has it in the server."""
    if step.endswith("in commit") and backend.store.startswith("postgresql:"):
        pytest.skip("the server commits")
    assert follow(msgspec.structs.replace(orders, die=step)).died
    backend.forget_the_dead()


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(follow: Follow, backend: Backend, tmp_path: Path, step: str) -> None:
    """Killed at this step, whatever the tool: a write happens at most once, and its retry gets what is true."""
    for effect, idempotent in KINDS:
        orders = Orders(
            store=backend.store,
            effects=str(tmp_path / "effects"),
            effect=effect,
            idempotent=idempotent,
            request_id=f"{effect}, {idempotent}",
        )
        killed(follow, orders, backend, step)
        of_writes, of_repeatable, before = EXPECTED[step]
        assert effects_of(orders) == before
        got = retries(follow, orders)
        repeatable = idempotent or effect in ("none", "read")
        assert got in (of_repeatable if repeatable else of_writes)
        assert effects_of(orders) == before + (got == RUNS)
        if not repeatable:
            assert effects_of(orders) <= 1


@pytest.mark.parametrize("step", STEPS)
def test_reconcile_resolves_it(follow: Follow, backend: Backend, tmp_path: Path, step: str) -> None:
    """With a tool that can reconcile, no step leaves a doubt: the effect has happened once, and every retry gets its answer."""
    for effect in ("write", "external_write", "destructive"):
        orders = Orders(
            store=backend.store,
            effects=str(tmp_path / "effects"),
            effect=effect,
            request_id=effect,
            reconcile=True,
        )
        killed(follow, orders, backend, step)
        happened = effects_of(orders) == 1
        assert retries(follow, orders) == (REPLAY if happened else RUNS)
        assert effects_of(orders) == 1


@needs_postgresql
@pytest.mark.long
@pytest.mark.parametrize("step", [step for step in STEPS if not step.endswith("in commit")])
def test_stopped_beyond_its_lease(follow: Follow, tmp_path: Path, step: str) -> None:
    """A process that is stopped, and wakes up after its lease has expired, changes nothing that others have seen."""
    with new_schema() as schema:
        orders = Orders(store=f"{POSTGRESQL}?schema={schema}", effects=str(tmp_path / "effects"))
        follow(msgspec.structs.replace(orders, request_id="the first"))
        stopped = follow(msgspec.structs.replace(orders, die=step, pause=True)).stopped
        assert stopped is not None
        expire_leases(schema)
        seen = outcome(follow(orders))
        late = follow(msgspec.structs.replace(orders, resume=stopped))
        again = outcome(follow(orders))
        assert again == (REPLAY if seen == RUNS else seen)
        assert effects_of(orders) <= 1
        assert not late.ok or again == DOUBT or late.replayed or seen == REPLAY


def play(follow: Follow, backend: Backend, directory: Path, rounds: int, seed: int) -> None:
    """Rounds of random steps, random moments and random tools, all on one file."""
    rng = random.Random(seed)
    for number in range(rounds):
        effect, idempotent = rng.choice(KINDS)
        orders = Orders(
            store=backend.store,
            effects=str(directory / "effects"),
            effect=effect,
            idempotent=idempotent,
            request_id=f"round {number} of {seed}",
            durability=rng.choice(["full", "normal"]),
            reconcile=rng.random() < 0.3,
        )
        attempts = rng.randint(1, 3)
        answer: Report | None = None
        for _ in range(attempts):
            if rng.random() < 0.5:
                attempt = msgspec.structs.replace(orders, die=rng.choice(STEPS))
            else:
                attempt = msgspec.structs.replace(orders, killed_after=rng.uniform(0, 0.02))
            report = follow(attempt)
            backend.forget_the_dead()
            if report.ok:
                assert answer is None or answer.execution_id == report.execution_id, orders
                answer = report
        got = retries(follow, orders)
        count = effects_of(orders)
        if not (idempotent or effect in ("none", "read")):
            assert count <= 1, orders
            assert got == DOUBT or count == 1, orders
            assert got != DOUBT or not orders.reconcile, orders
        if answer is not None:
            assert got == REPLAY, orders


def test_killed_at_random(follow: Follow, backend: Backend, tmp_path: Path) -> None:
    """Killed anywhere, several times over: a write happens at most once, and an answer that was given stays."""
    play(follow, backend, tmp_path, rounds=25, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 4))
def test_killed_at_random_for_long(follow: Follow, backend: Backend, tmp_path: Path, seed: int) -> None:
    """The same, 200 rounds for each seed."""
    play(follow, backend, tmp_path, rounds=200, seed=seed)


def test_the_table_is_complete() -> None:
    """Every step has its line."""
    assert tuple(EXPECTED) == STEPS
    assert len(KINDS) == len(set(itertools.product([kind[0] for kind in KINDS], [True, False])))
