"""One connection after its handshake: messages, pings, limits, and how it ends."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from carmy_engine import AgentContext, BearerTokens, Cause, FramesSettings
from tests.support.websocket import BINARY, CLOSE, PING, PONG, TEXT, Peer, Running, frame, serving

LIMIT = 4 * 1024 * 1024


async def wait_at(server: Running, peer: Peer, call: int, gate: str) -> None:
    """Start a call that waits at a gate, and wait until it is there."""
    await peer.tell(id=call, op="call", tool="write", arguments={"tag": gate, "then": "wait", "gate": gate})
    with trio.fail_after(5):
        await server.stage.until(lambda: server.stage.arrived(gate) == 1)


async def test_calls_run_side_by_side() -> None:
    """Answers come as the calls finish, each with the id of its call, whatever type that has."""
    async with serving() as server, server.upgraded() as peer:
        await wait_at(server, peer, 1, "g")
        answer = await peer.ask(id="1", op="call", tool="echo", arguments={"text": "a"})
        assert (answer["id"], answer["result"]["data"]) == ("1", "a")
        server.stage.open("g")
        assert (await peer.told())["id"] == 1


async def test_what_is_no_request_costs_one_answer() -> None:
    """Bad JSON, a non-object and an unknown op are each answered INVALID_REQUEST or UNKNOWN_OP, and the connection goes on."""
    async with serving() as server, server.upgraded() as peer:
        for message in (b"", b"{", b"[]", b'{"id":1}', b'{"id":1,"op":"dance"}'):
            await peer.send(frame(TEXT, message))
            answer = await peer.told()
            assert answer["ok"] is False
            assert answer["error"]["code"] in {"INVALID_REQUEST", "UNKNOWN_OP"}
        assert (await peer.ask(id=1, op="ping"))["ok"]


async def test_fragments_and_pings_between_them() -> None:
    """A message may come in fragments, with control frames in between."""
    async with serving() as server, server.upgraded() as peer:
        await peer.send(frame(TEXT, b'{"id":1,', fin=False) + frame(PING, b"x") + frame(0, b'"op":"ping"}'))
        assert await peer.frame() == (PONG, b"x")
        assert (await peer.told())["id"] == 1


async def test_pong_while_calls_run() -> None:
    """A ping is answered at once, however many calls wait."""
    async with serving() as server, server.upgraded() as peer:
        for call in range(3):
            await wait_at(server, peer, call, f"g{call}")
        await peer.send(frame(PING, b"are you there"))
        with trio.fail_after(1):
            assert await peer.frame() == (PONG, b"are you there")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(3, b"x"), 1002),
        (frame(TEXT, b"x", masked=False), 1002),
        (bytes([0xF1, 0x80, 0, 0, 0, 0]), 1002),
        (frame(PING, b"x", fin=False), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(0, b"x"), 1002),
        (frame(CLOSE, b"x"), 1002),
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(TEXT, b"\xc3"), 1007),
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (frame(BINARY, b'{"id":1,"op":"ping"}'), 1003),
        (frame(TEXT, b"x" * (LIMIT + 1)), 1009),
        (frame(TEXT, "é".encode() * (LIMIT // 2) + b"x"), 1009),
        (b"".join(frame(TEXT if n == 0 else 0, b"x" * 65536, fin=False) for n in range(65)), 1009),
    ],
    ids=[
        "opcode", "unmasked", "reserved bits", "fragmented ping", "large ping", "no beginning", "short close",
        "not UTF-8", "half a character", "reason not UTF-8", "binary", "too large", "too many bytes", "too many fragments",
    ],
)  # fmt: skip
async def test_close_codes(data: bytes, code: int) -> None:
    """A broken rule ends the connection with the code of the rule and cancels its calls; other connections go on."""
    async with serving() as server, server.upgraded() as other, server.upgraded() as peer:
        await wait_at(server, peer, 1, "g")
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.send, data)
                assert await peer.closed() == code
        await server.idle()
        (record,) = server.engine.audit.newest()
        assert record.cause is Cause.DISCONNECT
        assert (await other.ask(id=1, op="ping"))["ok"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(BINARY, b"x"), 1003),
        (frame(TEXT, b"x" * (LIMIT + 1)), 1009),
        (frame(TEXT, "é".encode() * (LIMIT // 2) + b"x"), 1009),
        (frame(3, b"x"), 1002),
    ],
    ids=["binary", "too large", "too many bytes", "opcode"],
)
async def test_pings_around_a_broken_rule(data: bytes, code: int, caplog: pytest.LogCaptureFixture) -> None:
    """Pings before and behind the frame that ends a connection change neither its close code nor the log."""
    caplog.set_level(logging.INFO)
    pings = frame(PING, b"x") * 50
    async with serving() as server, server.upgraded() as other, server.upgraded() as peer:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.send, pings + data + pings)
                assert await peer.closed() == code
        assert (await other.ask(id=1, op="ping"))["ok"]
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1007, 1011, 4000])
async def test_a_close_is_answered_once(code: int) -> None:
    """A close frame gets its code back, in one close frame, whatever the code."""
    async with serving() as server, server.upgraded() as peer:
        with trio.fail_after(5):
            await peer.send(frame(PING, b"x") + frame(CLOSE, code.to_bytes(2)) + frame(PING, b"y"))
            assert await peer.frame() == (PONG, b"x")
            assert await peer.frame() == (CLOSE, code.to_bytes(2))
            assert await peer.stream.receive_some(1) == b""


async def test_a_message_without_an_end() -> None:
    """Empty fragments without end are too large a message as well, and delay no other connection."""
    async with (
        serving(websocket={"max_unfinished_bytes": 80_000}) as server,
        server.upgraded() as other,
        server.upgraded() as peer,
    ):
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.send, frame(TEXT, fin=False) + frame(0, fin=False) * 20_000)
                assert (await other.ask(id=1, op="ping"))["ok"]
                assert await peer.closed() == 1009


async def test_the_largest_message() -> None:
    """A message of exactly 4 MiB is taken."""
    async with serving() as server, server.upgraded() as peer:
        start, end = b'{"id":1,"op":"call","tool":"echo","arguments":{"text":"', b'"}}'
        message = start + b"x" * (LIMIT - len(start) - len(end)) + end
        with trio.fail_after(20):
            await peer.send(frame(TEXT, message))
            answer = await peer.told()
    assert len(answer["result"]["data"]) == LIMIT - len(start) - len(end)


@pytest.mark.parametrize("way", ["close", "close without code", "end", "reset"])
async def test_a_peer_that_leaves(way: str) -> None:
    """When the peer closes, ends or resets the connection, its calls are cancelled with cause disconnect within a second."""
    async with serving() as server, server.upgraded() as peer:
        await wait_at(server, peer, 1, "g")
        with trio.fail_after(1):
            if way == "reset":
                peer.reset()
            elif way == "end":
                await peer.stream.send_eof()
            else:
                await peer.send(frame(CLOSE, b"\x03\xe8" if way == "close" else b""))
            await server.engine.wait_idle()
        (record,) = server.engine.audit.newest()
        assert record.cause is Cause.DISCONNECT
        assert server.stage.left("g") == 1
        if way == "close":
            with trio.fail_after(5):
                assert await peer.frame() == (CLOSE, b"\x03\xe8")
                assert await peer.stream.receive_some(1) == b""


async def test_resets_at_any_moment() -> None:
    """Connections that are reset before, during and after the handshake, or in the middle of a frame, end nothing but themselves."""
    async with serving() as server, server.upgraded() as other:
        for sent in (0, 1, 100, 10_000):
            for tail in (b"", frame(TEXT, b'{"id":1,"op":"ping"}')[:5], frame(PING, b"x")):
                async with server.peer() as peer:
                    if sent == 10_000:
                        await peer.upgrade()
                        await peer.send(tail)
                    else:
                        await peer.send((b"GET /agent/ws HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100)[:sent])
                    peer.reset()
        assert (await other.ask(id=1, op="ping"))["ok"]


async def test_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A fault in the serving of one connection closes it with 1011 and without details, and ends no other."""
    async with serving() as server, server.upgraded() as other:
        async with server.peer() as peer:
            catalog = server.engine._pipeline.registry.catalog

            def fail(*_: object) -> None:
                raise ValueError("hunter2")

            monkeypatch.setattr(server.engine._pipeline.registry, "catalog", fail)
            await peer.upgrade()
            with trio.fail_after(5):
                assert await peer.closed() == 1011
            monkeypatch.setattr(server.engine._pipeline.registry, "catalog", catalog)
        assert (await other.ask(id=1, op="ping"))["ok"]
    assert "hunter2" in caplog.text


async def test_a_ping_that_meets_our_close() -> None:
    """A peer that pings while the server closes does not disturb the others' shutdown."""
    async with serving() as server, server.upgraded() as peer, server.upgraded() as other:
        server.engine.stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.engine.shut_down)
            for _ in range(50):
                try:
                    await peer.send(frame(PING, b"x"))
                except trio.BrokenResourceError:
                    break
        with trio.fail_after(5):
            assert await other.closed() == 1001


async def test_drain() -> None:
    """At shutdown new calls are refused, running ones still get their answer, and then the connection closes with 1001."""
    async with serving() as server, server.upgraded() as idle, server.upgraded() as peer:
        await wait_at(server, peer, 1, "g")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.engine.shut_down)
            await server.engine.stopping.wait()
            answer = await peer.ask(id=2, op="call", tool="echo", arguments={"text": "a"})
            assert answer["result"]["error"]["code"] == "SHUTTING_DOWN"
            server.stage.open("g")
            assert (await peer.told())["result"]["status"] == "completed"
            with trio.fail_after(5):
                assert await peer.closed() == 1001
                assert await idle.closed() == 1001
                await server.returned.wait()
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", server.port)


async def test_drain_limit() -> None:
    """A call that outlives the drain limit is cancelled, and answered SHUTTING_DOWN before 1001."""
    async with serving() as server, server.upgraded() as peer:
        await wait_at(server, peer, 1, "g")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.engine.shut_down, 0)
            assert (await peer.told())["result"]["error"]["code"] == "SHUTTING_DOWN"
            with trio.fail_after(5):
                assert await peer.closed() == 1001


async def test_a_peer_that_never_reads_cannot_hold_the_process() -> None:
    """Shutdown ends within its limits although a peer takes none of its answers."""
    async with serving() as server, server.upgraded() as peer:
        for call in range(20):
            await peer.tell(id=call, op="call", tool="echo", arguments={"text": "x", "times": 1_000_000})
        assert (await peer.told())["ok"]
        with trio.fail_after(10):
            await server.engine.shut_down(1)
            await server.returned.wait()


async def test_too_many_messages_waiting() -> None:
    """A peer that asks on and on and takes no answer is closed with 1013, and no other connection notices."""
    async with serving() as server, server.upgraded() as other, server.upgraded() as peer:
        flood = b"".join(frame(TEXT, b'{"id":%d,"op":"tools"}' % number) for number in range(4000))
        with trio.fail_after(20):
            await peer.send(flood)
            await wait_all_tasks_blocked(0.05)  # the answers fill every buffer up to the peer's
            assert (await other.ask(id=1, op="ping"))["ok"]
            assert await peer.closed() == 1013
        assert (await other.ask(id=2, op="ping"))["ok"]


async def test_heartbeat() -> None:
    """The server pings; a peer that answers stays, and one that shows no sign of life is cut off and its calls cancelled."""
    async with serving(websocket={"ping_secs": 0.05, "silence_secs": 0.3}) as server, server.upgraded() as peer:
        await wait_at(server, peer, 1, "g")
        with trio.fail_after(10):
            for _ in range(10):
                opcode, payload = await peer.frame()
                assert opcode == PING
                await peer.send(frame(PONG, payload))
            assert server.engine.statistics().running == 1
            await server.engine.wait_idle()  # no more pongs
            assert await peer.closed() == 1001
        (record,) = server.engine.audit.newest()
        assert record.cause is Cause.DISCONNECT


@pytest.mark.parametrize("calls", [20, pytest.param(200, marks=pytest.mark.long)])
async def test_large_answers_to_a_slow_reader(calls: int) -> None:
    """Many answers of a megabyte to a peer that reads slowly all arrive, whole; other connections do not wait for them."""
    async with serving(settings={"timeout_secs": 300}) as server, server.upgraded() as other, server.upgraded() as peer:
        for call in range(calls):
            await peer.tell(
                id=call, op="call", tool="echo", arguments={"text": chr(97 + call % 26), "times": 1_000_000}
            )
        seen = set()
        with trio.fail_after(50):
            for _ in range(calls):
                assert (await other.ask(id="p", op="ping"))["ok"]
                opcode, payload = await peer.frame()
                assert opcode == TEXT
                answer = json.loads(payload)
                assert answer["result"]["data"] == chr(97 + answer["id"] % 26) * 1_000_000
                seen.add(answer["id"])
        assert len(seen) == calls


async def test_a_unix_socket(tmp_path: Path) -> None:
    """The server listens on a socket with a file as well, and gives its URL."""
    path = tmp_path / "s"
    with trio.fail_after(5):
        async with serving(settings={"address": f"unix:{path}"}) as server:
            assert server.url == f"ws://unix:{path}:/agent/ws"
            stream = await trio.open_unix_socket(str(path))
            async with stream:
                peer = Peer(trio.SocketStream(stream.socket))
                await peer.upgrade()
                assert (await peer.told())["event"] == "ready"
                assert (await peer.ask(id=1, op="call", tool="echo", arguments={"text": "a"}))["result"]["data"] == "a"


async def test_frames_that_are_no_request_leave_a_record() -> None:
    """A malformed frame, and one whose operation or tool is not known, leave a record of their caller; the connection goes on."""
    tokens = BearerTokens({"secret": AgentContext(principal="ana")})
    async with serving(authenticator=tokens) as server, server.peer() as peer:
        await peer.upgrade({"Authorization": "Bearer secret"})
        await peer.told()
        for text in (b"{", b"[]", b'{"id":1,"op":"fly"}', b'{"id":2,"op":"describe","tool":"nothing"}'):
            await peer.send(frame(TEXT, text))
            assert not (await peer.told())["ok"]
        assert (await peer.ask(id=3, op="ping"))["ok"]
        records = server.engine.audit.newest()
    assert {(record.principal, record.transport) for record in records} == {("ana", "websocket")}
    assert [record.error_code for record in reversed(records)] == [
        "INVALID_REQUEST", "INVALID_REQUEST", "UNKNOWN_OP", "TOOL_NOT_FOUND",
    ]  # fmt: skip


async def test_limits_of_the_settings() -> None:
    """The first frame announces the limits of ``[frames]``: a message and a call over them are refused, and the connection goes on."""
    frames = FramesSettings(max_message_bytes=200, max_calls=1)
    async with serving(settings={"frames": frames}) as server, server.peer() as peer:
        await peer.upgrade()
        with trio.fail_after(10):
            assert (await peer.told())["limits"] == {"max_message_bytes": 200, "max_calls": 1}
            await wait_at(server, peer, 1, "g")
            refused = await peer.ask(id=2, op="call", tool="echo", arguments={"text": "a"})
            assert refused["error"]["code"] == "OVERLOADED"
        async with server.upgraded() as other:
            await other.tell(id=1, op="call", tool="echo", arguments={"text": "a" * 200})
            assert await other.closed() == 1009
