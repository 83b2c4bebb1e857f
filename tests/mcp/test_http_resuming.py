"""Streams over HTTP whose connection is lost, and that their client resumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import trio
import trio.testing

from carmy_engine import AgentContext, Cause, McpSettings, tool
from tests.mcp.http import Caller, calling, is_running, last_record, reaches
from tests.support.http import Client, Running, front_end, serving

go_on = trio.Event()


@tool(effect="write", parallel_safe=True, register=False)
async def staged(ctx: AgentContext) -> str:
    """Report, wait, and report again."""
    ctx.progress.report(1, 2)
    await go_on.wait()
    ctx.progress.report(2, 2)
    return "done"


@pytest.fixture(autouse=True, params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Literal["hypercorn", "native"]]:
    """The name of the front end."""
    global go_on
    go_on = trio.Event()
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)


async def begun(caller: Caller) -> bytes:
    """Begin a call, and read its stream up to the first report. Returns the id of its event."""
    await caller.send("tools/call", {"progressToken": "t"}, name="staged", arguments={})
    status, headers = await caller.client.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    seen = b""
    with trio.fail_after(20):
        while b'"progress":1' not in seen:
            seen += await caller.client.chunk()
    assert b"retry: " in seen
    ids = [line.removeprefix(b"id: ") for line in seen.split(b"\n") if line.startswith(b"id: ")]
    assert len(ids) == 2  # that of the opening, and that of the report
    return ids[-1]


async def resumed(server: Running, caller: Caller, last_id: bytes) -> str:
    """The rest of the stream, read on another connection."""
    headers = {"accept": "text/event-stream", "mcp-session-id": caller.session or "", "last-event-id": last_id.decode()}
    with trio.fail_after(20):
        answer = await server.get("/mcp", headers)
    assert answer.status == 200
    return answer.body.decode()


async def test_a_call_survives_its_connection() -> None:
    """After a reset the client gets the rest with ``Last-Event-ID``, and nothing twice."""
    async with serving(staged) as server, calling(server) as caller:
        last_id = await begun(caller)
        caller.client.reset()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def later() -> None:
                await trio.testing.wait_all_tasks_blocked(0.05)
                go_on.set()

            rest = await resumed(server, caller, last_id)
        assert '"progress":1' not in rest
        assert '"progress":2' in rest
        assert '"structuredContent":{"result":"done"}' in rest
        assert (await last_record(server.engine)).error_code is None


async def test_an_answer_waits_for_its_client() -> None:
    """An answer that came without a reader is there when the client comes back; afterwards the stream is gone."""
    async with serving(staged) as server, calling(server) as caller:
        last_id = await begun(caller)
        caller.client.reset()
        go_on.set()
        await is_running(server.engine, 0)
        assert '"result":"done"' in await resumed(server, caller, last_id)


async def test_a_client_that_does_not_come_back() -> None:
    """Its call is cancelled when its time is over, with the cause ``disconnect``."""
    settings: dict[str, Any] = {"mcp": McpSettings(resume_timeout_secs=0.05)}
    async with serving(staged, settings=settings) as server, calling(server) as caller:
        await begun(caller)
        caller.client.reset()
        assert (await last_record(server.engine)).cause is Cause.DISCONNECT


async def test_whose_stream_it_is() -> None:
    """In another session an event id resumes nothing: the client gets the stream of its own session."""
    async with serving(staged) as server, calling(server) as caller, calling(server) as other:
        last_id = await begun(caller)
        async with server.client() as listening:
            await listen(listening, other, last_id)
            with trio.move_on_after(0.1):
                while b"jsonrpc" not in (chunk := await listening.chunk()):
                    assert chunk == b": open\n\n"
                raise AssertionError(chunk)
        go_on.set()


async def listen(client: Client, caller: Caller, last_id: bytes) -> None:
    """Ask for a stream."""
    lines = f"accept: text/event-stream\r\nmcp-session-id: {caller.session}\r\nlast-event-id: {last_id.decode()}\r\n"
    await client.send(f"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n{lines}\r\n".encode())
    assert (await client.head())[0] == 200


async def test_a_second_reader_takes_over() -> None:
    """A client that reconnects before the server has noticed the loss gets the rest; the old connection gets no more."""
    async with serving(staged) as server, calling(server) as caller, server.client() as second:
        last_id = await begun(caller)
        await listen(second, caller, last_id)
        assert await second.chunk() == b": open\n\n"
        go_on.set()
        seen = b""
        with trio.fail_after(20):
            while b'"done"' not in seen:
                seen += await second.chunk()
        assert b'"progress":2' in seen
        await reaches(lambda: server.engine.statistics().running == 0)
