"""MCP over HTTP: requests that their client has cancelled, and sessions that end while something runs or arrives."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import trio
import trio.testing
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from carmy_engine import Cause
from tests.mcp.conftest import call
from tests.mcp.http import TOOLS, Caller, calling, is_running, last_record, messages
from tests.support.http import Answer, Running, front_end, serving

PROGRESS = {"progressToken": "t"}
"""In a call's ``_meta``: its answer is an event of a stream, and not one document."""


@pytest.fixture(autouse=True, params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Literal["hypercorn", "native"]]:
    """The name of the front end."""
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)


async def post_beside(server: Running, caller: Caller, message: object) -> Answer:
    """Send a message in the same session, on a connection of its own."""
    async with server.client() as client:
        other = Caller(client, caller.version)
        other.session = caller.session
        await other.post(message)
        return await client.answer()


async def delete(server: Running, caller: Caller) -> Answer:
    """End the session."""
    return await server.get("/mcp", {"mcp-session-id": caller.session or ""}, "DELETE")


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
@pytest.mark.parametrize("meta", [None, PROGRESS], ids=["document", "stream"])
async def test_a_cancelled_request_gets_no_answer(meta: dict[str, Any] | None, how: str) -> None:
    """Its response is an event stream that ends without an event, whichever form an answer would have had."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        sent = await caller.send("tools/call", meta, name="hold", arguments={})
        await is_running(server.engine)
        if how == "deleted":
            assert (await delete(server, caller)).status == 200
        else:
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": sent}}
            assert (await post_beside(server, caller, cancel)).status == 202
        answer = await caller.client.answer()
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert messages(answer) == []
        assert (await last_record(server.engine)).cause is (Cause.DISCONNECT if how == "deleted" else Cause.CALLER)
        if how == "cancelled":
            assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}


# Its generators are left to the collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["leave", "time out"])
async def test_the_official_client_leaves_with_a_call_running(how: str) -> None:
    """Its blocks end without an exception, whether it leaves while a call runs or the call has timed out there."""
    async with serving(*TOOLS) as server:
        with trio.fail_after(30):
            async with (
                streamable_http_client(f"http://127.0.0.1:{server.port}/mcp") as (incoming, outgoing),
                ClientSession(incoming, outgoing) as client,
                trio.open_nursery() as nursery,
            ):
                await client.initialize()
                if how == "leave":
                    nursery.start_soon(client.call_tool, "hold", {})
                    await is_running(server.engine)
                else:
                    with trio.move_on_after(0.2):
                        await client.call_tool("hold", {})
                nursery.cancel_scope.cancel()
        await is_running(server.engine, 0)
    gc.collect()  # of what is not another test's


MEETING: dict[str, dict[str, Any]] = {
    "notification": {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
    "response": {"jsonrpc": "2.0", "id": "unknown", "result": {}},
    "request": call(7, "echo", PROGRESS, text="hi"),
}


@pytest.mark.parametrize("head_start", range(0, 12, 2))
@pytest.mark.parametrize("kind", MEETING)
async def test_a_message_that_meets_the_end_of_its_session(
    caplog: pytest.LogCaptureFixture, kind: str, head_start: int
) -> None:
    """It is accepted or its session is unknown, and nothing is logged as an error, however the two interleave."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        answers: list[int] = []

        async def post(number: int) -> None:
            message = {**MEETING[kind], **({"id": number} if kind == "request" else {})}
            answers.append((await post_beside(server, caller, message)).status)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(post, number)
            for _ in range(head_start):
                await trio.lowlevel.checkpoint()
            assert (await delete(server, caller)).status == 200
        assert len(answers) == 20
        assert set(answers) <= {200 if kind == "request" else 202, 404}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
