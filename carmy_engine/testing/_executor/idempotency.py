"""What becomes of a request_id."""

from __future__ import annotations

import trio

from ..._model.result import ExecutionResult
from .._probe import TIMEOUT_MS, Probe
from .suite import suite

REPEATABLE = ("none", "read", "idempotent_write", "idempotent_external_write")
"""Actors whose attempts may simply run again."""

ONCE = ("write", "external_write")
"""Actors whose effects must not be doubled."""


def same(first: ExecutionResult, second: ExecutionResult) -> None:
    """The second is a replay of the first."""
    assert second.replayed
    assert not first.replayed
    assert second.execution_id == first.execution_id
    assert second.status == first.status
    assert second.data_json == first.data_json
    assert second.error == first.error
    assert second.cacheable == first.cacheable
    assert second.next_actions == first.next_actions


@suite.check("E-301")
async def replay(probe: Probe) -> None:
    """The same request again is replayed: same bytes, same execution id, and the tool does not run."""
    for tool in (*REPEATABLE, *ONCE, "thread_write", "serial_write"):
        tag, request_id = probe.name(), probe.name()
        first = await probe.call(tool, {"tag": tag}, request_id=request_id)
        assert first.status == "completed"
        for _ in range(2):
            same(first, await probe.call(tool, {"tag": tag}, request_id=request_id))
        assert await probe.effects(tag) == 1


@suite.check("E-302")
async def key_order(probe: Probe) -> None:
    """The order of the arguments' keys makes no other request."""
    tag, request_id = probe.name(), probe.name()
    first = await probe.call("write", {"tag": tag, "then": "return"}, request_id=request_id)
    same(first, await probe.call("write", {"then": "return", "tag": tag}, request_id=request_id))


@suite.check("E-303")
async def conflict(probe: Probe) -> None:
    """The request_id of another request is ``IDEMPOTENCY_CONFLICT``, which does not show the stored answer and changes nothing."""
    request_id = probe.name()
    first = await probe.call("echo", {"text": "private"}, request_id=request_id)
    for tool, arguments in (
        ("echo", {"text": "b"}),
        ("echo", {"text": "private", "times": 2}),
        ("sleep", {"seconds": 0}),
    ):
        result = await probe.refused("IDEMPOTENCY_CONFLICT", tool, arguments, request_id=request_id)
        assert result.error is not None
        assert result.error.category == "conflict"
        assert "private" not in str(result.error)
        assert result.execution_id != first.execution_id
    same(first, await probe.call("echo", {"text": "private"}, request_id=request_id))


@suite.check("E-304")
async def running(probe: Probe) -> None:
    """While the first attempt runs, a second one is ``EXECUTION_UNCERTAIN`` with state, execution id and start time, and later replays."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    arguments = {"tag": tag, "then": "wait", "gate": gate}
    async with trio.open_nursery() as nursery:
        first = probe.start(nursery, "write", arguments, request_id=request_id)
        await probe.arrived(gate)
        second = await probe.refused("EXECUTION_UNCERTAIN", "write", arguments, request_id=request_id)
        await probe.open(gate)
        answer = await first.wait()
    assert second.error is not None
    assert second.error.category == "conflict"
    assert second.error.details is not None
    assert second.error.details["state"] == "running"
    assert second.error.details["execution_id"] == answer.execution_id
    assert second.error.details["started_at"] > 0
    same(answer, await probe.call("write", arguments, request_id=request_id))
    assert await probe.effects(tag) == 1


@suite.check("E-305")
async def at_once(probe: Probe) -> None:
    """Of many equal requests at the same time, exactly one runs."""
    tag, request_id = probe.name(), probe.name()
    async with trio.open_nursery() as nursery:
        calls = [probe.start(nursery, "write", {"tag": tag}, request_id=request_id) for _ in range(10)]
    results = [await call.wait() for call in calls]
    assert await probe.effects(tag) == 1
    assert sum(result.error is None and not result.replayed for result in results) == 1
    assert {result.error.code for result in results if result.error is not None} <= {"EXECUTION_UNCERTAIN"}


@suite.check("E-306")
async def no_id(probe: Probe) -> None:
    """Without a request_id every call runs, and nothing is replayed."""
    tag = probe.name()
    results = [await probe.call("write", {"tag": tag}) for _ in range(3)]
    assert await probe.effects(tag) == 3
    assert not any(result.replayed for result in results)


@suite.check("E-307")
async def retryable_frees(probe: Probe) -> None:
    """An error that a tool marks as retryable frees the request_id: the same call may run again."""
    for tool in (*REPEATABLE, *ONCE, "thread_write"):
        tag, request_id = probe.name(), probe.name()
        for attempt in (1, 2):
            await probe.refused("TRY_LATER", tool, {"tag": tag, "then": "retryable"}, request_id=request_id)
            assert await probe.effects(tag) == attempt


@suite.check("E-308")
async def errors_stay(probe: Probe) -> None:
    """Any other error that a tool declares is recorded and replayed."""
    for tool in (*REPEATABLE, *ONCE, "thread_write"):
        tag, request_id = probe.name(), probe.name()
        first = await probe.refused("OUT_OF_STOCK", tool, {"tag": tag, "then": "error"}, request_id=request_id)
        same(first, await probe.call(tool, {"tag": tag, "then": "error"}, request_id=request_id))
        assert await probe.effects(tag) == 1


@suite.check("E-309")
async def crashes_stay(probe: Probe) -> None:
    """A crash or a bad output of a tool whose effects must not be doubled is recorded and replayed."""
    for then, code in (
        ("crash", "TOOL_PANIC"),
        ("invalid_output", "INVALID_OUTPUT"),
        ("large_output", "OUTPUT_TOO_LARGE"),
    ):
        for tool in (*ONCE, "thread_write"):
            tag, request_id = probe.name(), probe.name()
            first = await probe.refused(code, tool, {"tag": tag, "then": then}, request_id=request_id)
            same(first, await probe.call(tool, {"tag": tag, "then": then}, request_id=request_id))
            assert await probe.effects(tag) == 1


@suite.check("E-310")
async def crashes_free(probe: Probe) -> None:
    """A crash of a tool that may be repeated frees the request_id."""
    for tool in REPEATABLE:
        tag, request_id = probe.name(), probe.name()
        for attempt in (1, 2):
            await probe.refused("TOOL_PANIC", tool, {"tag": tag, "then": "crash"}, request_id=request_id)
            assert await probe.effects(tag) == attempt


@suite.check("E-311")
async def timeouts_stay(probe: Probe) -> None:
    """A write that hit its deadline is recorded and replayed, saying that its effects may exist."""
    for tool in ONCE:
        tag, gate, request_id = probe.name(), probe.gate(), probe.name()
        arguments = {"tag": tag, "then": "wait", "gate": gate}
        first = await probe.refused("TIMEOUT", tool, arguments, request_id=request_id, timeout_ms=TIMEOUT_MS)
        assert first.error is not None
        assert first.error.details is not None
        assert first.error.details["phase"] == "running"
        same(first, await probe.call(tool, arguments, request_id=request_id))
        assert await probe.effects(tag) == 1


@suite.check("E-312")
async def timeouts_free(probe: Probe) -> None:
    """A tool that may be repeated and hit its deadline frees the request_id."""
    for tool in REPEATABLE:
        tag, gate, request_id = probe.name(), probe.gate(), probe.name()
        arguments = {"tag": tag, "then": "wait", "gate": gate}
        await probe.refused("TIMEOUT", tool, arguments, request_id=request_id, timeout_ms=TIMEOUT_MS)
        await probe.open(gate)
        assert (await probe.call(tool, arguments, request_id=request_id)).status == "completed"
        assert await probe.effects(tag) == 2


@suite.check("E-313")
async def never_started(probe: Probe) -> None:
    """A call that hit its deadline while it waited for its turn leaves the request_id free, for writes as well."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    async with trio.open_nursery() as nursery:
        holder = probe.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        late = await probe.refused(
            "TIMEOUT", "serial_write", {"tag": tag}, request_id=request_id, timeout_ms=TIMEOUT_MS
        )
        assert late.error is not None
        assert late.error.retryable
        await probe.open(gate)
        await holder.wait()
    assert await probe.effects(tag) == 0
    again = await probe.call("serial_write", {"tag": tag}, request_id=request_id)
    assert again.status == "completed"
    assert not again.replayed


@suite.check("E-314")
async def refusals_free(probe: Probe) -> None:
    """A call that is refused before it runs leaves the request_id free."""
    tag, request_id = probe.name(), probe.name()
    await probe.refused("TOOL_NOT_FOUND", "nobody", request_id=request_id)
    await probe.refused("CONFIRMATION_REQUIRED", "destructive", {"tag": tag}, request_id=request_id)
    await probe.refused("INVALID_ARGUMENTS", "write", {"tag": 1}, request_id=request_id)
    await probe.refused("INVALID_REQUEST", "write", {"tag": tag}, request_id=request_id, timeout_ms=-1)
    result = await probe.call("write", {"tag": tag}, request_id=request_id)
    assert result.status == "completed"
    assert not result.replayed


@suite.check("E-315")
async def gone_interrupts(probe: Probe) -> None:
    """A write whose caller went away is interrupted: a retry is ``EXECUTION_UNCERTAIN`` with the cause, and does not run."""
    for tool in ONCE:
        tag, gate, request_id = probe.name(), probe.gate(), probe.name()
        arguments = {"tag": tag, "then": "wait", "gate": gate}
        async with trio.open_nursery() as nursery:
            first = probe.start(nursery, tool, arguments, request_id=request_id)
            await probe.arrived(gate)
            await first.leave()
        await probe.left(gate)
        retry = await probe.until_settled(tool, arguments, request_id)
        assert retry.error is not None
        assert retry.error.code == "EXECUTION_UNCERTAIN"
        assert retry.error.details is not None
        assert retry.error.details["state"] == "interrupted"
        assert retry.error.details["cause"] in ("caller", "disconnect")
        assert await probe.effects(tag) == 1


@suite.check("E-316")
async def gone_frees(probe: Probe) -> None:
    """A tool that may be repeated and whose caller went away frees the request_id."""
    for tool in REPEATABLE:
        tag, gate, request_id = probe.name(), probe.gate(), probe.name()
        arguments = {"tag": tag, "then": "wait", "gate": gate}
        async with trio.open_nursery() as nursery:
            first = probe.start(nursery, tool, arguments, request_id=request_id)
            await probe.arrived(gate)
            await first.leave()
        await probe.left(gate)
        await probe.open(gate)
        retry = await probe.until_settled(tool, arguments, request_id)
        assert retry.status == "completed"
        assert not retry.replayed
        assert await probe.effects(tag) == 2


@suite.check("E-317")
async def abandoned(probe: Probe) -> None:
    """A thread that outlives its deadline counts as running until it ends; then the timeout is replayed, and its late value dropped."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    arguments = {"tag": tag, "then": "wait", "gate": gate}
    first = await probe.refused("TIMEOUT", "thread_write", arguments, request_id=request_id, timeout_ms=TIMEOUT_MS)
    retry = await probe.refused("EXECUTION_UNCERTAIN", "thread_write", arguments, request_id=request_id)
    assert retry.error is not None
    assert retry.error.details is not None
    assert retry.error.details["state"] == "running"
    await probe.open(gate)
    await probe.left(gate)
    same(first, await probe.until_settled("thread_write", arguments, request_id))
    assert await probe.effects(tag) == 1
