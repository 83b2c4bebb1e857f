"""Long arguments on their way through the engine: checked in a thread, while everything else goes on."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest
import trio
import trio.testing
from pydantic import AfterValidator

from carmy_engine import AgentError, ExecutionRequest, tool
from carmy_engine._engine.engine import open_engine
from carmy_engine._engine.long_checks import MAX_AT_ONCE, MAX_WAITING
from carmy_engine._tools.declaration import compile_tool

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
    """Their arguments would pile up in memory: the next one is told to come back later."""
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
