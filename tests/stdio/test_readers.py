"""Reading and writing descriptors: pipes without a thread, all others, and where the kernel cannot do it, with one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio
import trio.testing

from carmy_stdio import LineChannel
from carmy_stdio._channel import LINES_AT_ONCE
from carmy_stdio._output_lock import OutputLock
from carmy_stdio._pipe_io import AT_ONCE_BYTES, PipeReader, Reader, ThreadReader, ThreadWriter, reader_of

PIPE_BYTES = 65536
"""Capacity of a pipe."""


def refuse(*_: object) -> int:
    raise OSError(errno.EOPNOTSUPP, "not supported")


async def test_a_pipe_is_read_to_its_end():
    """What is written comes as it is written, and then the end, again and again; the open file still blocks."""
    source, sink = os.pipe()
    reader = reader_of(source)
    assert isinstance(reader, PipeReader)
    got: list[bytes] = []

    async def read() -> None:
        while data := await reader.receive_some():
            got.append(data)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for piece in (b"one", b"two"):
                await trio.testing.wait_all_tasks_blocked()
                os.write(sink, piece)
            await trio.testing.wait_all_tasks_blocked(0.01)
            os.close(sink)
        assert got == [b"one", b"two"]
        assert await reader.receive_some() == b""
    assert os.get_blocking(source)
    os.close(source)


async def test_an_end_that_is_told():
    """A reader that waits, and one that does not, find the end."""
    source, sink = os.pipe()
    reader = reader_of(source)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(5):
            nursery.start_soon(trio.testing.wait_all_tasks_blocked)
            nursery.start_soon(_end_when_it_waits, reader)
            assert await reader.receive_some() == b""
            assert await reader.receive_some() == b""
    os.close(sink)
    os.close(source)


async def _end_when_it_waits(reader: Reader) -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)
    reader.end()


async def test_a_kernel_that_cannot_do_it(monkeypatch: pytest.MonkeyPatch):
    """Threads take over, and nothing is lost or written twice."""
    monkeypatch.setattr(os, "preadv", refuse)
    monkeypatch.setattr(os, "pwritev", refuse)
    source, sink = os.pipe()
    reader, writer = reader_of(source), ThreadWriter(sink, OutputLock())
    with trio.fail_after(5):
        for size in (2, 3, AT_ONCE_BYTES + 1):
            await writer.send_all(b"x" * size)
            got = b""
            while len(got) < size:
                got += await reader.receive_some()
            assert got == b"x" * size
        reader.end()
        assert await reader.receive_some() == b""
    os.close(sink)


async def test_a_file_is_read_in_a_thread(tmp_path: Path):
    """A regular file is no pipe, and gives all it has."""
    path = tmp_path / "input"
    path.write_bytes(b"x" * 100_000)
    source = os.open(path, os.O_RDONLY)
    reader = reader_of(source)
    assert isinstance(reader, ThreadReader)
    size = 0
    with trio.fail_after(5):
        while data := await reader.receive_some():
            size += len(data)
    assert size == 100_000
    os.close(source)


@pytest.mark.parametrize("size", [10, AT_ONCE_BYTES - 1, AT_ONCE_BYTES, 100_000])
async def test_a_full_pipe_is_waited_for(size: int):
    """Messages of any size arrive whole and in order, however slowly they are read."""
    source, sink = os.pipe()
    reader, writer = reader_of(source), ThreadWriter(sink, OutputLock())
    messages = [
        b"%05d".ljust(size - 1, b".") % number + b"\n"
        for number in range(max(3, 300_000 // size if size > 10 else 2000))
    ]
    got = bytearray()

    async def write() -> None:
        for message in messages:
            await writer.send_all(message)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            while len(got) < sum(map(len, messages)):
                got += await reader.receive_some()
                await trio.lowlevel.checkpoint()
    assert bytes(got) == b"".join(messages)
    os.close(sink)
    os.close(source)


@pytest.mark.parametrize("size", [3, AT_ONCE_BYTES - 1, AT_ONCE_BYTES, PIPE_BYTES, 3 * PIPE_BYTES])
async def test_an_unfinished_line_of_somebody_else(size: int):
    """A message begins a line of its own, whether it is written at once, by the thread, or by both."""
    source, sink = os.pipe()
    turns = OutputLock()
    turns.at_line_start = False
    writer = ThreadWriter(sink, turns)
    message = b"{}".ljust(size - 1) + b"\n"
    got = b""
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.send_all, message)
            while len(got) <= size:
                got += await trio.to_thread.run_sync(os.read, source, PIPE_BYTES)
        await writer.send_all(b"[]\n")
    assert got + os.read(source, 100) == b"\n" + message + b"[]\n"
    os.close(sink)
    os.close(source)


async def test_a_large_write_without_the_thread(monkeypatch: pytest.MonkeyPatch):
    """A pipe that has room takes a large message at once: the thread, which could not write, is not needed."""
    monkeypatch.setattr(os, "write", refuse)
    source, sink = os.pipe()
    writer = ThreadWriter(sink, OutputLock())
    message = b"x" * (PIPE_BYTES - 1) + b"\n"
    with trio.fail_after(5):
        await writer.send_all(message)
    assert os.read(source, 2 * PIPE_BYTES) == message
    os.close(sink)
    os.close(source)


async def test_the_mode_of_a_shared_pipe():
    """Other processes share the open file: writes of any size, also while one waits, leave it in blocking mode."""
    source, sink = os.pipe()
    reader, writer = reader_of(source), ThreadWriter(sink, OutputLock())
    with trio.fail_after(5):
        await writer.send_all(b"x" * AT_ONCE_BYTES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.send_all, b"x" * 2 * PIPE_BYTES)
            await trio.testing.wait_all_tasks_blocked()
            assert os.get_blocking(sink)
            assert os.get_blocking(source)
            size = 0
            while size < AT_ONCE_BYTES + 2 * PIPE_BYTES:
                size += len(await reader.receive_some())
    assert os.get_blocking(sink)
    assert os.get_blocking(source)
    os.close(sink)
    os.close(source)


async def test_a_message_in_two_parts_stays_in_one_piece():
    """The lock is held from the first part, which the pipe took at once, to the end of the rest, and free afterwards."""
    source, sink = os.pipe()
    reader, turns = reader_of(source), OutputLock()
    writer = ThreadWriter(sink, turns)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.send_all, b"x" * 2 * PIPE_BYTES)
            await trio.testing.wait_all_tasks_blocked()
            assert not turns.lock.acquire(blocking=False)
            size = 0
            while size < 2 * PIPE_BYTES:
                size += len(await reader.receive_some())
        assert turns.lock.acquire(blocking=False)
    os.close(sink)
    os.close(source)


@pytest.mark.parametrize("leave", ["cancel", "close"])
async def test_leaving_in_the_middle_of_a_message(leave: str):
    """A message that was cut by a cancel, or whose reader has gone, breaks the writer; the lock is free once the rest is settled."""
    source, sink = os.pipe()
    turns = OutputLock()
    writer = ThreadWriter(sink, turns)
    message = b"x" * 2 * PIPE_BYTES
    outcomes: list[type[BaseException]] = []

    async def write() -> None:
        try:
            await writer.send_all(message)
        except (trio.Cancelled, trio.BrokenResourceError) as error:
            outcomes.append(type(error))
            if isinstance(error, trio.Cancelled):
                raise

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            if leave == "cancel":
                nursery.cancel_scope.cancel()
            else:
                os.close(source)
        assert outcomes == [trio.Cancelled if leave == "cancel" else trio.BrokenResourceError]
        with pytest.raises(trio.BrokenResourceError):
            await writer.send_all(b"{}\n")
        assert not writer.write_at_once(b"{}\n")
        if leave == "cancel":  # the thread still writes the rest for a reader that goes on
            size = 0
            while size < len(message):
                size += len(await trio.to_thread.run_sync(os.read, source, PIPE_BYTES))
            os.close(source)
        assert await trio.to_thread.run_sync(turns.lock.acquire)
    os.close(sink)


async def test_writing_at_once():
    """It takes all or nothing: small messages while there is room, and none once the reader has gone."""
    source, sink = os.pipe()
    writer = ThreadWriter(sink, OutputLock())
    assert writer.write_at_once(b"{}\n")
    assert os.read(source, 100) == b"{}\n"
    assert not writer.write_at_once(b"x" * AT_ONCE_BYTES)
    message = b"x" * (AT_ONCE_BYTES - 2) + b"\n"
    taken = 0
    while writer.write_at_once(message):
        taken += 1
    os.close(sink)
    size = 0
    while data := os.read(source, 1_000_000):
        size += len(data)
    assert size == taken * len(message)
    os.close(source)


@pytest.mark.parametrize("piece", [b"x", b"\n", b"{}\n", b"{}\n" * 50])
async def test_a_peer_that_never_pauses(piece: bytes):
    """Others run while pieces come without end, be they lines or not."""
    pieces = turns = 0

    async def receive_some() -> bytes:
        nonlocal pieces
        pieces += 1
        return piece

    async def ignore(_: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def read() -> None:
        channel = LineChannel(receive_some, ignore, 100)
        while True:
            await channel.receive()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            while turns < 20:
                await trio.lowlevel.checkpoint()
                turns += 1
            nursery.cancel_scope.cancel()
    assert 0 < pieces <= turns * LINES_AT_ONCE


@pytest.mark.parametrize("size", [3, 2 * PIPE_BYTES])
async def test_a_reader_that_has_gone(size: int):
    """Writing to a pipe without a reader fails, at once and from then on."""
    source, sink = os.pipe()
    os.close(source)
    writer = ThreadWriter(sink, OutputLock())
    for _ in range(2):
        with pytest.raises(trio.BrokenResourceError):
            await writer.send_all(b"x" * size)
        assert not writer.write_at_once(b"{}\n")
    os.close(sink)
