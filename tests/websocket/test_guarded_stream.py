"""The stream below the library: whole writes, a pause before the close, and closes with a limit."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from carmy_websocket._guarded_stream import LINGER_SECONDS, PIECE_BYTES, GuardedStream
from tests.support.websocket import CLOSE, PING, TEXT, frame, request


def make_pair() -> tuple[GuardedStream, trio.abc.Stream]:
    """A guarded stream of a server, and the peer's end."""
    ours, peer = memory_stream_pair()
    return GuardedStream(ours, is_client=False, first=request()), peer


async def open_connection(nursery: trio.Nursery, stream: GuardedStream, peer: trio.abc.Stream) -> WebSocketConnection:
    """Shake hands through the library."""
    connection = await (await wrap_server_stream(nursery, stream, receive_buffer_size=8192)).accept()
    stream.attach(connection)
    assert b"101" in await peer.receive_some()
    return connection


async def test_nothing_follows_half_a_frame() -> None:
    """A write that is cancelled in the middle is the last one, and the connection is closed at once."""
    ours, peer = memory_stream_pair()
    stream = GuardedStream(ours, is_client=False)
    pieces = 0

    async def block_second_piece() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 2:
            await trio.sleep_forever()

    ours.send_stream.send_all_hook = block_second_piece
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, b"x" * 3 * PIECE_BYTES)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"y")
    with trio.fail_after(1):
        await stream.finish()
    assert b"y" not in await peer.receive_some()


async def test_a_peer_that_never_ends(autojump_clock: MockClock) -> None:
    """Closing waits for a silent peer no longer than its limit."""
    stream, _peer = make_pair()
    began = trio.current_time()
    await stream.finish()
    assert trio.current_time() - began == pytest.approx(LINGER_SECONDS)


async def test_a_close_after_pause_waits_for_nothing(autojump_clock: MockClock) -> None:
    """After a pause the library's close ends with its frame, and what the peer sends meanwhile disturbs nothing."""
    stream, peer = make_pair()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        connection = await open_connection(nursery, stream, peer)
        await stream.pause()
        await peer.send_all(frame(PING, b"x") + frame(TEXT, b"late"))
        await connection.aclose(1001)
        assert await peer.receive_some() == bytes([0x80 | CLOSE, 2]) + (1001).to_bytes(2)
        with pytest.raises(ConnectionClosed):
            await connection.get_message()
    assert trio.current_time() == began


async def test_a_pause_lets_the_library_finish(autojump_clock: MockClock) -> None:
    """A pause waits until the library has answered the ping that it has read."""
    stream, peer = make_pair()
    async with trio.open_nursery() as nursery:
        connection = await open_connection(nursery, stream, peer)
        await peer.send_all(frame(PING, b"x"))
        await trio.testing.wait_all_tasks_blocked()
        await stream.pause()
        await connection.aclose()
        assert await peer.receive_some() == frame(0xA, b"x", masked=False) + frame(CLOSE, b"\x03\xe8", masked=False)


async def test_too_many_bytes_without_a_message() -> None:
    """Fragments beyond the limit end the reading, and a whole message starts the count again."""
    ours, peer = memory_stream_pair()
    stream = GuardedStream(ours, is_client=False, max_unfinished_bytes=10)
    for _ in range(3):
        await peer.send_all(b"x" * 10)
        assert await stream.receive_some() == b"x" * 10
        stream.finish_message()
    await peer.send_all(b"x" * 11)
    with pytest.raises(trio.BrokenResourceError):
        await stream.receive_some()
    assert stream.is_overrun
