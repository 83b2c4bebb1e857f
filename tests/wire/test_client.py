"""An executor in front of a channel; the conformance suite has the rest."""

from __future__ import annotations

import random

import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import (
    AgentError,
    ClosedError,
    ErrorCategory,
    ExecutionCompleted,
    ExecutionRequest,
    ExecutionStarted,
    OutcomeUnknownError,
    ToolProgress,
)
from carmy_frames.driver import ClientExecutor, open_client
from tests.wire.pair import MemoryChannel, channel_pair, connected, served

READY = msgspec.json.encode(
    {
        "event": "ready",
        "protocol": "carmy-frames/1",
        "server": "s",
        "tools": 0,
        "tools_version": "",
        "limits": {"max_message_bytes": 1000, "max_calls": 10},
    }
)


async def test_calls_side_by_side() -> None:
    """Many tasks can call through one client at the same time, and each gets its own answer."""
    async with connected() as (client, _), trio.open_nursery() as nursery:

        async def call(number: int) -> None:
            result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": str(number)}))
            assert result.unwrap() == str(number)

        for number in range(100):
            nursery.start_soon(call, number)


@pytest.mark.parametrize("rounds", [300, pytest.param(10_000, marks=pytest.mark.long)])
async def test_call_cancel_call_again(rounds: int) -> None:
    """However soon a call is left, the server runs nothing afterwards, and the next call works."""
    chance = random.Random(1)
    async with connected() as (client, engine):
        for number in range(rounds):
            with trio.move_on_after(chance.random() * 0.005 if number % 10 else 0):
                await client.execute(ExecutionRequest(tool="read", arguments={"then": "wait", "gate": "g"}))
            assert engine.statistics().running == 0
            result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": str(number)}))
            assert result.unwrap() == str(number)


async def test_leaving_a_stream() -> None:
    """Leaving the block of a stream ends its execution before the block is left."""
    async with connected() as (client, engine):
        request = ExecutionRequest(tool="read", arguments={"then": "wait", "gate": "g"})
        async with client.stream(request) as events:
            assert (await events.receive()).kind == "execution.started"
            assert engine.statistics().running == 1
        assert engine.statistics().running == 0
        with pytest.raises(trio.ClosedResourceError):
            await events.receive()


async def test_the_deadline_of_the_scope_travels() -> None:
    """What is left of the caller's scope limits the execution; a shorter limit of the request's own wins."""
    async with connected() as (client, _):
        with trio.fail_after(20):
            own = await client.execute(ExecutionRequest(tool="whoami"))
            shorter = await client.execute(ExecutionRequest(tool="whoami", timeout_ms=5000))
        assert 10 < own.unwrap()["remaining"] <= 20
        assert 1 < shorter.unwrap()["remaining"] <= 5


async def test_what_cannot_be_sent() -> None:
    """What a server would refuse to read is refused before it is sent, in the server's words."""
    async with connected() as (client, _):
        for request, code in [
            (ExecutionRequest(tool="echo", arguments={"text": "x" * 4_194_304}), "PAYLOAD_TOO_LARGE"),
            (ExecutionRequest(tool="echo", arguments=msgspec.Raw(b'{"text":')), "INVALID_REQUEST"),
            (ExecutionRequest(tool="echo", arguments=msgspec.Raw(b"[" * 500 + b"]" * 500)), "INVALID_REQUEST"),
            (ExecutionRequest(tool="echo", arguments={"text": "a"}, metadata={"a": 1}), "INVALID_REQUEST"),
            (ExecutionRequest(tool="echo", arguments={"text": "a"}, timeout_ms=0), "INVALID_REQUEST"),
            (ExecutionRequest(tool="echo", arguments={"text": "a"}, timeout_ms=float("inf")), "INVALID_REQUEST"),
            (ExecutionRequest(tool="echo", arguments={"text": "a"}, timeout_ms=True), "INVALID_REQUEST"),
            (ExecutionRequest(tool="\ud800", arguments={"text": "a"}), "INVALID_REQUEST"),
            (ExecutionRequest(tool="echo", arguments={"text": "a"}, request_id="\ud800"), "INVALID_REQUEST"),
        ]:
            result = await client.execute(request)
            assert result.error is not None
            assert result.error.code == code
            async with client.stream(request) as events:
                first, last = [event async for event in events]
            assert isinstance(first, ExecutionStarted)
            assert isinstance(last, ExecutionCompleted)
            assert last.result.error is not None
            assert last.result.error.code == code
        await client.ping()


async def test_unusual_characters() -> None:
    """Text that readers of lines may split at arrives as it was."""
    text = "a\u2028b\u2029c\u0085d\ne\r\x00\U0001f600"
    async with connected() as (client, _):
        result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": text}))
        assert result.unwrap() == text


async def test_catalog() -> None:
    """The client's catalog is the engine's, to the byte."""
    async with connected() as (client, engine):
        assert await client.catalog() == await engine.catalog()
        assert client.ready.tools_version == (await engine.catalog()).version


async def test_slow_reader_of_a_stream() -> None:
    """Reports merge without gaps while a stream is not read; parts of the result are all there."""
    async with connected() as (client, _):
        async with client.stream(ExecutionRequest(tool="progress", arguments={"count": 5000})) as events:
            await client.execute(ExecutionRequest(tool="sleep", arguments={"seconds": 0.05}))
            seen = [event async for event in events]
        assert [event.seq for event in seen] == list(range(len(seen)))
        reports = [event for event in seen if isinstance(event, ToolProgress)]
        assert reports[-1].progress == 5000
        async with client.stream(ExecutionRequest(tool="partials", arguments={"count": 500, "size": 100})) as events:
            await client.execute(ExecutionRequest(tool="sleep", arguments={"seconds": 0.05}))
            parts = [event.partial for event in [e async for e in events] if isinstance(event, ToolProgress)]
        assert [int(part.split(":")[0]) for part in parts] == list(range(500))


async def connect_by_hand(nursery: trio.Nursery) -> tuple[MemoryChannel, list[ClientExecutor], trio.Event]:
    """A client whose server is the test; closed when the event is set."""
    ours, theirs = channel_pair(0)
    clients: list[ClientExecutor] = []
    close = trio.Event()

    async def run(task_status: trio.TaskStatus[None]) -> None:
        async with open_client(theirs, what="the test") as client:
            clients.append(client)
            task_status.started()
            await close.wait()

    async with trio.open_nursery() as starting:
        starting.start_soon(ours.send, READY)
        await nursery.start(run)
    return ours, clients, close


async def test_lost_connection() -> None:
    """A caller that waits for an answer gets an error that states that the call may have run, with the request_id; later calls are not sent."""
    async with trio.open_nursery() as nursery:
        ours, clients, close = await connect_by_hand(nursery)
        request = ExecutionRequest(tool="a", request_id="r1")

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError, match="the test was lost") as caught:
                await clients[0].execute(request)
            assert caught.value.request_id == "r1"

        async def stream() -> None:
            async with clients[0].stream(request) as events:
                with pytest.raises(OutcomeUnknownError) as caught:
                    await events.receive()
                assert caught.value.request_id == "r1"

        nursery.start_soon(call)
        await ours.receive()
        nursery.start_soon(stream)
        await ours.receive()
        await ours.send_break()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ClosedError, match="nothing was sent"):
            await clients[0].execute(request)
        with pytest.raises(ClosedError):
            await clients[0].catalog()
        close.set()


async def test_never_sent() -> None:
    """A call that was still queued when the connection was lost has certainly not run, as the error states."""
    async with trio.open_nursery() as nursery:
        ours, clients, close = await connect_by_hand(nursery)

        async def call(error: type[Exception]) -> None:
            with pytest.raises(error):
                await clients[0].execute(ExecutionRequest(tool="a"))

        nursery.start_soon(call, OutcomeUnknownError)  # the writer has it
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(call, ClosedError)
        await trio.testing.wait_all_tasks_blocked()
        await ours.send_break()
        await trio.testing.wait_all_tasks_blocked()
        await ours.aclose()
        close.set()


async def test_cancelled_before_it_was_sent() -> None:
    """A call that is left while it is queued is taken back: the server never receives it."""
    async with trio.open_nursery() as nursery:
        ours, clients, close = await connect_by_hand(nursery)
        scope = trio.CancelScope()

        async def ping() -> None:
            await clients[0].ping()

        async def call() -> None:
            with scope:
                await clients[0].execute(ExecutionRequest(tool="a"))

        nursery.start_soon(ping)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert msgspec.json.decode(await ours.receive())["op"] == "ping"
        await ours.send(b'{"id":1,"ok":true,"result":{}}')
        with trio.move_on_after(0.05):
            raise AssertionError(await ours.receive())
        close.set()


async def test_server_that_never_answers(autojump_clock: trio.testing.MockClock) -> None:
    """Leaving a call sends a cancel to the server, and waits no longer than its bound when nothing comes."""
    async with trio.open_nursery() as nursery:
        ours, clients, _ = await connect_by_hand(nursery)
        frames: list[dict[str, object]] = []

        async def read() -> None:
            while True:
                frames.append(msgspec.json.decode(await ours.receive()))

        nursery.start_soon(read)
        began = trio.current_time()
        with trio.move_on_after(1):
            await clients[0].execute(ExecutionRequest(tool="a"))
        assert trio.current_time() - began == pytest.approx(3.0)
        assert [frame["op"] for frame in frames] == ["call", "cancel"]
        assert frames[1]["target"] == frames[0]["id"]
        assert frames[1]["gone"] is True
        assert 900 < float(str(frames[0]["timeout_ms"])) <= 1000
        await ours.send(b'{"id":2,"ok":true,"result":{"cancelled":true}}')
        await ours.send(b'{"id":1,"ok":true,"result":{"execution_id":"e","status":"cancelled","data":null}}')
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "message", [b"hello", b'{"event":"ready","protocol":"carmy-frames/2"}', b'{"id":1,"ok":true,"result":1}']
)
async def test_not_our_protocol(message: bytes) -> None:
    """A peer whose first message is something else is refused, with its name."""
    ours, theirs = channel_pair()
    await ours.send(message)
    with pytest.raises(ClosedError, match="the thing"):
        async with open_client(theirs, what="the thing"):
            raise AssertionError("it was not ready")


async def test_not_ready_in_time(autojump_clock: trio.testing.MockClock) -> None:
    """A server that sends nothing is given up after the limit."""
    _, theirs = channel_pair()
    with pytest.raises(ClosedError, match="was not ready within 7 s"):
        async with open_client(theirs, ready_seconds=7):
            raise AssertionError("it was not ready")


async def test_nonsense_from_the_server() -> None:
    """A server that breaks the protocol later on is lost, and the error states what it sent."""
    async with trio.open_nursery() as nursery:
        ours, clients, close = await connect_by_hand(nursery)

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError, match="not a frame"):
                await clients[0].execute(ExecutionRequest(tool="a"))

        nursery.start_soon(call)
        await ours.receive()
        await ours.send(b"print statement")
        close.set()


async def test_refused_call() -> None:
    """A request that the server refuses to read is a result with its error."""
    async with trio.open_nursery() as nursery:
        ours, clients, close = await connect_by_hand(nursery)
        error = AgentError("ODD", "no", ErrorCategory.VALIDATION).info

        async def call() -> None:
            result = await clients[0].execute(ExecutionRequest(tool="a"))
            assert result.error == error

        nursery.start_soon(call)
        await ours.receive()
        await ours.send(msgspec.json.encode({"id": 1, "ok": False, "error": error}))
        await trio.testing.wait_all_tasks_blocked()
        close.set()


async def test_after_its_block() -> None:
    """A client that is used after its block raises its own error."""
    async with connected() as (client, _):
        pass
    with pytest.raises(ClosedError, match="was closed"):
        await client.execute(ExecutionRequest(tool="echo"))


async def test_leaving_at_every_checkpoint() -> None:
    """Wherever a call is cut off, the server ends with nothing running, and the connection is good."""
    async with connected() as (client, engine):
        for ticks in range(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    client.execute, ExecutionRequest(tool="read", arguments={"then": "wait", "gate": "g"})
                )
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            assert engine.statistics().running == 0
        await client.ping()


async def test_closed_with_the_peer_not_reading(autojump_clock: trio.testing.MockClock) -> None:
    """Closing a client whose peer reads nothing takes no longer than its bound."""
    ours, theirs = channel_pair(0)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send, READY)
        async with open_client(theirs) as client:
            with trio.move_on_after(1):
                await client.ping()
    assert trio.current_time() - began < 10


async def test_large_answers_in_a_small_channel() -> None:
    """Answers larger than every buffer arrive while others are asked for."""
    async with served(size=0) as found, open_client(found.peer) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": "x" * 1000, "times": 3000}))
            assert len(result.unwrap()) == 3_000_000

        for _ in range(10):
            nursery.start_soon(call)
            nursery.start_soon(client.ping)
