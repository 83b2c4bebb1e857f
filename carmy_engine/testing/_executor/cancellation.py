"""Callers that go away."""

from __future__ import annotations

import trio

from .._probe import Probe
from .suite import suite


@suite.check("E-601")
async def execute(probe: Probe) -> None:
    """Leaving the scope round a call cancels the tool."""
    gate = probe.gate()
    async with trio.open_nursery() as nursery:
        call = probe.start(nursery, "read", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        await call.leave()
    await probe.left(gate)


@suite.check("E-602")
async def stream(probe: Probe) -> None:
    """Leaving the block of a stream before its end cancels the tool."""
    gate = probe.gate()
    async with probe.executor.stream(probe.request("read", {"then": "wait", "gate": gate})) as channel:
        assert (await channel.receive()).kind == "execution.started"
        await probe.arrived(gate)
    await probe.left(gate)


@suite.check("E-603")
async def clean_up(probe: Probe) -> None:
    """A tool may await in its clean-up after its caller went away."""
    tag, gate = probe.name(), probe.gate()
    async with trio.open_nursery() as nursery:
        call = probe.start(nursery, "read", {"tag": tag, "then": "wait_and_clean_up", "gate": gate})
        await probe.arrived(gate)
        await call.leave()
    assert await probe.effects(tag + ":cleaned", at_least=1) == 1


@suite.check("E-604")
async def others(probe: Probe) -> None:
    """A caller that goes away disturbs no other call."""
    gate = probe.gate()
    async with trio.open_nursery() as nursery:
        stays = probe.start(nursery, "read", {"then": "wait", "gate": gate})
        goes = [probe.start(nursery, "read", {"then": "wait", "gate": gate}) for _ in range(5)]
        await probe.arrived(gate, calls=6)
        for call in goes:
            await call.leave()
        await probe.left(gate, calls=5)
        await probe.open(gate)
        assert (await stays.wait()).status == "completed"


@suite.check("E-605")
async def waiting(probe: Probe) -> None:
    """A caller that goes away while it waits for its turn gives up its place, and its tool never runs."""
    tag, gate, other, request_id = probe.name(), probe.gate(), probe.gate(), probe.name()
    async with trio.open_nursery() as nursery:
        holder = probe.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        goes = await probe.start_waiting(nursery, "serial_write", {"tag": tag}, request_id=request_id)
        await goes.leave()
        # A network reports a client's end with a delay. Once the call has given up, its id is free for another request.
        while (await probe.call("echo", {"text": "a"}, request_id=request_id)).status != "completed":
            await trio.lowlevel.checkpoint()
        stays = probe.start(nursery, "serial_write", {"then": "wait", "gate": other})
        await probe.open(gate)
        await probe.arrived(other)
        await probe.open(other)
        assert (await holder.wait()).status == "completed"
        assert (await stays.wait()).status == "completed"
    assert await probe.effects(tag) == 0


@suite.check("E-606")
async def before(probe: Probe) -> None:
    """In a scope that is cancelled already, nothing is run and the cancel is raised."""
    tag, request_id = probe.name(), probe.name()
    with trio.CancelScope() as scope:
        scope.cancel()
        await probe.call("write", {"tag": tag}, request_id=request_id)
    assert scope.cancelled_caught
    assert await probe.effects(tag) == 0
    result = await probe.call("write", {"tag": tag}, request_id=request_id)
    assert result.status == "completed"
    assert not result.replayed


@suite.check("E-607")
async def unread(probe: Probe) -> None:
    """Leaving a stream that was never read cancels the tool, also while it waits for its reader."""
    async with probe.executor.stream(probe.request("partials", {"count": 1000, "size": 10_000})) as channel:
        await channel.receive()
    assert (await probe.call("echo", {"text": "a"})).data == "a"


@suite.check("E-608")
async def block_fails(probe: Probe) -> None:
    """An exception in the block of a stream cancels the tool and leaves the block as it is."""
    gate = probe.gate()
    error = LookupError("of the caller")
    caught: Exception | None = None
    try:
        async with probe.executor.stream(probe.request("read", {"then": "wait", "gate": gate})):
            await probe.arrived(gate)
            raise error
    except LookupError as raised:
        caught = raised
    assert caught is error
    await probe.left(gate)


@suite.check("E-609")
async def no_pile_up(probe: Probe) -> None:
    """Callers that go away, one after the other, leave nothing running: every tool has been left."""
    gate = probe.gate()
    for count in range(1, 21):
        async with trio.open_nursery() as nursery:
            call = probe.start(nursery, "read", {"then": "wait", "gate": gate})
            await probe.arrived(gate, count)
            await call.leave()
        await probe.left(gate, count)
