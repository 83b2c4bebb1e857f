"""What a request may cost: while the most expensive ones are refused, others are answered, and memory stays small.

The server is a process of its own. Nothing is timed: a second connection sends one ping after the other, and the pings
answered between a request and its refusal are counted. Memory is the peak that the kernel has recorded (``VmHWM``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from tests.cli.served import CARMY
from tests.hostile.costly import BODIES, ENVELOPES, request
from tests.support.http import Client, render
from tests.support.websocket import TEXT, Peer, frame

COSTLY = Path(__file__).with_name("costly.py")
HTTP_BYTES = 1024 * 1024
SHORT_BYTES = 200
FRAME_BYTES = 4 * 1024 * 1024
MAX_MEMORY_BYTES = 100 * 1024 * 1024

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks of memory come from /proc")


def peak(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@asynccontextmanager
async def served(*command: str) -> AsyncIterator[tuple[trio.Process, int]]:
    """A command of `carmy` as a process, and its port."""
    line = [*CARMY, command[0], str(COSTLY), *command[1:], "--address", "127.0.0.1:0"]
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(line, stderr=PIPE)
        assert process.stderr is not None
        try:
            said = b""
            while b"listening on" not in said or not said.endswith(b"\n"):
                more = await process.stderr.receive_some()
                assert more, said
                said += more
            nursery.start_soon(_drain, process.stderr)
            yield process, int(said.split(b"listening on")[1].strip().rsplit(b":", 1)[1].split(b"/")[0])
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            nursery.cancel_scope.cancel()


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


async def pings_until(refused: Callable[[], Awaitable[object]], ping: Callable[[], Awaitable[object]]) -> int:
    """How many pings are answered, one after the other, before a refusal arrives."""
    count = 0
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await refused()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait)
        while True:
            await ping()
            count += 1
    return count


Streams = tuple[trio.SocketStream, trio.SocketStream]


@asynccontextmanager
async def two_streams(port: int) -> AsyncIterator[Streams]:
    """One for what is expensive, one for pings."""
    async with (
        await trio.open_tcp_stream("127.0.0.1", port) as one,
        await trio.open_tcp_stream("127.0.0.1", port) as other,
    ):
        yield one, other


HEALTH = render("GET", "/health")


async def _over_http(streams: Streams, size: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    costly, other = Client(streams[0]), Client(streams[1])

    async def ping() -> None:
        await other.send(HEALTH)
        assert (await other.answer()).status == 200

    for name in BODIES:
        body = b"{" + request(name, size - 2) + b"}"
        await costly.send(render("POST", "/agent/execute", {"content-type": "application/json"}, body))

        async def refused(name: str = name) -> None:
            answer = await costly.answer()
            assert size == SHORT_BYTES or answer.code == "INVALID_ARGUMENTS", name

        counts[name] = await pings_until(refused, ping)
    for name, envelope in ENVELOPES.items():
        body = b"{" + envelope(size - 2) + b"}"
        await costly.send(render("POST", "/agent/execute", {"content-type": "application/json"}, body))

        async def not_valid(name: str = name) -> None:
            assert (await costly.answer()).code == "INVALID_REQUEST", name

        counts[f"envelope {name}"] = await pings_until(not_valid, ping)
    return counts


async def _over_websocket(streams: Streams, size: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    costly, other = Peer(streams[0]), Peer(streams[1])
    for peer in (costly, other):
        await peer.upgrade()
        assert (await peer.told())["event"] == "ready"

    async def ping() -> None:
        assert (await other.ask(id=1, op="ping"))["ok"]

    for name in BODIES:
        await costly.send(frame(TEXT, b'{"id":1,"op":"call",' + request(name, size - 30) + b"}"))

        async def refused(name: str = name) -> None:
            answer = await costly.told()
            assert size == SHORT_BYTES or answer["result"]["error"]["code"] == "INVALID_ARGUMENTS", name

        counts[name] = await pings_until(refused, ping)
    for name, envelope in ENVELOPES.items():
        await costly.send(frame(TEXT, b'{"id":1,"op":"call",' + envelope(size - 30) + b"}"))

        async def not_valid(name: str = name) -> None:
            assert (await costly.told())["error"]["code"] == "INVALID_REQUEST", name

        counts[f"envelope {name}"] = await pings_until(not_valid, ping)
    return counts


@pytest.mark.parametrize(
    ("command", "run", "size"),
    [
        pytest.param(("serve", "--server", "native"), _over_http, HTTP_BYTES, id="native"),
        pytest.param(
            ("serve", "--server", "hypercorn"), _over_http, HTTP_BYTES, id="hypercorn", marks=pytest.mark.long
        ),
        pytest.param(("ws",), _over_websocket, FRAME_BYTES, id="websocket"),
        # Those of 4 MiB are mostly refused for the memory that they would need; these are checked.
        pytest.param(("ws",), _over_websocket, FRAME_BYTES * 5 // 8, id="websocket-checked", marks=pytest.mark.long),
    ],
)
async def test_others_are_answered_while_the_most_expensive_requests_are_refused(
    command: tuple[str, ...], run: Callable[[Streams, int], Awaitable[dict[str, int]]], size: int
) -> None:
    """Twenty schemas, each with the longest and worst arguments: pings come between, and memory stays small."""
    with trio.fail_after(300):
        async with served(*command) as (process, port):
            async with two_streams(port) as streams:
                await run(streams, SHORT_BYTES)  # everything that is made once
            before = peak(process.pid)
            async with two_streams(port) as streams:
                counts = await run(streams, size)
            grown = peak(process.pid) - before
    assert min(counts.values()) > 0, counts
    assert grown < MAX_MEMORY_BYTES
