"""What a tool's clean-up may do after a cancel, and for how long."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import pytest
import trio

from carmy_engine import grace
from carmy_engine._execution.grace import GRACE_SECONDS
from tests.engine.kit import bench, code, read, told


async def _sleep():
    await trio.sleep(0.5)


async def _checkpoint():
    await trio.lowlevel.checkpoint()


async def _lock():
    await trio.Lock().acquire()


async def _send():
    await trio.open_memory_channel[int](1)[0].send(1)


async def _event():
    event = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0.2)
    event.set()
    await event.wait()


CLEAN_UPS = [_sleep, _checkpoint, _lock, _send, _event]


@pytest.mark.parametrize("clean_up", CLEAN_UPS)
async def test_clean_up_may_await_anything(clean_up, autojump_clock):
    """After a deadline that found the tool waiting, its finally block may await whatever it needs."""
    done = []

    @read
    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await clean_up()
            done.append(True)

    async with bench(slow) as b:
        assert await b.code("slow", timeout_ms=100) == "TIMEOUT"
    assert done == [True]


@pytest.mark.parametrize("clean_up", CLEAN_UPS)
async def test_clean_up_after_a_cancel_that_found_the_tool_running(clean_up, autojump_clock):
    """A tool that meets the cancel at its next await is cancelled there, and never fails because of the grace."""

    @read
    async def busy() -> None:
        try:
            b.engine.cancel(b.running_id("busy"))
            await trio.lowlevel.checkpoint()
            raise AssertionError("was not told")
        finally:
            await clean_up()

    async with bench(busy) as b:
        assert await b.code("busy") == "CANCELLED"


@pytest.mark.parametrize("clean_up", CLEAN_UPS)
async def test_clean_up_around_a_nursery(clean_up, autojump_clock):
    """A finally block around the tool's own nursery never turns the cancel into a failure."""

    @read
    async def busy() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()
        finally:
            await clean_up()

    async with bench(busy) as b:
        assert await b.code("busy", timeout_ms=100) == "TIMEOUT"


async def test_second_await_around_a_nursery(autojump_clock):
    """After a nursery was cancelled, clean-up outside of it gets its grace at the latest from its second await on."""
    done = []

    @read
    async def busy() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
        finally:
            with trio.CancelScope() as first:
                first.deadline = trio.current_time() + 0.1
                await trio.sleep_forever()
            await trio.sleep(0.1)
            done.append(True)

    async with bench(busy) as b:
        assert await b.code("busy", timeout_ms=100) == "TIMEOUT"
    assert done == [True]


@pytest.mark.parametrize("where", ["body", "exit", "nested"])
async def test_a_nursery_does_not_swallow_the_cancel(where, autojump_clock):
    """A cancelled tool with a nursery never goes on behind it."""
    went_on = []

    @read
    async def busy() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            if where == "body":
                await trio.sleep_forever()
            if where == "nested":
                async with trio.open_nursery() as inner:
                    inner.start_soon(trio.sleep_forever)
        went_on.append(True)
        return "as if nothing had happened"

    async with bench(busy) as b:
        assert await b.code("busy", timeout_ms=100) == "TIMEOUT"
    assert went_on == []


async def test_clean_up_inside_a_nursery_with_grace(autojump_clock):
    """Clean-up in the tool's own tasks may await inside ``grace()``."""
    done = []

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with grace():
                await trio.sleep(0.5)
            done.append(True)

    @read
    async def busy() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    async with bench(busy) as b:
        assert await b.code("busy", timeout_ms=100) == "TIMEOUT"
    assert done == [True]


async def test_clean_up_in_an_async_generator(autojump_clock):
    """A context manager written as a generator gets the same grace."""
    done = []

    @asynccontextmanager
    async def connection():
        try:
            yield
        finally:
            await trio.sleep(0.2)
            await trio.Lock().acquire()
            done.append(True)

    @read
    async def busy() -> None:
        async with connection():
            await trio.sleep_forever()

    async with bench(busy) as b:
        assert await b.code("busy", timeout_ms=100) == "TIMEOUT"
    assert done == [True]


async def test_clean_up_that_exceeds_the_grace_is_cut(autojump_clock):
    """Clean-up that takes longer than the grace is cancelled for good, and the caller gets its answer."""
    done = []

    @read
    async def endless() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await trio.sleep(100)
            done.append(True)

    async with bench(endless) as b:
        start = trio.current_time()
        assert await b.code("endless", timeout_ms=100) == "TIMEOUT"
        assert trio.current_time() - start == pytest.approx(0.1 + GRACE_SECONDS)
    assert done == []


async def test_a_tool_that_refuses_to_stop_is_cancelled_at_every_await(autojump_clock):
    """A tool that swallows its cancel goes on for the grace at most, then every await is cut."""
    cut = []

    @read
    async def stubborn() -> None:
        for _ in range(5):
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                cut.append(trio.current_time())
        await trio.sleep_forever()

    async with bench(stubborn) as b:
        start = trio.current_time()
        assert await b.code("stubborn", timeout_ms=100) == "TIMEOUT"
    assert [time - start for time in cut] == pytest.approx([0.1, *[0.1 + GRACE_SECONDS] * 4])


async def test_a_tool_that_only_makes_checkpoints_is_stopped(autojump_clock):
    """A tool that computes between checkpoints is cancelled at the first one after the cancel."""
    steps = []

    @read
    async def steady() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            steps.append(True)
            if len(steps) == 3:
                b.engine.cancel(b.running_id("steady"))

    async with bench(steady) as b:
        assert await b.code("steady") == "CANCELLED"
    assert len(steps) == 3


async def test_inner_timeouts_do_not_trigger_the_grace(autojump_clock):
    """A timeout that the tool sets itself is its own business: its deadline stays what it was."""

    @read
    async def patient() -> str:
        for _ in range(3):
            with trio.move_on_after(0.1):
                await trio.sleep_forever()
        await trio.sleep(5)
        return "done"

    async with bench(patient) as b:
        assert (await b.call("patient")).data == "done"
        assert await b.code("patient", timeout_ms=2000) == "TIMEOUT"


async def test_cancelled_inside_an_inner_timeout(autojump_clock):
    """A cancel that arrives inside the tool's own timeout is not taken for that timeout."""
    went_on, done = [], []

    @read
    async def busy() -> None:
        with trio.move_on_after(10):
            try:
                await trio.sleep_forever()
            finally:
                await trio.sleep(0.1)
                done.append(True)
        went_on.append(True)

    async with bench(busy) as b:
        result = await b.call("busy", timeout_ms=100)
    assert told(result)["phase"] == "running"
    assert (went_on, done) == ([], [True])


async def test_the_callers_own_cancel_gets_the_grace_too(autojump_clock):
    """Clean-up may await whatever the source of the cancel: the caller's scope, an id, the deadline."""
    done = []

    @read
    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await trio.sleep(0.5)
            done.append(True)

    async with bench(slow) as b:
        with trio.move_on_after(0.1) as scope:
            await b.call("slow")
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.call, "slow")
            await trio.testing.wait_all_tasks_blocked()
            assert b.engine.cancel(b.running_id("slow"))
    assert done == [True, True]


async def test_a_failing_clean_up_ends_as_the_cancel(autojump_clock, caplog):
    """An exception that a tool raises while it is cut off changes neither status nor cause; the log has it."""

    @read
    async def broken() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in clean-up")

    async with bench(broken) as b:
        result = await b.call("broken", timeout_ms=100)
        assert (result.status, code(result)) == ("timed_out", "TIMEOUT")
        assert told(result)["cause"] == "deadline"
    assert "in clean-up" in caplog.text


@pytest.mark.parametrize("where", ["alone", "body", "exit"])
async def test_a_tool_that_swallows_every_cancel_is_ejected(where, autojump_clock):
    """A loop that swallows its cancel again and again is ended after the grace, also inside a nursery, and answered."""
    cleaned = []

    async def loop() -> None:
        try:
            while True:
                with suppress(trio.Cancelled):
                    await trio.sleep(0.3)
        finally:
            cleaned.append(True)

    @read
    async def stubborn() -> None:
        if where == "alone":
            await loop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            if where == "body":
                await loop()
        await loop()

    async with bench(stubborn) as b:
        start = trio.current_time()
        result = await b.call("stubborn", timeout_ms=100)
        assert told(result)["phase"] == "running"
        assert trio.current_time() - start <= 0.1 + GRACE_SECONDS + 0.001
        assert b.running == 0
        with trio.move_on_after(0.1) as scope:
            await b.call("stubborn")
        assert scope.cancelled_caught
        assert b.sink.records[-1].cause == "caller"
        assert await b.code("echo", {"text": "a"}) == "ok"
    assert cleaned == ([] if where == "exit" else [True, True])


async def test_many_cancels_in_clean_up_are_no_ejection(autojump_clock):
    """Clean-up that meets its cancel at a few dozen awaits is not taken for a loop."""
    met = []

    @read
    async def thorough() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await_over = trio.current_time() + GRACE_SECONDS
            await trio.sleep(GRACE_SECONDS / 2)
            for _ in range(50):
                try:
                    await trio.sleep_until(await_over + 1)
                except trio.Cancelled:
                    met.append(True)

    async with bench(thorough) as b:
        assert await b.code("thorough", timeout_ms=100) == "TIMEOUT"
    assert len(met) == 50
