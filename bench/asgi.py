"""The application below a path of FastAPI on uvicorn, beside a route of FastAPI that does the same. Needs wrk.

python -m bench.asgi [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from carmy_engine import App

ROUNDS = 5
CONNECTIONS = (1, 32)


class Item(BaseModel):
    sku: str
    price: int


class Search(BaseModel):
    query: str
    limit: int = 10


def items(query: str, limit: int) -> list[Item]:
    return [Item(sku=query, price=number) for number in range(limit)]


app = App("shop")


@app.tool(effect="read", parallel_safe=True)
async def search(query: str, limit: int = 10) -> list[Item]:
    return items(query, limit)


def make() -> Any:
    """FastAPI with the route, and with the application mounted."""
    api = app.asgi()
    web = FastAPI(lifespan=api.lifespan)

    @web.post("/search")
    async def route(body: Search) -> list[Item]:
        return items(body.query, body.limit)

    web.mount("/agents", api)
    return web


def rate(url: str, body: Any, connections: int, seconds: float) -> float:
    """Requests per second by wrk."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "post.lua")
        script.write_text(
            f'wrk.method="POST"; wrk.headers["content-type"]="application/json"; wrk.body=[[{json.dumps(body)}]]'
        )
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in out, out
    return float(out.split("Requests/sec:")[1].split()[0])


def main() -> None:
    if shutil.which("wrk") is None:
        print("needs wrk")
        return
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    sock = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY for this protocol number only
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    server = uvicorn.Server(uvicorn.Config(make(), log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), daemon=True)
    thread.start()
    base = f"http://127.0.0.1:{sock.getsockname()[1]}"
    arguments = {"query": "mouse", "limit": 3}
    for connections in CONNECTIONS:
        ratios = []
        for _ in range(ROUNDS):
            route = rate(base + "/search", arguments, connections, seconds)
            mounted = rate(
                base + "/agents/agent/execute", {"tool": "search", "arguments": arguments}, connections, seconds
            )
            ratios.append(mounted / route)
            print(f"{connections} connections: route {route:.0f}/s, mounted {mounted:.0f}/s")
        print(f"{connections} connections: mounted / route {statistics.median(ratios):.2f}")
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
