"""What every ending leaves under the request_id, and what a cancelled execution is called."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from carmy_engine import AgentError, Cause, Effect, Settings, ToolSpec
from carmy_engine._execution.cancel_causes import CODE_OF_CAUSE, cancelled_error
from carmy_engine._idempotency.decisions import Settle, decide_settle
from carmy_engine._model.result import status_of
from tests.engine.kit import Bench, bench, code, told

SAFE = [("none", False), ("read", False)]
REPEATABLE = [*SAFE, ("write", True), ("external_write", True), ("destructive", True)]
ONCE = [("write", False), ("external_write", False), ("destructive", False)]


def spec(effect: str, idempotent: bool = False) -> ToolSpec:
    return ToolSpec(
        name="t", description="", input_schema={}, output_schema={}, effect=Effect(effect), idempotent=idempotent
    )


def error(*, retryable: bool = False):
    return AgentError("E", "e", "internal", retryable=retryable).info


def ending(kind: tuple[str, bool], **fields) -> Settle:
    return decide_settle(spec(*kind), **{"started": True, "error": error(), "cause": None, **fields})


@pytest.mark.parametrize("kind", [*REPEATABLE, *ONCE])
def test_table_success(kind):
    """A success is recorded, whatever the tool declares."""
    assert ending(kind, error=None) is Settle.COMPLETE


@pytest.mark.parametrize("kind", [*REPEATABLE, *ONCE])
@pytest.mark.parametrize("cause", [None, *Cause])
@pytest.mark.parametrize("gone", [False, True])
def test_table_never_started(kind, cause, gone):
    """What ended before the tool began leaves nothing, whatever ended it."""
    assert ending(kind, started=False, cause=cause, gone=gone) is Settle.RELEASE


@pytest.mark.parametrize("kind", [*REPEATABLE, *ONCE])
def test_table_declared_errors(kind):
    """A retryable error of the tool leaves nothing, any other one is recorded."""
    assert ending(kind, error=error(retryable=True)) is Settle.RELEASE
    assert ending(kind) is Settle.COMPLETE


@pytest.mark.parametrize("kind", REPEATABLE)
def test_table_repeatable(kind):
    """A crash, a deadline or any cancel of a repeatable tool leaves nothing."""
    assert ending(kind, crashed=True) is Settle.RELEASE
    for cause in Cause:
        for gone in (False, True):
            assert ending(kind, cause=cause, gone=gone) is Settle.RELEASE


@pytest.mark.parametrize("kind", ONCE)
def test_table_once(kind):
    """A write that crashed, timed out or was cancelled by id is recorded; one that no caller has seen the answer of is in doubt."""
    assert ending(kind, crashed=True) is Settle.COMPLETE
    assert ending(kind, cause=Cause.DEADLINE) is Settle.COMPLETE
    assert ending(kind, cause=Cause.CALLER) is Settle.COMPLETE
    assert ending(kind, cause=Cause.OPERATOR) is Settle.COMPLETE
    assert ending(kind, cause=Cause.DISCONNECT) is Settle.INTERRUPT
    assert ending(kind, cause=Cause.SHUTDOWN) is Settle.INTERRUPT
    for cause in Cause:
        assert ending(kind, cause=cause, gone=True) is Settle.INTERRUPT


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("kind", [*REPEATABLE, *ONCE])
def test_table_of_causes(cause, started, kind):
    """Every cause has one code and status, the phase in its details, and is retryable only where that can do no harm."""
    told = cancelled_error(cause, spec(*kind), started=started, timeout=30).info
    assert told.code == CODE_OF_CAUSE[cause]
    assert told.details == {"phase": "running" if started else "waiting", "cause": cause.value}
    expected = {"TIMEOUT": "timed_out", "CANCELLED": "cancelled", "SHUTTING_DOWN": "failed"}
    assert status_of(told) == expected[told.code]
    assert ("never started" in told.message) is not started
    assert ("may exist" in told.message) is (started and kind not in SAFE)
    assert (told.suggested_action is not None) is (started and kind in ONCE)
    if told.retryable:
        assert not started or kind in REPEATABLE
        assert told.retry_after is not None
    if cause in (Cause.CALLER, Cause.OPERATOR, Cause.DISCONNECT):
        assert not told.retryable


@pytest.mark.parametrize(
    ("timeout", "said"), [(30, "30 s"), (0.29998, "0.3 s"), (1234.5, "1234.5 s"), (0.0001, "0.0001 s")]
)
def test_limits_in_words(timeout, said):
    """A limit that came over a wire, a little less than it was, is written in round numbers."""
    told = cancelled_error(Cause.DEADLINE, spec(*REPEATABLE[0]), started=True, timeout=timeout).info
    assert f"the deadline of {said} passed" in told.message


async def stop(b: Bench, how: str, name: str, gate: str, request_id: str, clock) -> Any:
    """Run a tool up to its gate, then end it in some way; the result, None if nobody got one."""
    on = b.on(b.engine.bind(gone=Cause.DISCONNECT)) if how == "disconnect" else b
    async with trio.open_nursery() as nursery:
        call = on.start(nursery, name, {"tag": "t", "then": "wait", "gate": gate}, request_id=request_id)
        await b.arrived(gate)
        if how == "deadline":
            clock.jump(31)
        elif how in ("leave", "disconnect"):
            await call.leave()
        elif how == "cancel":
            assert b.engine.cancel(b.running_id(name))
        elif how == "operator":
            assert b.engine.cancel(b.running_id(name), Cause.OPERATOR)
        else:
            await b.engine.shut_down(0)
        await call.done.wait()
    return call.result


HOW = {
    # how it is stopped: code, cause, what a write leaves
    "deadline": ("TIMEOUT", "deadline", "completed"),
    "cancel": ("CANCELLED", "caller", "completed"),
    "operator": ("CANCELLED", "operator", "completed"),
    "leave": (None, "caller", "interrupted"),
    "disconnect": (None, "disconnect", "interrupted"),
    "shutdown": ("SHUTTING_DOWN", "shutdown", "interrupted"),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["write", "read", "idempotent_write", "external_write"])
async def test_stopped_while_running(how, name, mock_clock):
    """A running tool that is stopped leaves what the table defines, answers by its cause, and has one record."""
    expected, cause, left = HOW[how]
    async with bench() as b:
        gate = b.gate()
        result = await stop(b, how, name, gate, "r", mock_clock)
        assert await b.state("r") == (left if "write" in name and "idempotent" not in name else "free")
        (record,) = b.sink.of(name)
        assert record.cause == cause
        assert b.running == 0
        if expected is None:
            assert result is None
        else:
            assert code(result) == expected
            assert told(result)["phase"] == "running"
            assert record.status == result.status
        entry = await b.entry("r")
        if entry is not None and left == "interrupted":
            assert entry.cause == cause
            assert entry.finished_at is not None


@pytest.mark.parametrize("how", HOW)
async def test_stopped_while_waiting_for_a_turn(how, mock_clock):
    """A call that is stopped while it waits for its turn leaves the id free, and never runs."""
    expected, cause, _ = HOW[how]
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        holder = b.start(nursery, "serial_write", {"then": "wait_then_retryable", "gate": gate}, timeout_ms=29_000)
        await b.arrived(gate)
        on = b.on(b.engine.bind(gone=Cause.DISCONNECT)) if how == "disconnect" else b
        call = await on.start_waiting(nursery, "serial_write", {"tag": "t"}, request_id="r", timeout_ms=1000)
        (waiting,) = [e.id for e in b.engine._pipeline.inflight.running() if e.request_id == "r"]
        if how == "deadline":
            mock_clock.jump(2)
        elif how in ("leave", "disconnect"):
            await call.leave()
        elif how == "shutdown":
            nursery.start_soon(b.engine.shut_down, 0)
        else:
            assert b.engine.cancel(waiting, Cause.OPERATOR if how == "operator" else Cause.CALLER)
        await call.done.wait()
        assert await b.state("r") == "free"
        (record,) = [r for r in b.sink if r.request_id == "r"]
        assert record.cause == cause
        if expected is not None:
            assert code(call.result) == expected
            assert told(call.result)["phase"] == "waiting"
        await b.open(gate)
        await holder.done.wait()
        assert await b.effects("t") == 0


@pytest.mark.parametrize(
    ("then", "expected", "left"),
    [
        ("return", "ok", "completed"),
        ("error", "OUT_OF_STOCK", "completed"),
        ("retryable", "TRY_LATER", "free"),
        ("crash", "TOOL_PANIC", "completed"),
        ("exit", "TOOL_PANIC", "completed"),
        ("own_base_exception", "TOOL_PANIC", "completed"),
        ("invalid_output", "INVALID_OUTPUT", "completed"),
        ("large_output", "OUTPUT_TOO_LARGE", "completed"),
    ],
)
@pytest.mark.parametrize("name", ["write", "thread_write", "serial_write"])
async def test_ended_by_itself(name, then, expected, left):
    """A write that ended by itself is recorded, unless its error is retryable."""
    async with bench() as b:
        assert await b.code(name, {"then": then}, request_id="r") == expected
        assert await b.state("r") == left
        entry = await b.entry("r")
        if entry is not None and entry.outcome is not None:
            assert (entry.outcome.error is None) is (expected == "ok")


@pytest.mark.parametrize("name", ["none", "read", "idempotent_write"])
async def test_a_bad_output_is_no_crash(name):
    """A repeatable tool's crash frees the id; its bad output is recorded: it would be as bad the next time."""
    async with bench() as b:
        assert await b.code(name, {"then": "crash"}, request_id="a") == "TOOL_PANIC"
        assert await b.state("a") == "free"
        assert await b.code(name, {"then": "invalid_output"}, request_id="b") == "INVALID_OUTPUT"
        assert await b.state("b") == "completed"


async def test_the_result_is_recorded_before_it_is_returned():
    """When a caller has its answer, a retry already replays."""
    async with bench() as b:
        await b.call("write", {"tag": "t"}, request_id="r")
        entry = await b.entry("r")
        assert entry is not None
        assert entry.outcome is not None
        assert entry.outcome.data_json == b'"done"'


async def test_identities_of_callers():
    """The same request_id of another principal, session or anonymous transport is another request."""
    async with bench() as b:
        views = [
            b.engine,
            b.engine.bind(transport="http"),
            b.engine.bind(session="s1"),
            b.engine.bind(session="s2"),
            b.engine.bind(principal="ana"),
            b.engine.bind(principal="bo"),
            b.engine.bind(principal="ana", session="s1"),
        ]
        for count, view in enumerate(views, 1):
            assert not (await b.on(view).call("write", {"tag": "t"}, request_id="r")).replayed
            assert await b.effects("t") == count
        for view in views:
            assert (await b.on(view).call("write", {"tag": "t"}, request_id="r")).replayed


async def test_known_callers_keep_their_ids_across_transports():
    """A principal or a session may retry over another transport."""
    async with bench() as b:
        for who in ({"principal": "ana"}, {"session": "s"}):
            first = await b.of(transport="http", **who).call("write", request_id="r")
            second = await b.of(transport="stdio", **who).call("write", request_id="r")
            assert second.replayed
            assert second.execution_id == first.execution_id


async def test_metadata_is_part_of_the_request():
    """Other metadata makes another request; no metadata and empty metadata are the same."""
    async with bench() as b:
        await b.call("write", request_id="r", metadata={"a": 1, "b": [2]})
        assert (await b.call("write", request_id="r", metadata={"b": [2], "a": 1})).replayed
        assert await b.code("write", request_id="r", metadata={"a": 2, "b": [2]}) == "IDEMPOTENCY_CONFLICT"
        assert await b.code("write", request_id="r") == "IDEMPOTENCY_CONFLICT"
        await b.call("write", request_id="s")
        assert (await b.call("write", request_id="s", metadata={})).replayed


async def test_policies_run_on_replays():
    """An answer is not replayed to a caller whose permission was taken away."""
    async with bench() as b:
        allowed = b.on(b.engine.bind(principal="ana", permissions={"confirm:destructive"}))
        revoked = b.on(b.engine.bind(principal="ana"))
        assert (await allowed.call("destructive", request_id="r")).data == "done"
        assert await revoked.code("destructive", request_id="r") == "CONFIRMATION_REQUIRED"
        assert (await allowed.call("destructive", request_id="r")).replayed


@pytest.mark.parametrize("how", ["deadline", "cancel", "leave"])
async def test_a_value_wins_over_a_cancel(how, mock_clock):
    """A value that the tool returns in spite of a cancel is the outcome, and is recorded as such."""
    async with bench(settings=Settings(timeout_secs=30)) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        call = b.start(nursery, "write", {"then": "wait_stubbornly", "gate": gate}, request_id="r")
        await b.arrived(gate)
        if how == "deadline":
            mock_clock.jump(31)
        elif how == "cancel":
            b.engine.cancel(b.running_id("write"))
        else:
            call.scope.cancel()
        await call.done.wait()
        if how != "leave":
            assert call.result is not None
            assert call.result.data == "late"
        (record,) = b.sink.of("write")
        assert record.status == "completed"
        assert await b.state("r") == "completed"
