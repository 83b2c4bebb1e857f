"""From the first signal to the end: what running, waiting, idle and new clients see."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest
import trio

from carmy_engine import AgentContext, tool
from tests.http.tools import big, echo
from tests.support.http import JSON, Client, Running, render, serving


class Gate:
    """A tool that waits to be let through."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.open = trio.Event()

        @tool(effect="write", parallel_safe=True, register=False)
        async def gate() -> str:
            """Wait."""
            self.started.set()
            await self.open.wait()
            return "through"

        self.tool = gate


async def start(client: Client, name: str, accept: str = JSON) -> None:
    headers = {"content-type": JSON, "accept": accept}
    await client.send(render("POST", "/agent/execute", headers, json.dumps({"tool": name}).encode()))


async def refuses_connections(server: Running) -> bool:
    try:
        async with server.client():
            return False
    except OSError:
        return True


async def test_stages_of_the_drain() -> None:
    """Stopping closes the listener and idle connections; running calls end well, and theirs are last answers."""
    gate = Gate()
    async with (
        serving(gate.tool, echo) as server,
        server.client() as idle,
        server.client() as busy,
        trio.open_nursery() as nursery,
    ):
        with trio.fail_after(10):
            await idle.request("GET", "/health")
            await start(busy, "gate")
            await gate.started.wait()
            nursery.start_soon(server.engine.shut_down)
            assert await idle.is_closed()
            assert await refuses_connections(server)
            gate.open.set()
            answer = await busy.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await busy.is_closed()


async def test_new_calls_during_the_drain() -> None:
    """A call on a connection that is still open is refused with 503, Retry-After and SHUTTING_DOWN; readiness is false."""
    gate = Gate()
    for path, code in [("/agent/execute", "SHUTTING_DOWN"), ("/ready", None)]:
        async with serving(gate.tool, echo) as server, server.client() as client:
            with trio.fail_after(10):
                await client.send(b"POST " if path == "/agent/execute" else b"GET ")
                # Once this is answered the bytes above have arrived, so the connection is not idle when the drain begins.
                assert (await server.get("/health")).status == 200
                server.engine.stop()
                while not await refuses_connections(server):
                    await trio.lowlevel.checkpoint()
                body = b'{"tool":"echo"}'
                rest = (
                    f"{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\ncontent-length: {len(body)}\r\n\r\n"
                )
                await client.send(rest.encode() + body)
                answer = await client.answer()
                assert (answer.status, answer.headers["connection"]) == (503, "close")
                if code is None:
                    assert answer.json["checks"]["engine"]["error"]["code"] == "SHUTTING_DOWN"
                else:
                    assert answer.code == code
                    assert int(answer.headers["retry-after"]) > 0
                server.engine.stopped.set()


async def test_a_request_that_was_on_its_way() -> None:
    """A request that comes on an idle connection just after the server has stopped listening is answered, for the last time."""
    gate = Gate()
    async with (
        serving(gate.tool, echo, http={"last_request_secs": 30.0}) as server,
        server.client() as idle,
        server.client() as new,
        server.client() as busy,
    ):
        with trio.fail_after(10):
            assert (await idle.call("echo")).status == 200
            await start(busy, "gate")
            await gate.started.wait()
            server.engine.stop()
            while not await refuses_connections(server):
                await trio.lowlevel.checkpoint()
            for client in (idle, new):
                answer = await client.call("echo")
                assert (answer.status, answer.code, answer.headers["connection"]) == (503, "SHUTTING_DOWN", "close")
                assert await client.is_closed()
            gate.open.set()
            assert (await busy.answer()).status == 200


async def test_connections_that_nobody_has_accepted_yet() -> None:
    """Every client that has connected and asked before the listener closes is answered."""
    request = render("GET", "/ready")
    async with serving(echo, http={"last_request_secs": 30.0}) as server, contextlib.AsyncExitStack() as stack:
        waiting: list[socket.socket] = []
        for _ in range(50):
            waiting.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port))))
            waiting[-1].sendall(request)
        server.engine.stop()
        with trio.fail_after(10):
            for sock in waiting:
                client = Client(trio.SocketStream(trio.socket.from_stdlib_socket(sock)))
                answer = await client.answer()
                assert (answer.status, answer.headers["connection"]) == (503, "close")


async def test_no_answer_is_the_last_one_without_saying_so() -> None:
    """An answer that was on its way when the server stopped, and does not say that it is the last one, is followed by one more."""
    size = 4 * 1024 * 1024
    body = b'{"tool":"big","arguments":{"size":%d}}' % size
    async with serving(big, echo, http={"last_request_secs": 30.0}) as server, server.client() as client:
        with trio.fail_after(10):
            await client.send(render("POST", "/agent/execute", {"content-type": JSON}, body))
            status, headers = await client.head()
            assert (status, "connection" in headers) == (200, False)
            server.engine.stop()
            while not await refuses_connections(server):
                await trio.lowlevel.checkpoint()
            await client.exactly(int(headers["content-length"]))
            answer = await client.call("echo")
            assert (answer.code, answer.headers["connection"]) == ("SHUTTING_DOWN", "close")
            assert await client.is_closed()


@pytest.mark.parametrize("accept", [JSON, "text/event-stream"])
async def test_calls_that_do_not_end_are_cancelled_and_answered(accept: str) -> None:
    """What outlasts the drain is cancelled with cause shutdown and still gets its last answer, saying that it had begun."""
    gate = Gate()
    async with serving(gate.tool, settings={"drain_timeout_secs": 0.05}) as server, server.client() as client:
        with trio.fail_after(10):
            await start(client, "gate", accept)
            await gate.started.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.engine.shut_down)
                answer = await client.answer()
            assert b'"SHUTTING_DOWN"' in answer.body
            assert b'"phase":"running"' in answer.body
            assert answer.status == (503 if accept == JSON else 200)
            assert await client.is_closed()


async def test_serve_returns_when_the_engine_has_stopped() -> None:
    """The transport returns by itself after the engine has stopped, with all clients answered."""
    async with serving(echo) as server, server.client() as client:
        assert (await client.call("echo")).status == 200
        with trio.fail_after(10):
            await server.engine.shut_down()
            assert await client.is_closed()
            await server.ended.wait()


async def test_an_answer_that_is_half_sent_is_sent_to_its_end() -> None:
    """A long answer that was on its way when the server stopped arrives whole."""
    size = 4 * 1024 * 1024
    async with serving(big) as server, server.client() as client, trio.open_nursery() as nursery:
        with trio.fail_after(10):
            await client.send(
                render(
                    "POST", "/agent/execute", {"content-type": JSON}, b'{"tool":"big","arguments":{"size":%d}}' % size
                )
            )
            status, headers = await client.head()
            nursery.start_soon(server.engine.shut_down)
            await server.engine.stopping.wait()
            assert (status, len(await client.exactly(int(headers["content-length"]))) > size) == (200, True)
            assert await client.is_closed()


async def test_a_client_that_never_reads_cannot_hold_the_process() -> None:
    """A chatty stream that no client reads is cut off once the flush is over, long before its write would time out."""
    started = trio.Event()

    @tool(effect="none", parallel_safe=True, register=False)
    async def chatter(ctx: AgentContext) -> None:
        """Never stop."""
        started.set()
        while True:
            await ctx.progress.partial("x" * 50_000)

    async with (
        serving(chatter, http={"flush_timeout_secs": 0.1}, settings={"drain_timeout_secs": 0.05}) as server,
        server.client() as client,
    ):
        with trio.fail_after(8):  # a write may take ten
            await start(client, "chatter", "text/event-stream")
            await started.wait()
            await server.engine.shut_down()
            await server.ended.wait()


async def test_cancelling_serve_closes_everything_at_once() -> None:
    """When the transport itself is cancelled, connections close and the execution is cancelled."""
    gate = Gate()
    async with serving(gate.tool) as server, server.client() as client:
        with trio.fail_after(5):
            await start(client, "gate")
            await gate.started.wait()
            server.scope.cancel()
            assert await client.is_closed()
            await server.ended.wait()
            assert server.engine.statistics().running == 0
