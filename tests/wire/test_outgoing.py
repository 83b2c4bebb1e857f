"""The queue in front of the one task that writes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from carmy_net import BatchChannel, SendQueue
from carmy_net._send_queue import BATCH_BYTES


class Sink(BatchChannel):
    """Takes messages one by one."""

    def __init__(self) -> None:
        self.taken: list[object] = []

    async def send(self, value: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.taken.append(value)

    async def receive(self) -> bytes:
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class BatchSink(Sink):
    """Takes several at once."""

    async def send_batch(self, values: Sequence[bytes]) -> None:
        await trio.lowlevel.checkpoint()
        self.taken.append(list(values))


class ImmediateSink(Sink):
    """Takes messages at once, as long as it has room."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def send_at_once(self, value: bytes) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.taken.append((value, "at once"))
        return True


@pytest.mark.parametrize(("sink", "taken"), [(Sink(), [b"a", b"b", b"c"]), (BatchSink(), [[b"a", b"b", b"c"]])])
async def test_order(sink: Sink, taken: list[object]) -> None:
    """Messages are written in order, at once where the channel takes them so; after the last one the writer is done."""
    out = SendQueue()
    for message in (b"a", b"b", b"c"):
        out.put(message)
    out.close()
    await out.write_to(sink)
    assert sink.taken == taken


async def test_a_lone_message_does_not_wait_for_the_writer() -> None:
    """A message that comes alone is sent at once, unless the channel has no room, or others are before it."""
    out, sink = SendQueue(), ImmediateSink(room=2)
    early = out.put(b"before there is a writer", alone=True)
    assert not early.taken
    async with trio.open_nursery() as nursery:
        nursery.start_soon(out.write_to, sink)
        await trio.testing.wait_all_tasks_blocked()
        first = out.put(b"first", alone=True)
        assert first.taken
        assert not out.discard(first)
        out.put(b"not alone")
        out.put(b"behind it", alone=True)
        await trio.testing.wait_all_tasks_blocked()
        out.put(b"last that has room", alone=True)
        out.put(b"no room", alone=True)
        out.close()
    assert sink.taken == [
        b"before there is a writer",
        (b"first", "at once"),
        b"not alone",
        b"behind it",
        (b"last that has room", "at once"),
        b"no room",
    ]


async def test_batches_are_bounded() -> None:
    """A batch has at most so many bytes, or one message that is larger."""
    out = SendQueue()
    large = b"x" * BATCH_BYTES
    for message in (large + b"x", b"a", large, b"b"):
        out.put(message)
    assert await out.take() == [large + b"x"]
    assert await out.take() == [b"a"]
    assert await out.take() == [large]
    assert await out.take() == [b"b"]


async def test_room() -> None:
    """A caller that finds no room waits, and is served in the order of asking, also behind a large message."""
    out = SendQueue(limit=10)
    order: list[str] = []

    async def put(name: str, size: int) -> None:
        await out.wait_for_room(size)
        out.put(name.encode() * size)
        order.append(name)

    async with trio.open_nursery() as nursery:
        for name, size in (("a", 6), ("b", 30), ("c", 1)):
            nursery.start_soon(put, name, size)
            await trio.testing.wait_all_tasks_blocked()
        assert order == ["a"]
        await out.take()
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["a", "b"]
        await out.take()
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["a", "b", "c"]


async def test_discard() -> None:
    """A message can be taken back until the writer has it."""
    out = SendQueue()
    first, second = out.put(b"a"), out.put(b"b")
    assert out.discard(first)
    assert not out.discard(first)
    assert await out.take() == [b"b"]
    assert second.taken
    assert not out.discard(second)


@pytest.mark.parametrize("end", ["close", "clear"])
async def test_end(end: str) -> None:
    """Closing wakes every waiter for room; what was queued is still written, unless it was cleared."""
    out = SendQueue(limit=1)
    out.put(b"a")

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await out.wait_for_room(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        getattr(out, end)()
    with pytest.raises(trio.ClosedResourceError):
        out.put(b"b")
    assert await out.take() == ([b"a"] if end == "close" else [])
    assert await out.take() == []


async def test_cancelled_while_waiting_for_room() -> None:
    """A caller that is cancelled while it waits leaves its place to the next."""
    out = SendQueue(limit=1)
    out.put(b"a")
    with trio.move_on_after(0):
        await out.wait_for_room(1)
    await out.take()
    await out.wait_for_room(1)
    out.put(b"b")
    assert await out.take() == [b"b"]
