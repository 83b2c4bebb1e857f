"""What those who look after an engine see of it: everybody's executions, and what is in doubt."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import AgentError, Cause, ListedExecution
from carmy_engine._execution.listing import LIST_PERMISSION, MAX_LISTED
from carmy_engine._idempotency.reservations import STORE_SECONDS
from carmy_engine.abc import Identity, Outcome, Reservation, ReservationState
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.stores.sqlite import DiskFullError, SqliteStore
from tests.engine.kit import Bench, bench


def states(listed: list[ListedExecution]) -> dict[str, str]:
    """The states by request_id."""
    return {str(each.request_id): each.state.value for each in listed}


def entry(number: int, state: ReservationState = ReservationState.RUNNING) -> Reservation:
    """An entry of another process."""
    return Reservation(
        identity=Identity(principal="bob", session="s", scope="", request_id=f"r{number}"),
        fingerprint=b"f",
        execution_id=f"exec_{number}",
        state=state,
        started_at=float(number),
        tool="write",
    )


async def refused(b: Bench, **who: Any) -> str:
    with pytest.raises(AgentError) as caught:
        await b.engine.bind(**who).executions()
    return caught.value.code


async def test_who_may_list() -> None:
    """It takes the permission; the application's own code, unbound, needs none."""
    async with bench() as b:
        assert await refused(b) == "FORBIDDEN"
        assert await refused(b, principal="ana", permissions={"tool:write", "executions"}) == "FORBIDDEN"
        assert await b.engine.bind(principal="ana", permissions={LIST_PERMISSION}).executions() == []
        assert await b.engine.executions() == []


async def test_every_state() -> None:
    """What runs, what has ended and what is in doubt are listed with their states, newest first."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        ana = b.of(principal="ana")
        await ana.call("echo", {"text": "x"}, request_id="finished")
        await ana.call("echo", {}, request_id="failed")
        gone = ana.start(nursery, "write", {"then": "wait", "gate": gate}, request_id="gone")
        await b.arrived(gate)
        await gone.leave()
        left = ana.start(nursery, "read", {"then": "wait", "gate": gate}, request_id="left")
        await b.arrived(gate, 2)
        await left.leave()
        late = await b.call("thread_write", {"then": "wait", "gate": gate}, request_id="stuck", timeout_ms=50)
        b.start(nursery, "write", {"then": "wait", "gate": gate}, request_id="running")
        await b.arrived(gate, 4)
        listed = await b.engine.executions()
        assert states(listed) == {
            "running": "running",
            "stuck": "running",
            "left": "finished",
            "gone": "interrupted",
            "failed": "finished",
            "finished": "finished",
        }
        found = {each.request_id: each for each in listed}
        assert [each.started_at for each in listed] == sorted((each.started_at for each in listed), reverse=True)
        assert (found["finished"].status, found["finished"].error_code) == ("completed", None)
        assert (found["failed"].status, found["failed"].error_code) == ("failed", "INVALID_ARGUMENTS")
        assert (found["gone"].status, found["gone"].cause, found["gone"].principal) == (
            "cancelled",
            Cause.CALLER,
            "ana",
        )
        assert (found["stuck"].status, found["stuck"].execution_id) == ("timed_out", late.execution_id)
        assert (found["running"].status, found["running"].cause) == (None, None)
        await b.open(gate)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_the_store_holds(kind: str, tmp_path: Path) -> None:
    """What runs in other processes, or was interrupted in earlier ones, is listed; what is completed is not."""
    store: Any = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "state.db")
    async with bench(store=store) as b:
        for number in range(3):
            await store.reserve(entry(number))
        await store.complete(entry(0).identity, "exec_0", Outcome(execution_id="exec_0", data_json=b"1"), time.time())
        await store.interrupt(entry(1).identity, "exec_1", Cause.DISCONNECT, 5.0)
        listed = await b.engine.executions()
        assert [(each.execution_id, each.state.value) for each in listed] == [
            ("exec_2", "running"),
            ("exec_1", "interrupted"),
        ]
        assert (listed[1].principal, listed[1].session, listed[1].transport) == ("bob", "s", None)
        assert listed[1].cause is Cause.DISCONNECT
        every = [ReservationState.COMPLETED, ReservationState.RUNNING, ReservationState.INTERRUPTED]
        assert [[each.execution_id for each in await store.entries(state=state)] for state in every] == [
            ["exec_0"],
            ["exec_2"],
            ["exec_1"],
        ]
        assert await store.entries(tool="read") == []
        assert [each.execution_id for each in await store.entries(limit=1)] == ["exec_2"]


async def test_it_is_bounded() -> None:
    """No state has more than so many, the newest of them; one that has many hides no other."""
    store = MemoryStore()
    async with bench(store=store) as b:
        for number in range(MAX_LISTED + 5):
            await store.reserve(entry(number))
        await store.interrupt(entry(0).identity, "exec_0", None, 1.0)
        for _ in range(MAX_LISTED + 5):
            await b.call("echo", {"text": ""})
        listed = await b.engine.executions()
        assert len(listed) == 2 * MAX_LISTED + 1
        assert listed[-1].execution_id == "exec_0"
        assert listed[MAX_LISTED].execution_id == f"exec_{MAX_LISTED + 4}"


async def test_a_store_that_fails_to_list(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """A store that fails to list its entries, or takes too long, is ``STORE_ERROR``."""
    caplog.set_level("CRITICAL", "carmy")
    store = MemoryStore()
    async with bench(store=store) as b:
        await b.call("echo", {"text": ""})

        async def fail(**_: Any) -> Any:
            raise DiskFullError("state.db: no room")

        async def hang(**_: Any) -> Any:
            await trio.sleep_forever()

        store.entries = fail  # type: ignore[method-assign]
        with pytest.raises(AgentError, match="disk_full") as caught:
            await b.engine.executions()
        assert (caught.value.code, caught.value.details) == ("STORE_ERROR", {"reason": "disk_full"})
        store.entries = hang  # type: ignore[method-assign]
        began = trio.current_time()
        with pytest.raises(AgentError):
            await b.engine.executions()
        assert trio.current_time() - began == pytest.approx(STORE_SECONDS)


async def test_a_store_without_a_list() -> None:
    """A store that lists no entries does not keep executions in this process from being listed."""

    class Unlisted(MemoryStore):
        entries = None  # type: ignore[assignment]

    async with bench(store=Unlisted()) as b:
        await b.call("echo", {"text": ""})
        assert len(await b.engine.executions()) == 1
