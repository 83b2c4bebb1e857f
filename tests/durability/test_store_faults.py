"""Every way in which a store can fail, at every step that asks it: the caller gets a typed answer that tells what is true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import AgentError, App, Cause, Engine, ExecutionRequest, ExecutionResult
from carmy_engine._idempotency.reservations import STORE_SECONDS
from carmy_engine.abc import StoreFull
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.stores.sqlite import CorruptFileError, DiskFullError
from carmy_engine.transport import BURST_LINES

FAULTS: dict[str, BaseException | None] = {
    "slow": None,
    "failing": ConnectionResetError("the store is away"),
    "full": DiskFullError("state.db: no room"),
    "corrupt": CorruptFileError("state.db: damaged"),
    "no room": StoreFull(),
}


class FaultyStore(MemoryStore):
    """Fails at one step in one way, while told to."""

    def __init__(self) -> None:
        super().__init__()
        self.at = ""
        self.fault = ""

    async def _meet(self, step: str) -> None:
        await trio.lowlevel.checkpoint()
        if step == self.at:
            error = FAULTS[self.fault]
            if error is None:
                await trio.sleep_forever()
            raise error

    async def reserve(self, *arguments: Any) -> Any:
        await self._meet("reserve")
        return await super().reserve(*arguments)

    async def complete(self, *arguments: Any) -> bool:
        await self._meet("complete")
        return await super().complete(*arguments)

    async def release(self, *arguments: Any) -> bool:
        await self._meet("release")
        return await super().release(*arguments)

    async def interrupt(self, *arguments: Any) -> bool:
        await self._meet("interrupt")
        return await super().interrupt(*arguments)


class Shop:
    """An application on such a store.

    Attributes:
        runs: How often a tool has run.
    """

    def __init__(self) -> None:
        self.store = FaultyStore()
        self.runs = 0
        self.app = App("shop", timeout=30).store(self.store)

        @self.app.tool(effect="write", parallel_safe=True)
        async def work(then: str = "value") -> str:
            """Do something."""
            self.runs += 1
            if then == "error":
                raise AgentError("NO", "no", "conflict")
            if then == "retryable":
                raise AgentError("LATER", "later", "capacity", retryable=True, recoverable=True)
            if then == "wait":
                await trio.sleep_forever()
            return then

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        async with self.app.open() as engine:
            yield engine

    def request(self, then: str = "value") -> ExecutionRequest:
        return ExecutionRequest(tool="work", arguments={"then": then}, request_id="r1")


@pytest.fixture
def shop() -> Shop:
    return Shop()


def told(result: ExecutionResult) -> tuple[str, dict[str, Any]]:
    assert result.error is not None
    return result.error.code, dict(result.error.details or {})


every_fault = pytest.mark.parametrize("fault", ["slow", "failing", "full", "corrupt"])
REASONS = {"full": "disk_full", "corrupt": "corrupt"}


@every_fault
async def test_reserving(shop: Shop, fault: str, autojump_clock: trio.testing.MockClock) -> None:
    """Nothing has run, as the answer states; once the store is well again, the same request runs once."""
    async with shop.open() as engine:
        shop.store.at, shop.store.fault = "reserve", fault
        code, details = told(await engine.execute(shop.request()))
        if fault == "slow":
            assert (code, details["phase"]) == ("TIMEOUT", "waiting")
        else:
            assert code == "STORE_ERROR"
            assert details == {"ran": False} | ({"reason": REASONS[fault]} if fault in REASONS else {})
        assert shop.runs == 0
        shop.store.at = ""
        assert (await engine.execute(shop.request())).unwrap() == "value"
        assert shop.runs == 1


@pytest.mark.parametrize("step", ["reserve", "complete"])
async def test_a_full_disk_does_not_fill_the_log(shop: Shop, step: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each call that needs a request_id is answered, calls without one run, and the log has a few tracebacks a minute."""
    shop.store.at, shop.store.fault = step, "full"
    async with shop.open() as engine:
        for number in range(20):
            request = ExecutionRequest(tool="work", request_id=f"r{number}")
            assert told(await engine.execute(request))[0] == "STORE_ERROR"
            assert (await engine.execute(ExecutionRequest(tool="work"))).unwrap() == "value"
    assert 1 <= sum("idempotency store could not" in message for message in caplog.messages) <= BURST_LINES


@every_fault
@pytest.mark.parametrize("then", ["value", "error"])
async def test_recording(shop: Shop, fault: str, then: str, autojump_clock: trio.testing.MockClock) -> None:
    """The tool ran, as the answer states, which carries the output; a retry never runs it again."""
    async with shop.open() as engine:
        shop.store.at, shop.store.fault = "complete", fault
        with trio.fail_after(STORE_SECONDS + 1):
            result = await engine.execute(shop.request(then))
        code, details = told(result)
        assert code == "STORE_ERROR"
        assert result.error is not None
        assert not result.error.retryable
        assert details["ran"] is True
        assert details.get("reason") == REASONS.get(fault)
        if then == "value":
            assert details["data"] == "value"
        else:
            assert details["error"].code == "NO"
        shop.store.at = ""
        code, details = told(await engine.execute(shop.request(then)))
        assert (code, details["state"]) == ("EXECUTION_UNCERTAIN", "running")
        assert shop.runs == 1


@every_fault
async def test_releasing(shop: Shop, fault: str, autojump_clock: trio.testing.MockClock) -> None:
    """The tool's own error is the answer, whether or not its id could be freed; then it is in doubt, and runs no more."""
    async with shop.open() as engine:
        shop.store.at, shop.store.fault = "release", fault
        code, _ = told(await engine.execute(shop.request("retryable")))
        assert code == "LATER"
        shop.store.at = ""
        code, _ = told(await engine.execute(shop.request("retryable")))
        assert code == "EXECUTION_UNCERTAIN"
        assert shop.runs == 1


@every_fault
async def test_interrupting(shop: Shop, fault: str, autojump_clock: trio.testing.MockClock) -> None:
    """A caller can leave within the store's limit; a retry is informed of the doubt."""
    async with shop.open() as engine:
        shop.store.at, shop.store.fault = "interrupt", fault
        with trio.fail_after(STORE_SECONDS + 10), trio.move_on_after(1) as scope:
            await engine.bind(gone=Cause.DISCONNECT).execute(shop.request("wait"))
        assert scope.cancelled_caught
        shop.store.at = ""
        code, _ = told(await engine.execute(shop.request("wait")))
        assert code == "EXECUTION_UNCERTAIN"
        assert shop.runs == 1


async def test_no_room(shop: Shop) -> None:
    """A store that is full of what may not be forgotten refuses before anything runs."""
    async with shop.open() as engine:
        shop.store.at, shop.store.fault = "reserve", "no room"
        code, _ = told(await engine.execute(shop.request()))
    assert code == "IDEMPOTENCY_CAPACITY"
    assert shop.runs == 0
