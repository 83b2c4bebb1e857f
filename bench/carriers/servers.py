"""The servers of `bench.transports`, each in a process of its own: ``python -m bench.carriers.servers KIND``."""

# ruff: noqa: PLC0415 - each process imports what it runs and nothing else, which counts for the cold start

from __future__ import annotations

import os
import sys
from typing import Any

import trio

from carmy_engine import App, Settings, tool

ANSWER = (
    b'{"id":1,"ok":true,"result":{"execution_id":"exec_00000000-0000-4000-8000-000000000000","status":"completed",'
    b'"data":"quiet mouse","_agent":{"cacheable":true,"next_actions":[]},"replayed":false,"duration_ms":0.050}}'
)
"""What the bare carriers answer: as long as an answer of ours."""


@tool(effect="none", idempotent=True, parallel_safe=True, register=False)
async def echo(text: str) -> str:
    """Say it again."""
    return text


async def serve_ours(kind: str) -> None:
    if kind == "stdio":
        from carmy_stdio import claim
        from carmy_stdio import serve as serve_stdio

        claim()
        async with App("bench").add(echo).open() as engine:
            await serve_stdio(engine)
        return
    serve: Any
    if kind == "http":
        from carmy_http import serve
    else:
        from carmy_websocket import serve
    app = App("bench", settings=Settings(address="127.0.0.1:0")).add(echo)
    async with app.open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(serve, engine)
        print(line.rpartition(" ")[2], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def serve_pipe() -> None:
    """Answer each line with a line."""
    buffer = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as source, trio.lowlevel.FdStream(os.dup(1)) as sink:
        async for data in source:
            *lines, buffer = (buffer + data).split(b"\n")
            for _ in lines:
                await sink.send_all(ANSWER + b"\n")


async def serve_bare_websocket() -> None:
    from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

    async def answer(request: WebSocketRequest) -> None:
        connection = await request.accept()
        try:
            while True:
                await connection.get_message()
                await connection.send_message(ANSWER.decode())
        except ConnectionClosed:
            pass

    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, answer, "127.0.0.1", 0, None)
        print(f"ws://127.0.0.1:{server.port}", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


def serve_mcp() -> None:
    from mcp.server import MCPServer

    server = MCPServer("bench")

    async def again(text: str) -> str:
        """Say it again."""
        return text

    server.add_tool(again, name="echo")
    server.run("stdio")


def main(kind: str) -> None:
    if kind == "mcp":
        serve_mcp()
    elif kind == "pipe":
        trio.run(serve_pipe)
    elif kind == "bare_websocket":
        trio.run(serve_bare_websocket)
    else:
        trio.run(serve_ours, kind)


if __name__ == "__main__":
    main(sys.argv[1])
