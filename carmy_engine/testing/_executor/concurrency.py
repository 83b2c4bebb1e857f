"""Calls at the same time: side by side, or taking turns."""

from __future__ import annotations

import trio

from .._probe import TIMEOUT_MS, Probe
from ..tools import MAX_WAITING
from .suite import suite


@suite.check("E-701")
async def side_by_side(probe: Probe) -> None:
    """Calls to a parallel-safe tool run at the same time, in coroutines and in threads."""
    for tool in ("read", "thread_read"):
        gate = probe.gate()
        async with trio.open_nursery() as nursery:
            calls = [probe.start(nursery, tool, {"then": "wait", "gate": gate}) for _ in range(10)]
            await probe.arrived(gate, calls=10)
            await probe.open(gate)
        for call in calls:
            assert (await call.wait()).status == "completed"


@suite.check("E-702")
async def own_answers(probe: Probe) -> None:
    """Every caller gets the answer to its own call."""
    async with trio.open_nursery() as nursery:
        calls = [probe.start(nursery, "echo", {"text": f"<{number}>"}) for number in range(30)]
    assert [(await call.wait()).data for call in calls] == [f"<{number}>" for number in range(30)]


@suite.check("E-703")
async def turns(probe: Probe) -> None:
    """Calls to a tool that is not parallel-safe never overlap, and take their turns first come, first served."""
    for tool in ("serial_write", "serial_thread_write"):
        tags = [probe.name() for _ in range(3)]
        gates = [probe.gate() for _ in range(3)]
        steps = [{"tag": tag, "then": "wait", "gate": gate} for tag, gate in zip(tags, gates, strict=True)]
        async with trio.open_nursery() as nursery:
            calls = [probe.start(nursery, tool, steps[0])]
            await probe.arrived(gates[0])
            for step in steps[1:]:
                calls.append(await probe.start_waiting(nursery, tool, step))  # noqa: PERF401 - one after the other
            for turn, gate in enumerate(gates):
                await probe.arrived(gate)
                assert [await probe.effects(tag) for tag in tags] == [1] * (turn + 1) + [0] * (2 - turn)
                await probe.open(gate)
                assert (await calls[turn].wait()).status == "completed"


@suite.check("E-704")
async def busy(probe: Probe) -> None:
    """More calls than may wait for a turn are refused at once: ``TOOL_BUSY``, capacity, retryable; their request_ids stay free."""
    gate, tag, request_id = probe.gate(), probe.name(), probe.name()
    async with trio.open_nursery() as nursery:
        probe.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        for _ in range(MAX_WAITING):
            await probe.start_waiting(nursery, "serial_write")
        refused = await probe.refused("TOOL_BUSY", "serial_write", {"tag": tag}, request_id=request_id)
        await probe.open(gate)
    assert refused.error is not None
    assert refused.error.category == "capacity"
    assert refused.error.retryable
    assert refused.error.retry_after is not None
    assert [action.tool for action in refused.next_actions] == ["serial_write"]
    assert await probe.effects(tag) == 0
    assert (await probe.call("serial_write", {"tag": tag}, request_id=request_id)).status == "completed"


@suite.check("E-705")
async def freed(probe: Probe) -> None:
    """A turn is given back on every way out: success, errors, crashes, deadlines, bad outputs, callers that leave."""
    for then in (
        "return",
        "error",
        "retryable",
        "crash",
        "exit",
        "own_base_exception",
        "invalid_output",
        "large_output",
    ):
        await probe.call("serial_write", {"then": then})
    await probe.refused("TIMEOUT", "serial_write", {"then": "wait", "gate": probe.gate()}, timeout_ms=TIMEOUT_MS)
    gate = probe.gate()
    async with trio.open_nursery() as nursery:
        call = probe.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        await call.leave()
    await probe.left(gate)
    assert (await probe.call("serial_write")).status == "completed"


@suite.check("E-706")
async def other_tools(probe: Probe) -> None:
    """A turn holds up calls to the same tool only."""
    gate = probe.gate()
    async with trio.open_nursery() as nursery:
        probe.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        assert (await probe.call("serial_read")).status == "completed"
        assert (await probe.call("write")).status == "completed"
        await probe.open(gate)


@suite.check("E-707")
async def thread_keeps_turn(probe: Probe) -> None:
    """A thread that outlives its deadline keeps its turn until it ends."""
    gate, tag = probe.gate(), probe.name()
    tool = "serial_thread_write"
    await probe.refused("TIMEOUT", tool, {"then": "wait", "gate": gate}, timeout_ms=TIMEOUT_MS)
    late = await probe.refused("TIMEOUT", tool, {"tag": tag}, timeout_ms=TIMEOUT_MS)
    assert late.error is not None
    assert late.error.details is not None
    assert late.error.details["phase"] == "waiting"
    assert await probe.effects(tag) == 0
    await probe.open(gate)
    assert (await probe.call(tool, {"tag": tag})).status == "completed"


@suite.check("E-708")
async def replay_needs_no_turn(probe: Probe) -> None:
    """A replay does not wait for a turn."""
    gate, request_id = probe.gate(), probe.name()
    await probe.call("serial_write", {"tag": "a"}, request_id=request_id)
    async with trio.open_nursery() as nursery:
        probe.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        assert (await probe.call("serial_write", {"tag": "a"}, request_id=request_id)).replayed
        await probe.open(gate)
