"""Requests of MCP over HTTP that are damaged at random, and clients that leave at random: nothing that a client gets is a fault of ours."""

from __future__ import annotations

import json
import random

import pytest
import trio

from tests.hostile import siege
from tests.hostile.siege import LAST, converse, front_end, no_fault, parse
from tests.hostile.test_mutations import MUTATIONS
from tests.mcp.conftest import HELLO, request
from tests.mcp.http import ACCEPT, MODERN, TOOLS, calling, is_running
from tests.support.http import render, serving

__all__ = ["front_end", "no_fault"]

FAST = {"header_timeout_secs": 0.3, "body_timeout_secs": 0.3, "keep_alive_secs": 0.3}
MUTANTS = 400
TOGETHER = 40
STATUSES = {200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 431, 503}

_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}


@pytest.fixture(autouse=True)
def terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The honest request may become a part of the damaged one, so that nothing asks for the connection's end; and MCP has
    some statuses of its own.
    """
    monkeypatch.setattr(siege, "STATUSES", STATUSES)


def requests_of(session: str) -> list[bytes]:
    """Valid requests of every kind."""
    old = {**ACCEPT, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    call = {"name": "steps", "arguments": {"to": 2}, "_meta": {"progressToken": 1, "carmy/request_id": "r"}}
    new = {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}
    modern = request(1, "tools/call", name="echo", arguments={"text": "hi"}, _meta=_ENVELOPE)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    return [
        render("POST", "/mcp", ACCEPT, json.dumps(HELLO[0]).encode()),
        render("POST", "/mcp", old, json.dumps(HELLO[1]).encode()),
        render("POST", "/mcp", old, json.dumps(request(2, "tools/list")).encode()),
        render("POST", "/mcp", old, json.dumps(request(7, "tools/call", **call)).encode()),
        render("POST", "/mcp", old, json.dumps(cancel).encode()),
        render("POST", "/mcp", old, json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()),
        render("POST", "/mcp", new, json.dumps(modern).encode()),
        render(
            "POST", "/mcp", {**new, "mcp-method": "tasks/get"}, json.dumps(request(1, "tasks/get", taskId="x")).encode()
        ),
        render("DELETE", "/mcp", {"mcp-session-id": "made-up"}),
        render("GET", "/mcp", {"accept": "text/event-stream", "mcp-session-id": "made-up"}),
    ]


@pytest.mark.parametrize("first", range(0, MUTANTS, TOGETHER))
async def test_mutants(first: int) -> None:
    """Damaged requests, followed by an honest one, get valid answers, or a close, and the session goes on."""
    async with serving(*TOOLS, http=FAST) as server, calling(server) as caller:
        valid = requests_of(caller.session or "")
        statuses: set[int] = set()

        async def attack(seed: int) -> None:
            rng = random.Random(seed)
            data = bytearray(rng.choice(valid))
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                if data:
                    rng.choice(MUTATIONS)(rng, data)
            async with server.client() as client:
                answers = parse(await converse(client, bytes(data) + LAST))
                statuses.update(answer.status for answer in answers)

        with trio.fail_after(50):
            async with trio.open_nursery() as nursery:
                for seed in range(first, first + TOGETHER):
                    nursery.start_soon(attack, seed)
        assert {200, 400} <= statuses
        await is_running(server.engine, 0)
        async with calling(server) as again:  # its own session may be one that was ended
            assert (await again.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}


async def test_clients_that_leave_at_random() -> None:
    """Requests that are cut off anywhere, by an end or a reset, leave no execution, and the server answers."""
    rng = random.Random(1)
    async with serving(*TOOLS, http=FAST) as server, calling(server) as caller:
        valid = requests_of(caller.session or "")

        async def attack(data: bytes, wait: int, reset: bool) -> None:
            async with server.client() as client:
                await client.send(data)
                for _ in range(wait):
                    await trio.lowlevel.checkpoint()
                if reset:
                    client.reset()

        with trio.fail_after(50):
            for _ in range(10):
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        data = rng.choice(valid)
                        data = data[: rng.choice([len(data), len(data), rng.randrange(1, len(data))])]
                        nursery.start_soon(attack, data, rng.randrange(60), rng.random() < 0.5)
        await is_running(server.engine, 0)
        async with calling(server) as again:
            assert (await again.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}
