"""Looking at and cancelling executions by id."""

from __future__ import annotations

import json

import trio

from carmy_engine import AgentContext, BearerTokens
from tests.http.tools import delete, echo, sleep
from tests.support.http import JSON, Client, serving

ANA, BOB = {"authorization": "Bearer ana"}, {"authorization": "Bearer bob"}
EVE = {"authorization": "Bearer eve"}
TOKENS = BearerTokens(
    {
        "ana": AgentContext(principal="ana"),
        "bob": AgentContext(principal="bob"),
        "eve": AgentContext(principal="eve", permissions=frozenset({"executions:list"})),
    }
)


async def begin(client: Client) -> str:
    """Start a long call as a stream; return its id."""
    body = json.dumps({"tool": "sleep", "arguments": {"seconds": 60}, "request_id": "r"}).encode()
    head = (
        "POST /agent/execute HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ana\r\naccept: text/event-stream\r\n"
    )
    await client.send(head.encode() + f"content-type: {JSON}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    await client.head()
    started = await client.chunk()
    while b"tool.started" not in started:
        started += await client.chunk()
    execution_id: str = json.loads(started.split(b"data: ")[1].split(b"\n")[0])["execution_id"]
    return execution_id


async def test_look_and_cancel() -> None:
    """A running execution is shown and cancelled by its principal only; its call still gets its own answer."""
    async with serving(sleep, authenticator=TOKENS) as server, server.client() as client:
        with trio.fail_after(10):
            path = f"/agent/executions/{await begin(client)}"
            shown = await server.get(path, ANA)
            assert (shown.status, shown.json["state"], shown.json["request_id"]) == (200, "running", "r")
            assert shown.headers["cache-control"] == "no-store"
            for method in ("GET", "DELETE"):
                assert (await server.get(path, BOB, method=method)).code == "EXECUTION_NOT_FOUND"
            cancelled = await server.get(path, ANA, method="DELETE")
            assert (cancelled.status, cancelled.json["cancelled"]) == (202, True)
            rest = await client.until(b"\r\n0\r\n\r\n")
            assert b'"CANCELLED"' in rest
            shown = await server.get(path, ANA)
            assert (shown.json["state"], shown.json["result"]["error"]["code"]) == ("finished", "CANCELLED")
            again = await server.get(path, ANA, method="DELETE")
            assert (again.status, again.json["cancelled"]) == (202, False)


async def test_finished_execution() -> None:
    """A finished execution is shown with the body that its caller got."""
    async with serving(echo) as server:
        call = await server.call("echo", arguments={"text": "x"})
        shown = await server.get(f"/agent/executions/{call.json['execution_id']}")
    assert shown.json["result"] == call.json
    assert set(shown.json) == {"execution_id", "tool", "state", "started_at", "result"}


async def test_unknown_execution() -> None:
    """Unknown ids, whatever they look like, are not found."""
    async with serving(echo) as server:
        for name in ("exec_0", "%2e%2e", "x" * 3000, "%ff"):
            for method in ("GET", "DELETE"):
                answer = await server.get(f"/agent/executions/{name}", method=method)
                assert (answer.status, answer.code) == (404, "EXECUTION_NOT_FOUND")


async def test_list() -> None:
    """A caller that has the permission sees everybody's executions, newest first, and nothing of what was sent or answered."""
    async with serving(sleep, echo, delete, authenticator=TOKENS) as server, server.client() as client:
        with trio.fail_after(10):
            running = await begin(client)
            secret = await server.call("echo", headers=ANA, arguments={"text": "a secret"})
            refused = await server.call("delete", headers=ANA, arguments={"name": "a secret"})
            listed = await server.get("/agent/executions", EVE)
        assert (listed.status, listed.headers["cache-control"]) == (200, "no-store")
        assert b"secret" not in listed.body
        newest, middle, oldest = listed.json["executions"]
        assert (newest["execution_id"], newest["status"]) == (refused.json["execution_id"], "failed")
        assert newest["error_code"] == "CONFIRMATION_REQUIRED"
        assert (middle["execution_id"], middle["status"]) == (secret.json["execution_id"], "completed")
        assert oldest == {
            "execution_id": running,
            "tool": "sleep",
            "state": "running",
            "started_at": oldest["started_at"],
            "request_id": "r",
            "principal": "ana",
            "transport": "http",
        }
        assert (await server.get("/agent/executions", EVE, method="HEAD")).status == 200


async def test_list_without_the_permission() -> None:
    """Anybody else is refused, whether authenticated or anonymous; no caller can delete the list."""
    async with serving(echo, authenticator=TOKENS) as server:
        answer = await server.get("/agent/executions", ANA)
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
        assert (await server.get("/agent/executions")).status == 401
        answer = await server.get("/agent/executions", EVE, method="DELETE")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    async with serving(echo) as server:
        assert (await server.get("/agent/executions")).status == 403
