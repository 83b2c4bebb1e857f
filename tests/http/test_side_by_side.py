"""Calls of many clients at the same time: none waits for another, and none sees what another has set."""

from __future__ import annotations

import contextlib
import contextvars
import socket

import trio

from carmy_engine import tool
from tests.http.tools import echo
from tests.support.http import JSON, render, serving

LIMIT = 20.0
"""Seconds, for what takes a fraction of one."""


class Gate:
    """A tool that waits until all are there."""

    def __init__(self, calls: int) -> None:
        self.arrived = 0
        self.all_there = trio.Event()

        @tool(effect="none", parallel_safe=True, register=False)
        async def gather(number: int) -> int:
            """Wait for the others."""
            self.arrived += 1
            if self.arrived == calls:
                self.all_there.set()
            await self.all_there.wait()
            return number

        self.tool = gather


async def test_calls_that_wait_hold_nobody() -> None:
    """Fifty calls that wait for one another, in two rounds on the same connections, are all answered, each with its own."""
    gates = Gate(50), Gate(50)

    async def talk(number: int, ready: trio.Event) -> None:
        async with servers[number % 2].client() as client:
            await ready.wait()
            for _ in range(2):
                answer = await client.call("gather", arguments={"number": number})
                assert answer.json["data"] == number

    async with serving(gates[0].tool, echo) as first, serving(gates[1].tool, echo) as second:
        servers = first, second
        with trio.fail_after(LIMIT):
            before = trio.lowlevel.current_statistics().tasks_living
            async with trio.open_nursery() as nursery:
                ready = trio.Event()
                for number in range(100):
                    nursery.start_soon(talk, number, ready)
                ready.set()
            for server in servers:
                assert (await server.call("echo")).status == 200
            while trio.lowlevel.current_statistics().tasks_living > before:
                await trio.lowlevel.checkpoint()


async def test_quick_calls_do_not_wait_for_one_that_comes_with_them() -> None:
    """Of calls that arrive at the same moment, those that can be answered are, while others wait."""
    gate = Gate(2)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(gate.tool, echo))
        clients = [await stack.enter_async_context(server.client()) for _ in range(21)]
        with trio.fail_after(LIMIT):
            for client in clients:
                assert (await client.call("echo")).status == 200  # all are served where the server keeps them
            for number, client in enumerate(clients):
                body = b'{"tool":"echo","arguments":{"text":"quick"}}'
                if number == 10:
                    body = b'{"tool":"gather","arguments":{"number":10}}'
                await client.send(render("POST", "/agent/execute", {"content-type": JSON}, body))
            quick = [client for number, client in enumerate(clients) if number != 10]
            for client in quick:
                assert (await client.answer()).json["data"] == "quick"
            assert (await quick[0].call("gather", arguments={"number": 0})).json["data"] == 0
            assert (await clients[10].answer()).json["data"] == 10


async def test_what_a_call_sets_is_its_own() -> None:
    """A context variable that one tool sets is not there for the next call of another client."""
    variable = contextvars.ContextVar("variable", default="nothing")

    @tool(effect="none", parallel_safe=True, register=False)
    async def swap(value: str, wait: bool) -> str:
        """Set it, and tell what it was."""
        before = variable.get()
        variable.set(value)
        if wait:
            await trio.lowlevel.checkpoint()
            before += variable.get()
        return before

    async with serving(swap) as server:
        with trio.fail_after(LIMIT):
            seen = [
                (await server.call("swap", arguments={"value": value, "wait": wait})).json["data"]
                for value, wait in (("a", False), ("b", True), ("c", False), ("d", True))
            ]
    assert seen == ["nothing", "nothingb", "nothing", "nothingd"]


async def test_the_same_head_again() -> None:
    """Requests with the very same head are each answered for what is in their bodies, good or bad."""
    good = b'{"tool":"echo","arguments":{"text":"a"}}'
    bodies = good, good.replace(b'"a"', b"111"), good.replace(b"{", b"[", 1), good.replace(b"echo", b"ecko"), good
    assert len({len(body) for body in bodies}) == 1
    async with serving(echo) as server, server.client() as client:
        with trio.fail_after(LIMIT):
            told = [
                (answer.status, answer.code)
                for body in bodies
                if (answer := await client.request("POST", "/agent/execute", {"content-type": JSON}, body))
            ]
    assert told == [
        (200, None),
        (400, "INVALID_ARGUMENTS"),
        (400, "INVALID_REQUEST"),
        (404, "TOOL_NOT_FOUND"),
        (200, None),
    ]


async def test_a_head_that_is_refused_again() -> None:
    """A head that is refused is refused each time, and the connection serves others in between."""
    body = b'{"tool":"echo"}'
    async with serving(echo) as server, server.client() as client:
        with trio.fail_after(LIMIT):
            told = [
                (await client.request("POST", "/agent/execute", headers, body)).code
                for headers in ({"content-type": JSON, "host": "evil.example"}, {"content-type": "text/plain"}) * 2
            ]
    assert told == ["FORBIDDEN", "INVALID_REQUEST"] * 2


async def test_a_client_that_asks_and_does_not_read() -> None:
    """Once nothing more fits on its way, its answers wait; others are served meanwhile, and it gets each answer when it reads."""
    calls = 0

    @tool(effect="none", parallel_safe=True, register=False)
    async def count() -> tuple[int, str]:
        """Say much, and how often."""
        nonlocal calls
        calls += 1
        return calls, "x" * 10_000

    request = render("POST", "/agent/execute", {"content-type": JSON}, b'{"tool":"count"}')
    async with serving(count, echo) as server, server.client() as client:
        with trio.fail_after(LIMIT):
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asked = 0
            while asked == calls and asked < 2_000:
                await client.send(request)
                asked += 1
                for _ in range(200):
                    if calls == asked:
                        break
                    await trio.lowlevel.checkpoint()
            assert (await server.call("echo")).status == 200
            assert [(await client.answer()).json["data"][0] for _ in range(asked)] == [*range(1, asked + 1)]
            assert (await client.call("echo")).status == 200


async def test_requests_behind_a_long_answer() -> None:
    """Requests that come while a long answer is on its way to a slow reader are answered after it."""
    size = 4 * 1024 * 1024

    @tool(effect="none", parallel_safe=True, register=False)
    async def long() -> str:
        """Say much."""
        return "x" * size

    body = b'{"tool":"echo","arguments":{"text":"behind"}}'
    async with serving(long, echo) as server, server.client() as client:
        with trio.fail_after(LIMIT):
            for _ in range(2):
                await client.send(render("POST", "/agent/execute", {"content-type": JSON}, b'{"tool":"long"}'))
                status, headers = await client.head()
                await client.send(render("POST", "/agent/execute", {"content-type": JSON}, body))
                assert (await server.call("echo")).status == status == 200
                assert len(await client.exactly(int(headers["content-length"]))) > size
                assert (await client.answer()).json["data"] == "behind"
