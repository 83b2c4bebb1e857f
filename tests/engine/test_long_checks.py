"""Long arguments and outputs: checked in a thread, while the event loop serves other calls."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import msgspec
import pytest
import trio
import trio.testing
from pydantic import AfterValidator

from carmy_engine import (
    AgentContext,
    AgentError,
    Completed,
    Effect,
    Engine,
    ExecutionRequest,
    ToolSpec,
    open_engine,
    tool,
)
from carmy_engine._engine.long_checks import MAX_AT_ONCE, MAX_WAITING
from carmy_engine.testing import compile_tool

LOOP = threading.get_ident()


class Gate:
    """A validator of a tool's author that waits in its thread until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.left = threading.Semaphore(0)
        self.threads: set[int] = set()

    def __call__(self, value: list[int]) -> list[int]:
        self.threads.add(threading.get_ident())
        self.entered.release()
        assert self.open.wait(20)
        self.left.release()
        return value

    async def is_entered(self) -> None:
        assert await trio.to_thread.run_sync(self.entered.acquire, True, 20)


def adding(check: Any) -> Any:
    @tool(effect="none", idempotent=True, parallel_safe=True, register=False)
    async def add(numbers: Annotated[list[int], AfterValidator(check)]) -> int:
        """Add numbers."""
        return sum(numbers)

    return compile_tool(add, {})


def request(count: int = 5000) -> ExecutionRequest:
    return ExecutionRequest(tool="add", arguments={"numbers": [1] * count})


@contextmanager
def opened(gate: Gate) -> Iterator[None]:
    """Open the gate at the end, whatever happens: the threads behind it are not daemons."""
    try:
        yield
    finally:
        gate.open.set()


async def test_other_calls_run_while_long_arguments_are_checked() -> None:
    """The check has a thread; the event loop goes on."""
    gate = Gate()
    async with open_engine([adding(gate)]) as engine, trio.open_nursery() as nursery:
        with opened(gate), trio.fail_after(20):
            results: list[Any] = []

            async def call() -> None:
                results.append(await engine.execute(request()))

            nursery.start_soon(call)
            await gate.is_entered()
            assert not results
            assert not gc.isenabled()
            refused = await engine.execute(ExecutionRequest(tool="add", arguments={"numbers": "a"}))
            assert refused.error is not None
            gate.open.set()
            while not results:
                await trio.testing.wait_all_tasks_blocked(0.01)
    assert results[0].unwrap() == 5000
    assert LOOP not in gate.threads
    assert gc.isenabled()


async def test_a_cancelled_check_ends_with_its_call() -> None:
    """The caller is answered at once; the thread is free at its next step, and nothing was reserved."""
    gate = Gate()
    async with open_engine([adding(gate)]) as engine:
        with opened(gate), trio.fail_after(20):
            for _ in range(MAX_AT_ONCE + 1):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(engine.execute, request())
                        await gate.is_entered()
                        scope.cancel()
                assert scope.cancelled_caught
                gate.open.set()
                assert await trio.to_thread.run_sync(gate.left.acquire, True, 20)
                gate.open.clear()
            assert engine.statistics().running == 0
            assert gc.isenabled()


async def test_too_many_long_checks_are_refused() -> None:
    """Their arguments would pile up in memory: the next one is refused as retryable."""
    gate = Gate()
    async with open_engine([adding(gate)]) as engine, trio.open_nursery() as nursery:
        with opened(gate), trio.fail_after(60):
            for _ in range(MAX_AT_ONCE + MAX_WAITING):
                nursery.start_soon(engine.execute, request())
            for _ in range(MAX_AT_ONCE):
                await gate.is_entered()
            await trio.testing.wait_all_tasks_blocked(0.05)
            result = await engine.execute(request())
            assert result.error is not None
            assert result.error.code == "OVERLOADED"
            assert result.error.retryable
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("raised", [ZeroDivisionError, SystemExit, GeneratorExit])
async def test_what_a_validator_raises_in_the_thread_fails_its_call_only(raised: type[BaseException]) -> None:
    """As on the event loop: the call fails, and the engine goes on."""

    def check(value: list[int]) -> list[int]:
        raise raised

    async with open_engine([adding(check)]) as engine:
        result = await engine.execute(request())
        assert result.error is not None
        assert result.error.code == "TOOL_PANIC"
        assert isinstance(result.exception, raised)


async def test_refusals_of_long_arguments_hold_no_values() -> None:
    """Neither the arguments nor pydantic's error stay alive with the answer."""
    async with open_engine([adding(list)]) as engine:
        result = await engine.execute(ExecutionRequest(tool="add", arguments={"numbers": ["a"] * 5000}))
        assert isinstance(result.exception, AgentError)
        assert result.exception.__cause__ is None
        assert result.exception.__context__ is None


class Echo:
    """A tool made by hand that returns as many numbers as it is asked for."""

    def __init__(self, *, effect: Effect = Effect.WRITE, timeout: float | None = None, blocks: bool = False) -> None:
        self.spec = ToolSpec(
            name="echo",
            description="Count.",
            input_schema={"type": "object"},
            output_schema={"type": "array", "items": {"type": "integer"}},
            effect=effect,
            parallel_safe=True,
            timeout=timeout,
        )
        self.calls = 0
        self._blocks = blocks

    async def execute(self, ctx: AgentContext, input: dict[str, Any]) -> list[int]:  # noqa: A002
        self.calls += 1
        while self._blocks and ctx.remaining() > 0:
            time.sleep(0.001)  # noqa: ASYNC251 - the deadline passes while the tool holds the event loop
        return [1] * input["count"]


def echo(count: int = 5000, request_id: str | None = None) -> ExecutionRequest:
    return ExecutionRequest(tool="echo", arguments={"count": count}, request_id=request_id)


@asynccontextmanager
async def held_outputs(engine: Engine) -> AsyncIterator[None]:
    """All checks of outputs wait, for a block."""
    limiter = engine._pipeline.long_checks._outputs
    for holder in range(MAX_AT_ONCE):
        limiter.acquire_on_behalf_of_nowait(holder)
    try:
        yield
    finally:
        for holder in range(MAX_AT_ONCE):
            limiter.release_on_behalf_of(holder)


async def test_other_calls_run_while_a_long_output_is_checked() -> None:
    """The output of one call is checked in a thread, and other calls are answered meanwhile."""
    async with open_engine([compile_tool(Echo(), {})]) as engine, trio.open_nursery() as nursery:
        results: list[Any] = []

        async def call() -> None:
            results.append(await engine.execute(echo()))

        with trio.fail_after(20):
            async with held_outputs(engine):
                nursery.start_soon(call)
                await trio.testing.wait_all_tasks_blocked()
                assert (await engine.execute(echo(count=1))).unwrap() == [1]
                assert not results
            while not results:
                await trio.testing.wait_all_tasks_blocked(0.01)
    assert results[0].unwrap() == [1] * 5000


async def test_a_long_output_that_does_not_fit_is_invalid_output() -> None:
    """The refusal states that the tool ran; neither the value nor the check stays alive with it."""
    made = Echo()
    made.spec = msgspec.structs.replace(made.spec, output_schema={"type": "array", "items": {"type": "string"}})
    async with open_engine([compile_tool(made, {})]) as engine:
        result = await engine.execute(echo())
        assert result.error is not None
        assert result.error.code == "INVALID_OUTPUT"
        assert result.error.message.startswith("the tool ran")
        assert result.exception is not None
        assert result.exception.__context__ is None


@pytest.mark.parametrize(("effect", "runs"), [(Effect.WRITE, 1), (Effect.READ, 2)])
async def test_a_check_past_the_deadline_is_a_timeout_of_a_tool_that_ran(
    autojump_clock: trio.testing.MockClock, effect: Effect, runs: int
) -> None:
    """Effects may exist: a write is recorded and replayed; the id of a read is free again."""
    made = Echo(effect=effect, timeout=5)
    async with open_engine([compile_tool(made, {})]) as engine, held_outputs(engine):
        first = await engine.execute(echo(request_id="a"))
        assert first.error is not None
        assert first.error.code == "TIMEOUT"
        assert first.error.details is not None
        assert first.error.details["phase"] == "running"
        again = await engine.execute(echo(request_id="a"))
        assert again.error is not None
        assert again.error.code == "TIMEOUT"
        assert made.calls == runs
        assert again.replayed == (runs == 1)


async def test_an_output_returned_after_the_deadline_is_checked_and_counts() -> None:
    """The result is the truth about what happened, also where it takes a thread to check it."""
    async with open_engine([compile_tool(Echo(timeout=0.01, blocks=True), {})]) as engine:
        assert (await engine.execute(echo())).unwrap() == [1] * 5000


async def test_a_write_whose_caller_leaves_during_the_check_is_in_doubt() -> None:
    """No caller has seen an answer: the next attempt is answered with the doubt, and does not run."""
    made = Echo()
    async with open_engine([compile_tool(made, {})]) as engine:
        with trio.fail_after(20):
            async with held_outputs(engine):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(engine.execute, echo(request_id="a"))
                        await trio.testing.wait_all_tasks_blocked()
                        scope.cancel()
                assert scope.cancelled_caught
            again = await engine.execute(echo(request_id="a"))
        assert again.error is not None
        assert again.error.code == "EXECUTION_UNCERTAIN"
        assert again.error.details is not None
        assert again.error.details["state"] == "interrupted"
        assert made.calls == 1


async def test_a_long_value_of_reconcile_is_checked_and_replayed() -> None:
    """A reconcile function may complete an attempt with an output that takes long to check."""

    class Settled(Echo):
        async def reconcile(self, ctx: AgentContext, arguments: Any) -> Completed:
            return Completed([1] * arguments["count"])

    made = Settled()
    async with open_engine([compile_tool(made, {})]) as engine:
        with trio.fail_after(20):
            async with held_outputs(engine):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(engine.execute, echo(request_id="a"))
                        await trio.testing.wait_all_tasks_blocked()
                        scope.cancel()
            again = await engine.execute(echo(request_id="a"))
        assert again.replayed
        assert again.unwrap() == [1] * 5000
        assert made.calls == 1
