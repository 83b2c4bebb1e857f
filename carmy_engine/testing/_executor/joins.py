"""What becomes of a request that waits for the running attempt with its request_id."""

from __future__ import annotations

from typing import Any

import trio

from ..._model.events import ExecutionCompleted, ExecutionEvent
from .._probe import TIMEOUT_MS, Pending, Probe
from .idempotency import same
from .suite import suite


async def _join(
    probe: Probe, nursery: trio.Nursery, tool: str, arguments: dict[str, Any], request_id: str, count: int = 1
) -> list[Pending]:
    """Begin to join a run, and give the joiners time to reach it: a later call gets the stored answer instead."""
    joiners = [probe.start(nursery, tool, arguments, request_id=request_id, on_running="wait") for _ in range(count)]
    for _ in range(3):
        await probe.effects(arguments["tag"])
    return joiners


@suite.check("E-318")
async def joining(probe: Probe) -> None:
    """Requests that ask to wait for the running attempt get its answer as a replay, and the tool runs once."""
    for tool in ("write", "read", "serial_write", "thread_write"):
        tag, gate, request_id = probe.name(), probe.gate(), probe.name()
        arguments = {"tag": tag, "then": "wait", "gate": gate}
        async with trio.open_nursery() as nursery:
            first = probe.start(nursery, tool, arguments, request_id=request_id, on_running="wait")
            await probe.arrived(gate)
            joiners = await _join(probe, nursery, tool, arguments, request_id, 3)
            assert not any(joiner.done.is_set() for joiner in joiners)
            await probe.open(gate)
            answer = await first.wait()
            for joiner in joiners:
                same(answer, await joiner.wait())
        assert await probe.effects(tag) == 1


@suite.check("E-319")
async def joiner_leaves(probe: Probe) -> None:
    """A joiner that goes away disturbs neither the run nor the other joiners."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    arguments = {"tag": tag, "then": "wait", "gate": gate}
    async with trio.open_nursery() as nursery:
        first = probe.start(nursery, "write", arguments, request_id=request_id)
        await probe.arrived(gate)
        leaving, staying = await _join(probe, nursery, "write", arguments, request_id, 2)
        await leaving.leave()
        await probe.open(gate)
        answer = await first.wait()
        assert answer.status == "completed"
        same(answer, await staying.wait())
    assert await probe.effects(tag) == 1


@suite.check("E-320")
async def joiner_times_out(probe: Probe) -> None:
    """A joiner's own deadline bounds its wait: ``TIMEOUT`` with phase waiting, retryable; the run goes on."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    arguments = {"tag": tag, "then": "wait", "gate": gate}
    async with trio.open_nursery() as nursery:
        first = probe.start(nursery, "write", arguments, request_id=request_id)
        await probe.arrived(gate)
        late = await probe.refused(
            "TIMEOUT", "write", arguments, request_id=request_id, timeout_ms=TIMEOUT_MS, on_running="wait"
        )
        assert late.error is not None
        assert late.error.retryable
        assert late.error.details is not None
        assert late.error.details["phase"] == "waiting"
        await probe.open(gate)
        answer = await first.wait()
        assert late.error.details["execution_id"] == answer.execution_id
    same(answer, await probe.call("write", arguments, request_id=request_id, on_running="wait"))
    assert await probe.effects(tag) == 1


@suite.check("E-321")
async def joining_another(probe: Probe) -> None:
    """Another request under the id of a running one is ``IDEMPOTENCY_CONFLICT`` at once, also if it asks to wait."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    async with trio.open_nursery() as nursery:
        first = probe.start(nursery, "write", {"tag": tag, "then": "wait", "gate": gate}, request_id=request_id)
        await probe.arrived(gate)
        await probe.refused("IDEMPOTENCY_CONFLICT", "write", {"tag": tag}, request_id=request_id, on_running="wait")
        await probe.open(gate)
        assert (await first.wait()).status == "completed"
    assert await probe.effects(tag) == 1


@suite.check("E-322")
async def joining_what_frees(probe: Probe) -> None:
    """If the run leaves its id free, a joiner runs itself, one after the other."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    arguments = {"tag": tag, "then": "wait_then_retryable", "gate": gate}
    async with trio.open_nursery() as nursery:
        first = probe.start(nursery, "write", arguments, request_id=request_id)
        await probe.arrived(gate)
        joiners = await _join(probe, nursery, "write", arguments, request_id, 2)
        await probe.open(gate)
        results = [await each.wait() for each in (first, *joiners)]
    assert {result.error.code for result in results if result.error is not None} == {"TRY_LATER"}
    assert not any(result.replayed for result in results)
    assert len({result.execution_id for result in results}) == len(results)
    assert await probe.effects(tag) == len(results)


@suite.check("E-323")
async def joining_what_is_left(probe: Probe) -> None:
    """If the caller of the run goes away, its joiners run a tool that may be repeated, and get an uncertain outcome for any other."""
    for tool in ("read", "write"):
        tag, gate, request_id = probe.name(), probe.gate(), probe.name()
        arguments = {"tag": tag, "then": "wait", "gate": gate}
        async with trio.open_nursery() as nursery:
            first = probe.start(nursery, tool, arguments, request_id=request_id)
            await probe.arrived(gate)
            (joiner,) = await _join(probe, nursery, tool, arguments, request_id)
            await first.leave()
            await probe.left(gate)
            await probe.open(gate)
            result = await joiner.wait()
        if tool == "read":
            assert result.status == "completed"
            assert not result.replayed
            assert await probe.effects(tag) == 2
        else:
            assert result.error is not None
            assert result.error.code == "EXECUTION_UNCERTAIN"
            assert result.error.details is not None
            assert result.error.details["state"] == "interrupted"
            assert await probe.effects(tag) == 1


@suite.check("E-324")
async def joining_nothing(probe: Probe) -> None:
    """A request that asks to wait is like any other where nothing runs: it runs, or is replayed."""
    tag, request_id = probe.name(), probe.name()
    first = await probe.call("write", {"tag": tag}, request_id=request_id, on_running="wait")
    assert first.status == "completed"
    same(first, await probe.call("write", {"tag": tag}, request_id=request_id, on_running="wait"))
    assert await probe.effects(tag) == 1


@suite.check("E-325")
async def joining_otherwise(probe: Probe) -> None:
    """What to do about a running attempt is ``refuse`` or ``wait``; anything else is ``INVALID_REQUEST``, and the tool does not run."""
    tag, request_id = probe.name(), probe.name()
    for on_running in ("", "join", None, True):
        await probe.refused("INVALID_REQUEST", "write", {"tag": tag}, request_id=request_id, on_running=on_running)
    assert await probe.effects(tag) == 0
    assert (await probe.call("write", {"tag": tag}, request_id=request_id, on_running="refuse")).status == "completed"


@suite.check("E-415")
async def events(probe: Probe) -> None:
    """A request that waits for a running attempt has the events of a replay: started, and completed with the first answer."""
    tag, gate, request_id = probe.name(), probe.gate(), probe.name()
    arguments = {"tag": tag, "then": "wait", "gate": gate}
    found: list[ExecutionEvent] = []

    async def listen() -> None:
        found.extend(await probe.events("write", arguments, request_id=request_id, on_running="wait"))

    async with trio.open_nursery() as nursery:
        first = probe.start(nursery, "write", arguments, request_id=request_id)
        await probe.arrived(gate)
        nursery.start_soon(listen)
        for _ in range(3):
            await probe.effects(tag)
        assert not any(isinstance(event, ExecutionCompleted) for event in found)
        await probe.open(gate)
        answer = await first.wait()
    assert [event.kind for event in found] == ["execution.started", "execution.completed"]
    last = found[-1]
    assert isinstance(last, ExecutionCompleted)
    assert last.result.replayed
    assert (last.result.execution_id, last.result.data_json) == (answer.execution_id, answer.data_json)
