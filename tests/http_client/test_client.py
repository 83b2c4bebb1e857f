"""The client over real sockets."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import (
    AgentContext,
    BearerTokens,
    Cause,
    ClosedError,
    ConfigurationError,
    ExecutionCompleted,
    ExecutionRequest,
    OutcomeUnknownError,
)
from carmy_http import HttpClientLimits, open_http
from tests.support.http_client import Exchange, scripted, serving

ECHO = ExecutionRequest(tool="echo", arguments={"text": "a"})
ROOT = Path(__file__).parents[2]


def wait(gate: str, tool: str = "write", **fields: object) -> ExecutionRequest:
    """A request that waits at a gate."""
    arguments = {"tag": gate, "then": "wait", "gate": gate}
    return ExecutionRequest(tool=tool, arguments=arguments, **fields)  # type: ignore[arg-type] # fields of a request


def answer(data: object = "a", **fields: object) -> bytes:
    """The body of a success."""
    return json.dumps({"execution_id": "e", "status": "completed", "data": data, **fields}).encode()


async def unused() -> str:
    """The URL of a server that has gone."""
    async with scripted(lambda exchange: exchange.read()) as url:
        return url


async def test_results_are_those_of_the_engine() -> None:
    """A result has the same parts as in process: data byte for byte, errors, replays, next actions."""
    async with serving() as server, open_http(server.url) as client:
        for request in (
            ECHO,
            ExecutionRequest(tool="ret", arguments={"kind": "text"}),
            ExecutionRequest(tool="ret", arguments={"kind": "large_integer"}),
            ExecutionRequest(tool="nowhere"),
            ExecutionRequest(tool="echo", arguments={"txt": 1}),
            ExecutionRequest(tool="read", arguments={"then": "retryable"}),
            ExecutionRequest(tool="destructive"),
        ):
            ours = await client.execute(request)
            theirs = await server.engine.execute(request)
            assert ours.data_json == theirs.data_json
            errors = [msgspec.json.encode(error) for error in (ours.error, theirs.error)]
            # The ids of confirmations are those of their callers.
            mine, other = (re.sub(rb"conf_[0-9a-f]{32}", b"conf_id", error) for error in errors)
            assert msgspec.json.decode(mine) == msgspec.json.decode(other)
            assert (ours.status, ours.cacheable, ours.next_actions) == (
                theirs.status,
                theirs.cacheable,
                theirs.next_actions,
            )
        first = await client.execute(ExecutionRequest(tool="write", request_id="r"))
        again = await client.execute(ExecutionRequest(tool="write", request_id="r"))
        assert (first.replayed, again.replayed) == (False, True)
        assert first.execution_id == again.execution_id


@pytest.mark.parametrize("url", ["ws://h", "http://", "h:3000", "http://a:b@h", "http://h:99999", "http://h/?x=1"])
async def test_urls_that_are_none(url: str) -> None:
    """What is not the URL of a server is refused before anything is connected."""
    with pytest.raises(ConfigurationError):
        async with open_http(url):
            pass


async def test_urls_that_are_fine() -> None:
    """A slash at the end, and the address of the endpoint itself, mean the same server."""
    async with serving() as server:
        for url in (server.url, server.url + "/", server.url + "/agent/execute"):
            async with open_http(url) as client:
                assert (await client.execute(ECHO)).data == "a"


async def test_token() -> None:
    """The token identifies the caller; without a valid one, the refusal is the result."""
    with pytest.raises(ConfigurationError):
        async with open_http("http://h", token="a\nb"):
            pass
    async with serving(authenticator=BearerTokens({"secret": AgentContext(principal="ana")})) as server:
        async with open_http(server.url, token="secret") as client:
            assert (await client.execute(ExecutionRequest(tool="whoami"))).data["principal"] == "ana"
        async with open_http(server.url) as client:
            result = await client.execute(ECHO)
            assert result.error is not None
            assert result.error.code == "UNAUTHENTICATED"


async def test_the_catalog_is_sent_once() -> None:
    """The catalog is the server's byte for byte, and is sent again only when it has changed."""
    heads: list[bytes] = []

    async def script(exchange: Exchange) -> None:
        for number in range(3):
            await exchange.read()
            heads.append(exchange.head)
            if number == 1:
                await exchange.answer(304, b"", etag='"one"')
            else:
                await exchange.answer(200, b'{ "tools": [] }' if number else b'{"tools":[]}', etag='"one"')

    async with scripted(script) as url, open_http(url) as client:
        first, second, third = [await client.catalog() for _ in range(3)]
    assert first.document == b'{"tools":[]}'
    assert second is first
    assert third.document == b'{ "tools": [] }'
    assert [b'if-none-match: "one"' in head.lower() for head in heads] == [False, True, True]
    async with serving() as server, open_http(server.url) as client:
        assert await client.catalog() == await server.engine.catalog()
        assert await client.catalog() is await client.catalog()


async def test_leaving_a_scope_cancels_on_the_server() -> None:
    """Leaving a call, a stream or a scope whose deadline has passed ends the execution on the server within a second."""
    async with serving() as server, open_http(server.url) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.execute, wait("g1"))
                await server.arrived("g1")
                scope.cancel()
        await server.idle()
        async with client.stream(wait("g2")) as events:
            assert (await events.receive()).kind == "execution.started"
            await server.arrived("g2")
        await server.idle()
        causes = [record.cause for record in server.engine.audit.newest()]
        assert causes == [Cause.DISCONNECT, Cause.DISCONNECT]
        assert (await client.execute(ECHO)).data == "a"


async def test_the_deadline_of_the_caller_reaches_the_server() -> None:
    """A scope with a deadline limits the execution too."""
    async with serving() as server, open_http(server.url) as client:
        with trio.fail_after(5):
            result = await client.execute(ExecutionRequest(tool="whoami"))
        assert 0 < result.data["remaining"] <= 5
        assert (await client.execute(ExecutionRequest(tool="whoami"))).data["remaining"] > 20


@pytest.mark.parametrize("rounds", [20, pytest.param(300, marks=pytest.mark.long)])
async def test_call_cancel_call(rounds: int) -> None:
    """Call, cancel, call, again and again: nothing is mixed up, and nothing stays behind, here or on the server."""
    async with serving() as server, open_http(server.url) as client:
        for number in range(rounds):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.execute, wait(f"g{number}"))
                    if number % 3:
                        for _ in range(number % 11):
                            await trio.lowlevel.checkpoint()
                    else:
                        await server.arrived(f"g{number}")
                    scope.cancel()
            text = f"<{number}>"
            result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": text}))
            assert result.data == text
        await server.idle()
        assert not client._scopes


async def test_many_calls_at_once() -> None:
    """More calls than connections are kept run side by side, each with its own answer."""
    async with serving() as server, open_http(server.url) as client:
        results: dict[int, object] = {}

        async def call(number: int) -> None:
            request = ExecutionRequest(tool="echo", arguments={"text": f"{number};", "times": 10_000})
            results[number] = (await client.execute(request)).data

        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(call, number)
        assert results == {number: f"{number};" * 10_000 for number in range(60)}


async def test_after_the_block() -> None:
    """Calls that run when the client's block ends raise OutcomeUnknownError; later ones ClosedError."""
    errors: list[OutcomeUnknownError] = []

    async def call(run: Callable[[], Awaitable[object]]) -> None:
        try:
            await run()
        except OutcomeUnknownError as error:
            errors.append(error)

    async with serving() as server, trio.open_nursery() as nursery:
        async with open_http(server.url) as client:
            nursery.start_soon(call, lambda: client.execute(wait("g", request_id="r")))
            await server.arrived("g")
        await server.idle()
        with pytest.raises(ClosedError):
            await client.execute(ECHO)
        with pytest.raises(ClosedError):
            await client.catalog()
    assert [error.request_id for error in errors] == ["r"]


async def test_nobody_listens() -> None:
    """When no server listens, the call is tried a few times and then is a ClosedError that states that nothing was sent."""
    url = await unused()
    async with open_http(url, limits=HttpClientLimits(first_wait_secs=0.01)) as client:
        with pytest.raises(ClosedError, match=re.escape("cannot connect (Connection refused); the call was not sent")):
            await client.execute(ECHO)


async def test_a_server_that_starts_meanwhile() -> None:
    """A call that finds no server at first is sent once a server listens, with or without a request_id."""
    url = await unused()
    address = url.rpartition("/")[2]

    async def start() -> None:
        async with serving(settings={"address": address}):
            await done.wait()

    done = trio.Event()
    async with open_http(url) as client, trio.open_nursery() as nursery:
        nursery.start_soon(start)
        assert (await client.execute(ECHO)).data == "a"
        done.set()


@pytest.mark.parametrize(
    "cut", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 \r\ncontent-length: 100\r\n\r\n{", b"rubbish\r\n\r\n"]
)
async def test_a_connection_that_breaks(cut: bytes) -> None:
    """Without a request_id the call is sent once, and its outcome is unknown: the advice is not to ask under one."""
    count = 0

    async def script(exchange: Exchange) -> None:
        nonlocal count
        await exchange.read()
        count += 1
        await exchange.send(cut)

    async with scripted(script) as url, open_http(url) as client:
        with trio.fail_after(5), pytest.raises(OutcomeUnknownError, match="It had no request_id") as raised:
            await client.execute(ECHO)
        assert raised.value.request_id is None
    assert count == 1


async def test_a_connection_that_breaks_with_a_request_id() -> None:
    """With a request_id the same request is sent again, a few times, and then the outcome is unknown."""
    bodies: list[bytes] = []
    good_from = 3

    async def script(exchange: Exchange) -> None:
        await exchange.read()
        bodies.append(exchange.body)
        if len(bodies) >= good_from:
            await exchange.answer(200, answer(), idempotent_replayed="true")

    async with scripted(script) as url, open_http(url, limits=HttpClientLimits(first_wait_secs=0.01)) as client:
        request = ExecutionRequest(tool="echo", request_id="r")
        result = await client.execute(request)
        assert (result.data, result.replayed) == ("a", True)
        assert len(bodies) == 3
        assert len(set(bodies)) == 1
        good_from = 100
        with pytest.raises(OutcomeUnknownError, match="the same request_id") as raised:
            await client.execute(request)
        assert raised.value.request_id == "r"
        assert len(bodies) == 3 + 4


async def test_a_repeated_call_meets_its_first_attempt() -> None:
    """A repeated call that finds its first attempt still being cancelled waits for its end."""

    async def script(exchange: Exchange) -> None:
        await exchange.read()
        if exchange.number == 2:
            error = {
                "code": "EXECUTION_UNCERTAIN", "message": "", "category": "conflict", "recoverable": False,
                "retryable": False, "details": {"state": "running"},
            }  # fmt: skip
            await exchange.answer(409, json.dumps({"execution_id": "e", "status": "failed", "error": error}).encode())
        elif exchange.number == 3:
            await exchange.answer(200, answer())

    async with scripted(script) as url, open_http(url) as client:
        assert (await client.execute(ExecutionRequest(tool="echo", request_id="r"))).data == "a"


async def test_a_proxy_that_asks_to_wait() -> None:
    """An answer of something in between is tried again when that is safe, after the wait it asks for."""

    async def script(exchange: Exchange) -> None:
        await exchange.read()
        if exchange.number == 1:
            await exchange.answer(503, b"<html>", retry_after="0", connection="close")
        else:
            await exchange.answer(200, answer())

    async with scripted(script) as url, open_http(url) as client:
        assert (await client.execute(ExecutionRequest(tool="echo", request_id="r"))).data == "a"
    async with scripted(script) as url, open_http(url) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.execute(ECHO)


async def test_a_silent_server_with_a_limit() -> None:
    """A server that sends nothing beyond the call's own limit and a margin counts as lost."""

    async def script(exchange: Exchange) -> None:
        await exchange.read()
        await trio.sleep_forever()

    async with scripted(script) as url, open_http(url, limits=HttpClientLimits(margin_secs=0.05)) as client:
        with trio.fail_after(5), pytest.raises(OutcomeUnknownError):
            await client.execute(ExecutionRequest(tool="echo", timeout_ms=50))


async def test_a_server_that_is_killed() -> None:
    """When the server's process is killed, a call and a stream are notified at once, with the request_id."""
    script = (
        "import trio\nfrom tests.support.http_client import serving\n"
        "async def main():\n    async with serving() as server:\n"
        "        print(server.url, flush=True)\n        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'transports'}"}
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = ""
        while not url.endswith("\n"):
            url += (await process.stdout.receive_some()).decode()
        url = url.strip()
        async with open_http(url) as client, client.stream(wait("g1", request_id="r")) as events:
            async for event in events:
                if event.kind == "tool.started":
                    break
            process.send_signal(signal.SIGKILL)
            with trio.fail_after(5), pytest.raises(OutcomeUnknownError) as raised:
                await events.receive()
            assert raised.value.request_id == "r"
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        if process.stdout is not None:
            await process.stdout.aclose()


async def test_events() -> None:
    """A stream gives the events in order with positions from 0, and the result of the last one has everything."""
    async with serving() as server, open_http(server.url) as client:
        async with client.stream(ExecutionRequest(tool="partials", arguments={"count": 3, "size": 100_000})) as events:
            seen = [event async for event in events]
        assert [event.seq for event in seen] == list(range(len(seen)))
        assert sum(event.kind == "tool.progress" for event in seen) == 3
        assert isinstance(seen[-1], ExecutionCompleted)
        assert seen[-1].result.data == 3


async def test_a_refused_stream() -> None:
    """A stream that is refused as no request, by the server or before it is sent, has the first event and the last."""
    async with (
        serving(authenticator=BearerTokens({})) as server,
        open_http(server.url) as client,
        client.stream(ECHO) as events,
    ):
        started, ended = [event async for event in events]
        async with client.stream(ExecutionRequest(tool="\ud800")) as others:
            *_, unsent = [event async for event in others]
    assert (started.kind, started.seq, ended.seq) == ("execution.started", 0, 1)
    assert isinstance(ended, ExecutionCompleted)
    assert ended.result.error is not None
    assert ended.result.error.code == "UNAUTHENTICATED"
    assert isinstance(unsent, ExecutionCompleted)
    assert unsent.result.error is not None
    assert unsent.result.error.code == "INVALID_REQUEST"


STARTED = b'event: execution.started\ndata: {"execution_id":"e","tool":"echo"}\nid: 0\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


async def test_unknown_events_and_comments() -> None:
    """Kinds of a newer server and comments are skipped, however the bytes are cut, and U+2028 is a character like others."""
    last = b"event: execution.completed\ndata: " + answer("\u2028", replayed=False) + b"\nid: 7\n\n"

    async def script(exchange: Exchange) -> None:
        await exchange.read()
        data = HEAD + b": hello\n\n" + STARTED + b"event: tool.dreaming\ndata: {}\n\n: still running\n\n" + last
        for byte in data:
            await exchange.send(bytes([byte]))

    async with scripted(script) as url, open_http(url) as client, client.stream(ECHO) as events:
        seen = [event async for event in events]
    assert [(event.seq, event.kind) for event in seen] == [(0, "execution.started"), (1, "execution.completed")]
    assert isinstance(seen[-1], ExecutionCompleted)
    assert seen[-1].result.data == "\u2028"


@pytest.mark.parametrize(
    "rest", [b"", b"event: execution.completed\ndata: {}\n\n", b"event: tool.progress\ndata: [\n\n"]
)
async def test_a_stream_that_breaks_off(rest: bytes) -> None:
    """A stream that ends without its last event, or with what is none, raises OutcomeUnknownError after what came before."""

    async def script(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.send(HEAD + STARTED + rest)

    request = ExecutionRequest(tool="echo", request_id="r")
    async with scripted(script) as url, open_http(url) as client, client.stream(request) as events:
        assert (await events.receive()).kind == "execution.started"
        with pytest.raises(OutcomeUnknownError) as raised:
            await events.receive()
        assert raised.value.request_id == "r"


async def test_leaving_a_stream_that_nobody_reads() -> None:
    """A stream whose reader has fallen far behind can be left at any time, by its block or by a cancel from outside."""
    request = ExecutionRequest(tool="partials", arguments={"count": 100, "size": 1_000_000})
    async with serving() as server, open_http(server.url) as client:
        for number in range(6):
            with trio.CancelScope() as scope:
                async with client.stream(request) as events:
                    await events.receive()
                    await trio.testing.wait_all_tasks_blocked(0.05)
                    if number % 2:
                        scope.cancel()
            await server.idle()
        assert (await client.execute(ECHO)).data == "a"


async def test_a_silent_stream() -> None:
    """A stream without even a comment for too long counts as lost; comments keep it, and extend no deadline."""

    async def script(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.send(HEAD + STARTED)
        for _ in range(10):
            await trio.sleep(0.05)
            await exchange.send(b": still running\n\n")
        await trio.sleep_forever()

    async with scripted(script) as url, open_http(url, limits=HttpClientLimits(silence_secs=0.2)) as client:
        started = trio.current_time()
        async with client.stream(ECHO) as events:
            await events.receive()
            with trio.fail_after(5), pytest.raises(OutcomeUnknownError):
                await events.receive()
        assert trio.current_time() - started > 0.5


async def test_exceptions_of_the_block_come_out_as_they_are() -> None:
    """An exception in a stream's block is not wrapped, and the execution is cancelled."""

    async def fail() -> None:
        async with client.stream(wait("g")):
            await server.arrived("g")
            raise KeyError("mine")

    async with serving() as server, open_http(server.url) as client:
        with pytest.raises(KeyError, match="mine"):
            await fail()
        await server.idle()


def test_servers_do_not_pay() -> None:
    """Importing the transport does not import the client's library; asking for the client does."""
    script = (
        "import sys, carmy_http; a = 'httpx2' in sys.modules; carmy_http.open_http; print(a, 'httpx2' in sys.modules)"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'transports'}"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError):
        _ = __import__("carmy_http").nothing


def test_without_the_library() -> None:
    """Without the client's library, asking for the client raises an error that names what to install."""
    script = "import sys; sys.modules['httpx2'] = None; from carmy_http import open_http"
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'transports'}"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert "pip install 'carmy-engine[http-client]'" in done.stderr


async def test_cancelled_at_any_moment() -> None:
    """A call or a stream may be cancelled at any of its awaits: nothing stays behind, and the next call works."""
    async with serving() as server, open_http(server.url) as client:

        async def stream() -> None:
            async with client.stream(ECHO) as events:
                async for _ in events:
                    pass

        for act in (lambda: client.execute(ECHO), stream):
            for moment in range(40):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(act)
                        for _ in range(moment):
                            await trio.lowlevel.checkpoint()
                        scope.cancel()
                assert (await client.execute(ECHO)).data == "a"
        assert not client._scopes
        await server.idle()


async def test_a_socket_with_a_file(tmp_path: Path) -> None:
    """A client reaches a server by the URL that the server prints, with calls, streams and the catalog."""
    path = tmp_path / "s"
    with trio.fail_after(10):
        async with serving(settings={"address": f"unix:{path}"}) as server:
            assert server.url == f"http://unix:{path}"
            async with open_http(server.url) as client:
                request = ExecutionRequest(tool="echo", arguments={"text": "a"})
                assert (await client.execute(request)).unwrap() == "a"
                async with client.stream(request) as events:
                    assert [event.kind async for event in events][-1] == "execution.completed"
                assert (await client.catalog()).document == (await server.engine.catalog()).document
        async with open_http(f"http://unix:{path}") as client:
            with pytest.raises(ClosedError, match=re.escape(str(path))):
                await client.execute(ExecutionRequest(tool="echo"))
