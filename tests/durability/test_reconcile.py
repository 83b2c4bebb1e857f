"""Tools that can tell what became of an attempt that was interrupted: a retry gets the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    Cause,
    Completed,
    DeclarationError,
    Engine,
    ExecutionRequest,
    ExecutionResult,
    Failed,
    MemoryStore,
    NotStarted,
    Unknown,
    tool,
)
from carmy_engine._idempotency.reconcile import RECONCILE_SECONDS
from carmy_engine.testing import RecordingSink

Answer = Callable[[], Awaitable[Any]]


class Bank:
    """An application whose tool is interrupted once, and then asked.

    Attributes:
        paid: What the tool has done, each time.
        asked: What its function has been asked, each time.
        answer: What that function does.
    """

    def __init__(self, store: Any = None) -> None:
        self.paid: list[int] = []
        self.asked: list[tuple[AgentContext, dict[str, Any]]] = []
        self.sink = RecordingSink()
        self.answer: Answer = self.unknown
        self._hang = True
        self._begun = trio.Event()
        self.app = App("bank").store(MemoryStore() if store is None else store).sink(self.sink)

        async def reconcile(ctx: AgentContext, arguments: dict[str, Any]) -> Any:
            self.asked.append((ctx, arguments))
            return await self.answer()

        @self.app.tool(effect="external_write", parallel_safe=True, reconcile=reconcile)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            self._begun.set()
            if self._hang:
                await trio.sleep_forever()
            return f"receipt {len(self.paid)}"

    async def unknown(self) -> Any:
        return Unknown()

    def answers(self, settlement: Any) -> None:
        async def answer() -> Any:
            return settlement

        self.answer = answer

    @asynccontextmanager
    async def interrupted(self) -> AsyncIterator[Engine]:
        """An engine whose caller has gone away from a payment."""
        async with self.app.open() as engine:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.call, engine.bind(gone=Cause.DISCONNECT))
                    await self._begun.wait()
                    scope.cancel()
            self._hang = False
            assert self.paid == [5]
            yield engine

    async def call(self, engine: Any, amount: int = 5) -> ExecutionResult:
        result: ExecutionResult = await engine.execute(
            ExecutionRequest(tool="pay", arguments={"amount": amount}, request_id="r1")
        )
        return result

    def settled(self) -> list[tuple[str, str | None]]:
        """The audit records of settling: status and code."""
        return [(each.status.value, each.error_code) for each in self.sink.records if each.settled == "reconcile"]


def code(result: ExecutionResult) -> str | None:
    return None if result.error is None else result.error.code


async def test_it_has_happened() -> None:
    """Completed: the retry and those after it get that value as a replay; the tool does not run, and is asked once."""
    bank = Bank()
    async with bank.interrupted() as engine:
        bank.answers(Completed("receipt 17"))
        first, second = await bank.call(engine), await bank.call(engine)
    assert (first.data, first.replayed) == ("receipt 17", True)
    assert second.data_json == first.data_json
    assert len(bank.asked) == 1
    assert bank.paid == [5]
    assert bank.settled() == [("completed", None)]


async def test_it_has_failed() -> None:
    """Failed: they get that error as a replay."""
    bank = Bank()
    async with bank.interrupted() as engine:
        bank.answers(Failed(AgentError("REFUSED", "the card was refused", "conflict")))
        first, second = await bank.call(engine), await bank.call(engine)
    assert [(code(each), each.replayed) for each in (first, second)] == [("REFUSED", True)] * 2
    assert bank.paid == [5]
    assert bank.settled() == [("failed", "REFUSED")]


async def test_it_has_not_happened() -> None:
    """NotStarted: the retry runs, once, and is replayed from then on."""
    bank = Bank()
    async with bank.interrupted() as engine:
        bank.answers(NotStarted())
        first, second = await bank.call(engine), await bank.call(engine)
    assert [(each.data, each.replayed) for each in (first, second)] == [("receipt 2", False), ("receipt 2", True)]
    assert bank.paid == [5, 5]
    assert bank.settled() == [("cancelled", None)]


async def test_nobody_can_say() -> None:
    """Unknown: the retry is informed of the doubt, and the next one asks again."""
    bank = Bank()
    async with bank.interrupted() as engine:
        assert [code(await bank.call(engine)) for _ in range(2)] == ["EXECUTION_UNCERTAIN"] * 2
        bank.answers(Completed("receipt"))
        assert (await bank.call(engine)).data == "receipt"
    assert len(bank.asked) == 3
    assert bank.paid == [5]


async def test_what_it_is_asked() -> None:
    """It gets the arguments as they were sent, and the caller's context with the id of the attempt that was interrupted."""
    bank = Bank()
    async with bank.interrupted() as engine:
        (attempt,) = [each.execution_id for each in bank.sink.records]
        result = await bank.call(engine)
    ((context, arguments),) = bank.asked
    assert arguments == {"amount": 5}
    assert context.execution_id == attempt
    assert context.request_id == "r1"
    assert result.error is not None
    assert result.error.details is not None
    assert result.error.details["execution_id"] == attempt


@pytest.mark.parametrize("wrong", [None, "yes", Completed(object()), Completed(17), Failed("no")])  # type: ignore[arg-type]
async def test_answers_that_are_none(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An answer that it may not give, or a value that is not the tool's, is no answer; the log states what is wrong."""
    bank = Bank()
    async with bank.interrupted() as engine:
        bank.answers(wrong)
        assert code(await bank.call(engine)) == "EXECUTION_UNCERTAIN"
    assert "reconcile of pay" in caplog.text
    assert bank.settled() == []


async def test_it_raises(caplog: pytest.LogCaptureFixture) -> None:
    """A function that fails cannot say; what it raised is in the log and not in the answer."""
    bank = Bank()

    async def answer() -> Any:
        raise AgentError("HUNTER2", "secret", "internal")

    async with bank.interrupted() as engine:
        bank.answer = answer
        result = await bank.call(engine)
    assert code(result) == "EXECUTION_UNCERTAIN"
    assert "secret" not in str(result.error)
    assert "secret" in caplog.text


async def test_it_takes_too_long(autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """It has so many seconds, and never more than the call; the entry stays as it is."""
    bank = Bank()
    async with bank.interrupted() as engine:
        bank.answer = trio.sleep_forever
        start = trio.current_time()
        assert code(await bank.call(engine)) == "EXECUTION_UNCERTAIN"
        assert trio.current_time() - start == pytest.approx(RECONCILE_SECONDS)
        request = ExecutionRequest(tool="pay", arguments={"amount": 5}, request_id="r1", timeout_ms=100)
        result = await engine.execute(request)
        assert code(result) == "TIMEOUT"
        assert trio.current_time() - start == pytest.approx(RECONCILE_SECONDS + 0.1)
        bank.answers(Completed("receipt"))
        assert (await bank.call(engine)).data == "receipt"
    assert "no answer within 10 s" in caplog.text


async def test_its_caller_goes_away() -> None:
    """A retry that leaves while the tool is asked changes nothing."""
    bank = Bank()
    async with bank.interrupted() as engine:
        bank.answer = trio.sleep_forever
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bank.call, engine)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        bank.answers(Completed("receipt"))
        assert (await bank.call(engine)).data == "receipt"


async def test_two_retries_at_once() -> None:
    """Both may ask; the attempt is settled once, and it runs at most once more."""
    bank = Bank()
    go = trio.Event()
    results: list[ExecutionResult] = []

    async def answer() -> Any:
        await go.wait()
        return NotStarted()

    async def call() -> None:
        results.append(await bank.call(engine))

    async with bank.interrupted() as engine:
        bank.answer = answer
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            go.set()
    assert len(bank.asked) == 2
    assert bank.paid == [5, 5]
    assert len(bank.settled()) == 1
    assert sorted(str(code(each)) for each in results) in (["EXECUTION_UNCERTAIN", "None"], ["None", "None"])


async def test_another_request_is_not_asked_about() -> None:
    """Another request under the same id is a conflict, and the tool is not asked."""
    bank = Bank()
    async with bank.interrupted() as engine:
        assert code(await bank.call(engine, amount=6)) == "IDEMPOTENCY_CONFLICT"
    assert bank.asked == []


async def test_after_a_restart(tmp_path: Path) -> None:
    """The next process asks as well: on a store that has outlived the first one."""
    url = f"sqlite:{tmp_path / 'state.db'}"
    first, second = Bank(url), Bank(url)
    async with first.interrupted():
        pass
    second._hang = False
    second.answers(Completed("receipt 1"))
    async with second.app.open() as engine:
        result = await second.call(engine)
    assert (result.data, result.replayed) == ("receipt 1", True)
    assert second.paid == []


def test_what_is_declared() -> None:
    """Anything but an async function of two arguments is refused where it is declared."""
    with pytest.raises(DeclarationError, match=r"reconcile is the function len, not an async function"):
        tool(effect="write", reconcile=len, register=False)(pay)  # type: ignore[arg-type]

    async def alone(ctx: AgentContext) -> Unknown:
        return Unknown()

    for wrong in (alone, Till.look):  # for the latter nobody knows the object
        with pytest.raises(DeclarationError, match=r"cannot be called with \(ctx, arguments\)"):
            tool(effect="write", reconcile=wrong, register=False)(pay)  # type: ignore[arg-type]


async def pay() -> str:
    """Pay."""
    return ""


class Till:
    """A provider that was given what it needs; so its function that knows what has become of a payment has it as well."""

    def __init__(self, receipts: dict[str | None, str]) -> None:
        self.receipts = receipts
        self.begun = trio.Event()

    async def look(self, ctx: AgentContext, arguments: dict[str, Any]) -> Completed | Unknown:
        receipt = self.receipts.get(ctx.request_id)
        return Unknown() if receipt is None else Completed(f"{receipt} for {arguments['amount']}")

    @tool(effect="external_write", parallel_safe=True, reconcile=look)
    async def pay(self, amount: int) -> str:
        """Pay."""
        self.begun.set()
        await trio.sleep_forever()
        return "never"


class NewTill(Till):
    """Inherits all of it."""


@pytest.mark.parametrize("kind", [Till, NewTill])
@pytest.mark.parametrize("as_method", [False, True])
async def test_a_tool_that_is_a_method(kind: type[Till], as_method: bool) -> None:
    """Its function is a method of the same object, whether that or its method was added."""
    till = kind({"r1": "receipt 7"})
    request = ExecutionRequest(tool="pay", arguments={"amount": 5}, request_id="r1")
    with trio.fail_after(5):
        async with App("till").add(till.pay if as_method else till).open() as engine:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(engine.bind(gone=Cause.DISCONNECT).execute, request)
                await till.begun.wait()
                nursery.cancel_scope.cancel()
            result = await engine.execute(request)
    assert (result.data, result.replayed) == ("receipt 7 for 5", True)
