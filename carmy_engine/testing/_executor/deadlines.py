"""Deadlines, and what they leave."""

from __future__ import annotations

import trio

from .._probe import TIMEOUT_MS, Probe
from .suite import suite


@suite.check("E-501")
async def running(probe: Probe) -> None:
    """A tool that is running at its deadline is stopped: ``TIMEOUT`` with phase running."""
    gate = probe.gate()
    result = await probe.refused("TIMEOUT", "read", {"then": "wait", "gate": gate}, timeout_ms=TIMEOUT_MS)
    assert result.error is not None
    assert result.status == "timed_out"
    assert result.error.category == "timeout"
    assert result.error.details is not None
    assert result.error.details["phase"] == "running"
    await probe.left(gate)


@suite.check("E-502")
async def thread(probe: Probe) -> None:
    """A tool in a thread is answered at its deadline, although the thread runs on."""
    gate = probe.gate()
    result = await probe.refused("TIMEOUT", "thread_write", {"then": "wait", "gate": gate}, timeout_ms=TIMEOUT_MS)
    assert result.error is not None
    assert result.error.details is not None
    assert result.error.details["phase"] == "running"
    assert "may exist" in result.error.message
    await probe.open(gate)
    await probe.left(gate)


@suite.check("E-503")
async def waiting(probe: Probe) -> None:
    """A call that is still waiting for its turn at its deadline never starts: ``TIMEOUT`` with phase waiting, and retryable."""
    tag, gate = probe.name(), probe.gate()
    async with trio.open_nursery() as nursery:
        probe.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        result = await probe.refused("TIMEOUT", "serial_write", {"tag": tag}, timeout_ms=TIMEOUT_MS)
        await probe.open(gate)
    assert result.error is not None
    assert result.error.details is not None
    assert result.error.details["phase"] == "waiting"
    assert result.error.retryable
    assert await probe.effects(tag) == 0


@suite.check("E-504")
async def truth(probe: Probe) -> None:
    """A value that a tool does return wins over its expired deadline."""
    tag, request_id = probe.name(), probe.name()
    arguments = {"tag": tag, "then": "wait_stubbornly", "gate": probe.gate()}
    result = await probe.call("write", arguments, request_id=request_id, timeout_ms=TIMEOUT_MS)
    assert result.data == "late"
    assert (await probe.call("write", arguments, request_id=request_id)).replayed
    assert await probe.effects(tag) == 1


@suite.check("E-505")
async def clean_up(probe: Probe) -> None:
    """A tool may await in its clean-up after its deadline."""
    tag = probe.name()
    arguments = {"tag": tag, "then": "wait_and_clean_up", "gate": probe.gate()}
    await probe.refused("TIMEOUT", "read", arguments, timeout_ms=TIMEOUT_MS)
    assert await probe.effects(tag + ":cleaned", at_least=1) == 1


@suite.check("E-506")
async def nursery(probe: Probe) -> None:
    """A tool with tasks of its own is stopped at its deadline as well, with all of them."""
    arguments = {"then": "wait_in_nursery", "gate": probe.gate()}
    await probe.refused("TIMEOUT", "read", arguments, timeout_ms=TIMEOUT_MS)


@suite.check("E-507")
async def goes_on(probe: Probe) -> None:
    """A timeout that is not reached changes nothing, and others' timeouts do not matter."""
    async with trio.open_nursery() as nursery:
        short = [
            probe.start(nursery, "read", {"then": "wait", "gate": probe.gate()}, timeout_ms=TIMEOUT_MS)
            for _ in range(5)
        ]
        assert (await probe.call("echo", {"text": "a"}, timeout_ms=60_000)).data == "a"
        for call in short:
            assert (await call.wait()).status == "timed_out"
    assert (await probe.call("echo", {"text": "a"})).data == "a"
