"""The configuration for nginx in the documents, run by a real nginx in front of the servers."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from carmy_engine import ExecutionRequest, ExecutionStarted
from carmy_http import open_http
from carmy_websocket import open_websocket
from tests.support import http_client, websocket

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
DOCUMENTED = Path(__file__).parents[2] / "docs" / "examples" / "nginx.conf"
PUBLIC = {"root_path": "/shop", "allowed_hosts": ["tools.example"]}

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@contextmanager
def nginx(directory: Path, changes: dict[str, str]) -> Iterator[str]:
    """Run the documented configuration with other texts in the place of some; the URL of nginx."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        port = listener.getsockname()[1]
        block = DOCUMENTED.read_text()
        for old, new in {"listen 80;": f"listen 127.0.0.1:{port};", **changes}.items():
            assert old in block, f"{old!r} is not in {DOCUMENTED.name}"
            block = block.replace(old, new)
        paths = "".join(
            f"{name}_temp_path {directory / name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;\n" if os.getuid() == 0 else ""  # who may read the directory of the test
        config = directory / "nginx.conf"
        config.write_text(
            f"{user}daemon off; worker_processes 1; pid {directory / 'pid'}; error_log stderr warn;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{paths}{block}}}\n"
        )
        # nginx takes over listening sockets that this variable names, so that no port is chosen twice.
        environment = {**os.environ, "NGINX": f"{listener.fileno()};"}
        log = directory / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [str(NGINX), "-p", str(directory), "-c", str(config)],
                env=environment,
                pass_fds=[listener.fileno()],
                stdout=errors,
                stderr=errors,
            )
    try:
        yield f"http://127.0.0.1:{port}"
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()  # a killed one would leave its worker behind
        process.wait(10)


@asynccontextmanager
async def proxied(
    directory: Path, server: str = "native", **changes: str
) -> AsyncIterator[tuple[http_client.Running, str]]:
    """A server behind nginx, with the URL of nginx."""
    async with http_client.serving(http={"server": server, **PUBLIC}) as running:
        with nginx(directory, {"127.0.0.1:3000": running.url.removeprefix("http://"), **changes}) as url:
            yield running, url


async def get(url: str, **headers: str) -> Any:
    """One request of a client for which the server has a public name."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        return await client.get(url, headers=headers)


@pytest.mark.parametrize("server", ["native", "hypercorn"])
@pytest.mark.parametrize("strips", [False, True])
async def test_the_server_is_below_a_prefix(tmp_path: Path, server: str, strips: bool) -> None:
    """Whether nginx removes the prefix or not, routes match, and discovery lists the addresses with it."""
    changes = {"proxy_pass http://carmy_http;": "proxy_pass http://carmy_http/;"} if strips else {}
    async with proxied(tmp_path, server, **changes) as (_, url):
        document = (await get(url + "/shop/.well-known/agent", host="tools.example")).json()
        assert document["execute_url"] == "/shop/agent/execute"
        assert (await get(url + document["tools_url"], host="tools.example")).status_code == 200
        assert (await get(url + "/shop/health")).status_code == 200
        assert (await get(url + "/shop/agent/tools", host="evil.example")).status_code == 403
        async with open_http(url + "/shop") as client:
            result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": "hi"}, request_id="r-1"))
            again = await client.execute(ExecutionRequest(tool="echo", arguments={"text": "hi"}, request_id="r-1"))
        assert result.execution_id == again.execution_id


@pytest.mark.parametrize("server", ["native", "hypercorn"])
async def test_events_arrive_while_the_call_runs(tmp_path: Path, server: str) -> None:
    """nginx passes on each event at once; a client that leaves its stream cancels the call behind nginx."""
    async with proxied(tmp_path, server) as (running, url):
        async with open_http(url + "/shop") as client:
            request = ExecutionRequest(tool="read", arguments={"then": "wait", "gate": "g"})
            with trio.fail_after(10):
                async with client.stream(request) as events:
                    event = await events.__anext__()
                    assert isinstance(event, ExecutionStarted)
                    await running.arrived("g")
        await running.idle()
        assert running.engine.audit.newest()[0].cause == "disconnect"


async def test_a_body_over_the_limit_gets_the_refusal_of_the_server(tmp_path: Path) -> None:
    """The limit of nginx is above that of the server, whose answer names its own."""
    async with proxied(tmp_path) as (_, url), httpx2.AsyncClient(trust_env=False) as client:
        body = b'{"tool":"echo","arguments":{"text":"%b"}}' % (b"x" * 1024 * 1024)
        answer = await client.post(
            url + "/shop/agent/execute", content=body, headers={"content-type": "application/json"}
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("strips", [False, True])
async def test_websocket_is_upgraded_below_the_prefix(tmp_path: Path, strips: bool) -> None:
    """Calls run over a WebSocket through nginx; a refusal before the upgrade arrives as it is."""
    changes = {"http://carmy_ws;": "http://carmy_ws/agent/ws;"} if strips else {}
    async with websocket.serving(http=PUBLIC) as server:
        address = re.split("/+", server.url)[1]
        with nginx(tmp_path, {"127.0.0.1:3001": address, **changes}) as url:
            async with open_websocket(url.replace("http", "ws") + "/shop/agent/ws") as client:
                result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": "hi"}))
                assert result.unwrap() == "hi"
            refused = await get(url + "/shop/agent/ws", host="evil.example")
            assert (refused.status_code, json.loads(refused.content)["error"]["code"]) == (403, "FORBIDDEN")
