"""Peers that are not ours: another library at the other end."""

from __future__ import annotations

import json

import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, open_websocket_url, serve_websocket

from carmy_engine import ExecutionRequest
from carmy_websocket import open_websocket
from tests.support.websocket import serving


async def test_another_client() -> None:
    """A client of another library is served, pinged and closed as ours is."""
    async with serving() as server:
        with trio.fail_after(10):
            async with open_websocket_url(server.url, subprotocols=["carmy-frames.1"]) as connection:
                assert connection.subprotocol == "carmy-frames.1"
                assert json.loads(await connection.get_message())["event"] == "ready"
                for number in range(3):
                    text = "é" * 40_000 * number
                    call = {"id": number, "op": "call", "tool": "echo", "arguments": {"text": text}}
                    await connection.send_message(json.dumps(call))
                    answer = json.loads(await connection.get_message())
                    assert (answer["id"], answer["result"]["data"]) == (number, text)
                await connection.ping()
            assert connection.closed is not None
            assert connection.closed.code == 1000
        await server.idle()


async def test_another_server() -> None:
    """Our client speaks to a server of another library, which pings, and closes as it should."""
    closed: list[int] = []
    done = trio.Event()

    async def serve(request: WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=request.proposed_subprotocols[0])
        ready = {
            "event": "ready",
            "protocol": "carmy-frames/1",
            "server": "another",
            "tools": 0,
            "tools_version": "",
            "limits": {"max_message_bytes": 4194304, "max_calls": 1000},
        }
        await connection.send_message(json.dumps(ready))
        frame = json.loads(await connection.get_message())
        await connection.ping()
        body = {"execution_id": "exec_1", "status": "completed", "data": frame["arguments"]["text"]}
        await connection.send_message(json.dumps({"id": frame["id"], "ok": True, "result": body}))
        with pytest.raises(ConnectionClosed) as caught:
            await connection.get_message()
        assert caught.value.reason is not None
        closed.append(caught.value.reason.code)
        done.set()

    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, serve, "127.0.0.1", 0, None)
        with trio.fail_after(10):
            async with open_websocket(f"ws://127.0.0.1:{server.port}/agent/ws") as client:
                text = "é" * 100_000
                result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": text}))
                assert result.data == text
            await done.wait()
        nursery.cancel_scope.cancel()
    assert closed == [1000]
