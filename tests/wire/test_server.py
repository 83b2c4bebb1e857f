"""An engine behind a channel, spoken to frame by frame."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import App, BoundEngine, Catalog, Cause
from carmy_frames.driver import ConnectionEnd, serve_channel
from tests.boundary.escapes import ESCAPES, made
from tests.wire.pair import Served, channel_pair, served


async def finish(found: Served) -> list[dict[str, Any]]:
    """Say no more; give every frame that still comes, and wait for the end."""
    await found.peer.send_eof()
    with trio.fail_after(20):
        return [msgspec.json.decode(message) async for message in found.peer]


async def test_ready_comes_first() -> None:
    """The first frame announces protocol, server and catalog."""
    async with served() as found:
        frame = await found.receive()
        catalog = await found.engine.catalog()
        assert frame["event"] == "ready"
        assert (frame["protocol"], frame["server"]) == ("carmy-frames/1", "scripted")
        assert (frame["tools"], frame["tools_version"]) == (len(catalog.tools), catalog.version)


async def test_simple_operations() -> None:
    """ping, help, tools and describe are answered under their ids."""
    async with served() as found:
        await found.ready()
        assert await found.ask(id="p", op="ping") == {"id": "p", "ok": True, "result": {}}
        ops = (await found.ask(id=2, op="help"))["result"]["ops"]
        assert [op["op"] for op in ops] == [
            "call", "cancel", "tools", "describe", "resources", "read", "prompts", "prompt", "complete", "ping", "help",
        ]  # fmt: skip
        document = msgspec.json.decode((await found.engine.catalog()).document)
        assert (await found.ask(id=3, op="tools"))["result"] == document
        described = await found.ask(id=4, op="describe", tool="echo")
        assert described["result"] == next(spec for spec in document["tools"] if spec["name"] == "echo")
        unknown = await found.ask(id=5, op="describe", tool="nobody")
        assert (unknown["ok"], unknown["error"]["code"]) == (False, "TOOL_NOT_FOUND")
        misspelt = await found.ask(id=6, op="describe", tool="ecko")
        assert misspelt["error"]["details"]["near"][0] == "echo"


async def test_call() -> None:
    """The answer to a call is the body of HTTP with two more members."""
    async with served() as found:
        await found.ready()
        await found.call(1, "echo", {"text": "hi"})
        answer = await found.receive()
        assert answer["ok"] is True
        result = answer["result"]
        assert result.pop("execution_id").startswith("exec_")
        assert result.pop("duration_ms") >= 0
        assert result == {
            "status": "completed",
            "data": "hi",
            "_agent": {"cacheable": True, "next_actions": []},
            "replayed": False,
        }


async def test_failed_call() -> None:
    """A failed execution is a valid answer with the error inside."""
    async with served() as found:
        await found.ready()
        await found.call(1, "nobody")
        answer = await found.receive()
        assert answer["ok"] is True
        assert answer["result"]["status"] == "failed"
        assert answer["result"]["error"]["code"] == "TOOL_NOT_FOUND"


async def test_answers_come_as_calls_finish() -> None:
    """Calls run side by side, and nothing that a tool does keeps a ping waiting."""
    async with served() as found:
        await found.ready()
        for number in range(10):
            await found.call(number, "read", {"then": "wait", "gate": "g"})
        await found.call("thread", "thread_read", {"then": "wait", "gate": "g"})
        assert (await found.ask(id="ping", op="ping"))["id"] == "ping"
        await found.arrived("g", 11)
        await found.call("echo", "echo", {"text": "a"})
        assert (await found.receive())["id"] == "echo"
        found.stage.open("g")
        ids = {(await found.receive())["id"] for _ in range(11)}
        assert ids == {*range(10), "thread"}


async def test_a_lone_call_holds_nobody_up() -> None:
    """While a call runs that came alone, and again while the next one does, others are read, run and answered."""
    async with served() as found:
        await found.ready()
        for call in ("a", "b"):
            await found.call(call, "read", {"then": "wait", "gate": call})
            await found.arrived(call)
            assert (await found.ask(id=1, op="ping"))["id"] == 1
            await found.call(2, "echo", {"text": "hi"})
            assert (await found.receive())["result"]["data"] == "hi"
            await found.send(id=3, op="cancel", target=call)
            assert {(await found.receive())["id"] for _ in range(2)} == {3, call}
        assert await finish(found) == []
        assert found.ending is ConnectionEnd.END


async def test_bad_messages() -> None:
    """Each bad message gets one refusal, and the connection goes on."""
    async with served() as found:
        await found.ready()
        for message in (b"garbage", b"null", b"[]", b'{"op":"ping"}', b'{"id":1,"op":"ping"'):
            await found.peer.send(message)
            frame = await found.receive()
            assert (frame["id"], frame["ok"], frame["error"]["code"]) == (None, False, "INVALID_REQUEST")
        assert (await found.ask(id=1, op="fly"))["error"]["code"] == "UNKNOWN_OP"
        assert (await found.ask(id=1, op="ping"))["ok"] is True


async def test_same_id_twice() -> None:
    """A second call with the id of an unanswered one is refused; the first is answered all the same."""
    async with served() as found:
        await found.ready()
        await found.call("a", "read", {"then": "wait", "gate": "g"})
        await found.call("a", "echo", {"text": "b"})
        refusal = await found.receive()
        assert (refusal["id"], refusal["ok"], refusal["error"]["code"]) == ("a", False, "INVALID_REQUEST")
        found.stage.open("g")
        assert (await found.receive())["result"]["data"] == "done"


async def test_cancel_by_target() -> None:
    """A cancel is answered, the call gets its one answer, and a second cancel changes nothing."""
    async with served() as found:
        await found.ready()
        await found.call("a", "read", {"then": "wait", "gate": "g"})
        await found.arrived("g")
        await found.send(id="c", op="cancel", target="a")
        frames = {(frame := await found.receive())["id"]: frame for _ in range(2)}
        assert frames["c"] == {"id": "c", "ok": True, "result": {"cancelled": True}}
        assert frames["a"]["result"]["status"] == "cancelled"
        assert frames["a"]["result"]["error"]["details"]["cause"] == "caller"
        for target in ("a", "nobody", 1):
            assert (await found.ask(id="c", op="cancel", target=target))["result"] == {"cancelled": False}
        assert await found_idle(found)


async def found_idle(found: Served) -> bool:
    """Whether the engine runs nothing, after everything had its turn."""
    await trio.testing.wait_all_tasks_blocked()
    return found.engine.statistics().running == 0


async def test_cancel_by_execution_id() -> None:
    """An execution can be cancelled by its id, which is in the first event of a stream."""
    async with served() as found:
        await found.ready()
        await found.call("a", "read", {"then": "wait", "gate": "g"}, stream=True)
        execution_id = (await found.receive())["data"]["execution_id"]
        assert (await found.receive())["event"] == "tool.started"
        await found.send(id="c", op="cancel", execution_id=execution_id)
        frames = [await found.receive() for _ in range(4)]
        assert {"id": "c", "ok": True, "result": {"cancelled": True}} in frames
        mine = [frame for frame in frames if frame["id"] == "a"]
        assert [frame.get("event") for frame in mine] == ["tool.completed", "execution.completed", None]
        assert mine[-1]["result"]["status"] == "cancelled"
        assert mine[-1]["result"]["execution_id"] == execution_id
        assert (await found.ask(id="c", op="cancel", execution_id=execution_id))["result"] == {"cancelled": False}


@pytest.mark.parametrize("stream", [False, True])
async def test_cancel_right_behind_the_call(stream: bool) -> None:
    """A cancel in the next message always finds its call, which gets one answer, whether its tool had begun or not."""
    async with served(size=math.inf) as found:
        await found.ready()
        for number in range(100):
            await found.call(number, "write", {"tag": "t", "then": "wait", "gate": "g"}, stream=stream)
            await found.send(id="c", op="cancel", target=number)
            answers = 0
            while answers < 2:
                frame = await found.receive()
                if "ok" in frame:
                    answers += 1
                    wanted = {"cancelled": True} if frame["id"] == "c" else "cancelled"
                    assert (frame["result"] if frame["id"] == "c" else frame["result"]["status"]) == wanted
        assert await found_idle(found)


async def test_who_sees_the_answer_decides_what_is_kept() -> None:
    """A write that was cancelled is recorded; one whose caller has gone counts as interrupted."""
    async with served() as found:
        await found.ready()
        for gone, code, state in ((False, "CANCELLED", None), (True, "EXECUTION_UNCERTAIN", "interrupted")):
            gate, call = f"g{gone}", {"tag": "t", "then": "wait", "gate": f"g{gone}"}
            await found.call("a", "write", call, request_id=gate)
            await found.arrived(gate)
            await found.send(id="c", op="cancel", target="a", gone=gone)
            frames = {(frame := await found.receive())["id"]: frame for _ in range(2)}
            assert frames["a"]["result"]["status"] == "cancelled"
            await found.call("b", "write", call, request_id=gate)
            again = (await found.receive())["result"]
            assert again["error"]["code"] == code
            assert again["error"]["details"].get("state") == state
            assert again["replayed"] is not gone


async def test_stream() -> None:
    """With stream, every event comes before the answer, numbered without gaps."""
    async with served() as found:
        await found.ready()
        await found.call(1, "partials", {"count": 3}, stream=True)
        frames = [await found.receive() for _ in range(8)]
        kinds = [frame.get("event") for frame in frames]
        assert kinds == [
            "execution.started",
            "tool.started",
            *["tool.progress"] * 3,
            "tool.completed",
            "execution.completed",
            None,
        ]
        assert [frame["seq"] for frame in frames[:-1]] == list(range(7))
        assert [frame["data"]["partial"] for frame in frames[2:5]] == ["0:........", "1:........", "2:........"]
        last, answer = frames[-2]["data"], frames[-1]["result"]
        assert answer.pop("duration_ms") >= 0
        assert answer == last


async def test_end_of_input() -> None:
    """Calls that were accepted before the end of input are answered."""
    async with served(size=math.inf) as found:
        await found.ready()
        for number in range(20):
            await found.call(number, "echo", {"text": str(number)})
        frames = await finish(found)
        assert sorted(frame["id"] for frame in frames) == list(range(20))
        assert found.ending is ConnectionEnd.END


async def test_drain_limit(autojump_clock: trio.testing.MockClock) -> None:
    """Accepted calls that take too long after the end of input are cancelled, and still answered."""
    async with served(drain_seconds=3.0) as found:
        await found.ready()
        await found.call(1, "sleep", {"seconds": 2})
        await found.call(2, "sleep", {"seconds": 20})
        await found.call(3, "write", {"then": "wait", "gate": "g"})
        frames = {frame["id"]: frame["result"] for frame in await finish(found)}
        assert frames[1]["status"] == "completed"
        assert frames[2]["error"]["code"] == "SHUTTING_DOWN"
        assert frames[3]["error"]["code"] == "SHUTTING_DOWN"
        assert frames[3]["error"]["details"]["phase"] == "running"


async def test_lost_connection() -> None:
    """When the peer has gone, its calls are cancelled with that cause."""
    async with served() as found:
        await found.ready()
        await found.call(1, "write", {"then": "wait", "gate": "g"})
        await found.arrived("g")
        await found.peer.send_break()
        with trio.fail_after(5):
            await found.done.wait()
        assert found.ending is ConnectionEnd.LOST
        assert found.engine.audit.newest(1)[0].cause is Cause.DISCONNECT


async def test_shutdown() -> None:
    """When the engine shuts down, running calls are still answered, new ones are refused, and then serving ends."""
    async with served() as found, trio.open_nursery() as nursery:
        await found.ready()
        await found.call(1, "read", {"then": "wait", "gate": "g"})
        await found.arrived("g")
        nursery.start_soon(found.engine.shut_down, 0.2)
        await found.engine.stopping.wait()
        await found.call(2, "echo", {"text": "a"})
        late = await found.receive()
        assert (late["id"], late["result"]["error"]["code"]) == (2, "SHUTTING_DOWN")
        cut = await found.receive()
        assert (cut["id"], cut["result"]["error"]["code"]) == (1, "SHUTTING_DOWN")
        with trio.fail_after(5):
            await found.done.wait()
        assert found.ending is ConnectionEnd.STOPPED


async def test_peer_that_reads_nothing_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    """A peer that takes no message for the time limit is given up, and its calls with it."""
    async with served(size=0, write_seconds=5.0) as found:
        await found.ready()
        await found.call(1, "read", {"then": "wait", "gate": "g"})
        await found.call(2, "echo", {"text": "a"})
        await found.done.wait()
        assert found.ending is ConnectionEnd.LOST
        assert await found_idle(found)


async def test_peer_that_reads_nothing_cannot_hold_a_shutdown(autojump_clock: trio.testing.MockClock) -> None:
    """Without any time limit for writing, shutdown still ends, within seconds."""
    async with served(size=0, write_seconds=math.inf) as found:
        await found.ready()
        await found.call(1, "echo", {"text": "a"})
        await found.call(2, "partials", {"count": 100, "size": 100_000}, stream=True)
        began = trio.current_time()
        await found.engine.shut_down(1)
        await found.done.wait()
        assert trio.current_time() - began < 8
        assert found.ending in (ConnectionEnd.LOST, ConnectionEnd.STOPPED)


async def test_cancelled_server(autojump_clock: trio.testing.MockClock) -> None:
    """A server that is cancelled while its peer reads nothing ends within the flush limit."""
    async with served(size=0, write_seconds=math.inf) as found:
        await found.ready()
        await found.call(1, "echo", {"text": "a"})
        await trio.testing.wait_all_tasks_blocked()
    assert not found.done.is_set()  # it was cancelled, and the block has ended


async def test_slow_reader_loses_nothing() -> None:
    """Answers larger than all buffers wait for a slow reader, and arrive; calls beyond that wait before they run."""
    async with served(size=0) as found:
        await found.ready()
        for number in range(40):
            await found.call(number, "echo", {"text": "x" * 1000, "times": 200})
        await trio.testing.wait_all_tasks_blocked()
        assert len(found.engine.audit.newest()) < 20
        answers = [await found.receive() for _ in range(40)]
        assert sorted(answer["id"] for answer in answers) == list(range(40))
        assert all(len(answer["result"]["data"]) == 200_000 for answer in answers)


async def test_progress_flood() -> None:
    """A flood of reports merges while the reader is slow; the newest and the answer arrive."""
    async with served(size=0) as found:
        await found.ready()
        await found.call(1, "progress", {"count": 100_000, "message": "x" * 1000}, stream=True)
        await found.call(2, "echo", {"text": "a"})
        frames: list[dict[str, Any]] = []
        while sum("ok" in frame for frame in frames) < 2:
            frames.append(await found.receive())
            await trio.testing.wait_all_tasks_blocked()
        reports = [frame["data"]["progress"] for frame in frames if frame.get("event") == "tool.progress"]
        assert len(reports) < 5_000
        assert reports[-1] == 100_000
        assert [frame["seq"] for frame in frames if "seq" in frame] == list(range(len(frames) - 2))


async def test_too_many_calls_on_one_connection() -> None:
    """More calls than a connection may have unanswered are refused at once."""
    async with served(size=math.inf) as found:
        limit = (await found.ready())["limits"]["max_calls"]
        for number in range(limit + 1):
            await found.call(number, "sleep", {"seconds": 20})
        refusal = await found.receive()
        assert (refusal["id"], refusal["ok"], refusal["error"]["code"]) == (limit, False, "OVERLOADED")


class Failing(BoundEngine):
    """An engine whose catalog raises."""

    def __init__(self, engine: BoundEngine, escape: str) -> None:
        super().__init__(engine._engine, engine._caller)
        self._escape = escape

    def bind(self, **_: object) -> Failing:
        return self

    async def catalog(self) -> Catalog:
        raise made(self._escape)


@pytest.mark.parametrize("escape", ESCAPES)
async def test_a_connection_that_cannot_begin_fails_with_an_exception(escape: str) -> None:
    """Whatever is raised while the first frame is made leaves as an `Exception`: its transport can log that, and close."""
    _, theirs = channel_pair()
    async with App("empty").open() as engine:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any will do, and no other base class
            await serve_channel(
                Failing(engine.bind(), escape), theirs, server="fails", stopped=engine.stopped, drain_seconds=1
            )
    assert isinstance(caught.value, Exception)
