"""HTTP/1.1 over TLS, its clients, and clients that do not shake hands."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess

import pytest
import trio

from carmy_engine import ClosedError, ConfigurationError, ExecutionRequest
from carmy_http import open_http
from tests.cli.served import CARMY
from tests.hostile.test_killers import KILLERS
from tests.http.tools import echo
from tests.support.http import render
from tests.support.tls import Secured, serving_tls

CURL = shutil.which("curl")
CURL_HAS_HTTP2 = CURL is not None and b"HTTP2" in subprocess.check_output([CURL, "--version"])

CALL = json.dumps({"tool": "echo", "arguments": {"text": "hi"}}).encode()


async def https(secured: Secured, *protocols: str) -> trio.SSLStream[trio.SocketStream]:
    tcp = await trio.open_tcp_stream("127.0.0.1", secured.server.port)
    context = secured.certificates.context(*protocols)
    return trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True)


async def read_all(stream: trio.SSLStream[trio.SocketStream]) -> bytes:
    data = b""
    while chunk := await stream.receive_some(65536):
        data += chunk
    return data


async def test_http1_is_served_over_tls() -> None:
    """Without HTTP/2, by ALPN or without it, requests are answered, and the last answer ends with ``close_notify``."""
    async with serving_tls(echo, http={"http2": False}) as secured:
        assert secured.server.line.startswith("http listening on https://127.0.0.1:")
        for offered in [(), ("h2", "http/1.1")]:
            with trio.fail_after(20):
                async with await https(secured, *offered) as stream:
                    await stream.send_all(render("GET", "/health") + render("GET", "/health", {"connection": "close"}))
                    answers = await read_all(stream)
                    assert stream.selected_alpn_protocol() == ((offered and "http/1.1") or None)
            assert answers.count(b"HTTP/1.1 200 ") == 2


async def test_the_servers_own_origin_has_the_scheme_of_tls() -> None:
    """A page that the server's own address names with ``https`` may call; one of ``http`` has another origin."""
    async with serving_tls(echo, http={"http2": False}) as secured:
        own = f"127.0.0.1:{secured.server.port}"
        for scheme, status in [("https", b"200"), ("http", b"403")]:
            headers = {"host": own, "origin": f"{scheme}://{own}", "connection": "close"}
            with trio.fail_after(20):
                async with await https(secured) as stream:
                    await stream.send_all(render("GET", "/agent/tools", headers))
                    assert (await read_all(stream)).startswith(b"HTTP/1.1 " + status)


async def test_only_tls_is_accepted() -> None:
    """Plain HTTP, noise and silence end that connection only."""
    async with serving_tls(echo, http={"header_timeout_secs": 0.2}) as secured:
        with trio.fail_after(20):
            for data in [
                render("GET", "/health"),
                b"\x16\x03\x01\xff\xff" + b"\0" * 100,
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"",
            ]:
                async with await trio.open_tcp_stream("127.0.0.1", secured.server.port) as stream:
                    if data:
                        await stream.send_all(data)
                    with contextlib.suppress(trio.BrokenResourceError):
                        assert not (await stream.receive_some(65536)).startswith(b"HTTP")
            async with await https(secured) as stream:
                await stream.send_all(render("GET", "/health", {"connection": "close"}))
                assert b"HTTP/1.1 200 " in await read_all(stream)


async def test_the_client_calls_a_server_of_a_private_authority() -> None:
    """`open_http` with the authority's certificate calls the server; without it, the call is not sent."""
    request = ExecutionRequest(tool="echo", arguments={"text": "hi"})
    async with serving_tls(echo) as secured:
        with trio.fail_after(20):
            async with open_http(secured.url, ca_file=secured.certificates.ca) as client:
                assert (await client.execute(request)).data == "hi"
                async with client.stream(request) as events:
                    kinds = [type(event).__name__ async for event in events]
                assert kinds[-1] == "ExecutionCompleted"
            async with open_http(secured.url) as client:
                with pytest.raises(ClosedError):
                    await client.execute(request)


@pytest.mark.parametrize("file", ["/no/such/file", __file__])
async def test_a_file_without_authorities_is_refused(file: str) -> None:
    """A missing file, or one that is no PEM, is a configuration error that names the argument."""
    with pytest.raises(ConfigurationError, match="ca_file = "):
        async with open_http("https://127.0.0.1:1", ca_file=file):
            pass


async def test_the_command_calls_a_server_of_a_private_authority() -> None:
    """``carmy call --url https://… --ca-file`` prints the answer; without the file, it does not connect."""
    async with serving_tls(echo) as secured:
        command = [*CARMY, "call", "echo", '{"text": "hi"}', "--url", secured.url]
        with trio.fail_after(60):
            done = await trio.run_process([*command, "--ca-file", secured.certificates.ca], capture_stdout=True)
            assert json.loads(done.stdout)["data"] == "hi"
            done = await trio.run_process(command, capture_stderr=True, capture_stdout=True, check=False)
            assert b"the call was not sent" in done.stderr


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_curl_is_answered(version: str, accept: str) -> None:
    """curl gets answers and streams of events over both versions."""
    if version == "2" and not CURL_HAS_HTTP2:
        pytest.skip("this curl has no HTTP/2")
    async with serving_tls(echo) as secured:
        with trio.fail_after(60):
            done = await trio.run_process(
                [
                    *(
                        "curl",
                        "--silent",
                        "--show-error",
                        "--fail",
                        f"--http{version}",
                        "--cacert",
                        secured.certificates.ca,
                    ),
                    *("--write-out", " %{http_version}", "--header", "Content-Type: application/json"),
                    *("--header", f"Accept: {accept}", "--data-binary", CALL.decode(), f"{secured.url}/agent/execute"),
                ],
                capture_stdout=True,
            )
    assert b'"data":"hi"' in done.stdout
    assert done.stdout.endswith(b" " + version.encode())


async def test_what_ends_a_bare_server_ends_one_connection_over_tls() -> None:
    """Each request of the hostile table, sent over TLS, leaves the server able to answer others."""
    async with serving_tls(echo) as secured:
        for name, killer in KILLERS.items():
            if not isinstance(killer.data, bytes):
                continue
            with trio.fail_after(30):
                async with await https(secured, "http/1.1") as stream:
                    with contextlib.suppress(trio.BrokenResourceError):
                        await stream.send_all(killer.data)
                async with await https(secured, "http/1.1") as stream:
                    await stream.send_all(render("GET", "/health", {"connection": "close"}))
                    assert b"HTTP/1.1 200 " in await read_all(stream), name
        await secured.server.engine.wait_idle()
