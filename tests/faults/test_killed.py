"""kill -9, at any moment, of a server, a client or a parent: the others notice, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

import pytest
import trio

from carmy_engine import App, ClosedError, ExecutionRequest, ExecutionResult, OutcomeUnknownError
from carmy_engine.abc import Executor
from carmy_http import open_http
from carmy_stdio import open_stdio
from carmy_websocket import open_websocket
from tests.faults.processes import all_gone, children_of, gateway, kill, listening, running, scripted
from tests.support import http_client as http_support
from tests.support import websocket as websocket_support

pytestmark = pytest.mark.timeout(600)

ROUNDS = [pytest.param(seed, id=str(seed)) for seed in range(2)] + [
    pytest.param(seed, id=str(seed), marks=pytest.mark.long) for seed in range(2, 40)
]
NOTICE_SECONDS = 5.0
"""For a machine that does other things as well; a second is what is promised."""


class Victim(NamedTuple):
    """A server in a process of its own, and a client in this one.

    Attributes:
        executor: The client.
        pid: The process to kill.
    """

    executor: Executor
    pid: int


@asynccontextmanager
async def stdio() -> AsyncIterator[Victim]:
    """A child."""
    before = set(children_of(os.getpid()))
    async with open_stdio(scripted()) as client:
        (pid,) = set(children_of(os.getpid())) - before
        yield Victim(client, pid)


@asynccontextmanager
async def behind_a_gateway() -> AsyncIterator[Victim]:
    """A child, whose tools an engine offers as its own."""
    async with stdio() as victim, App("near").mount(victim.executor).open() as engine:
        yield Victim(engine, victim.pid)


@asynccontextmanager
async def websocket() -> AsyncIterator[Victim]:
    """A WebSocket server."""
    async with listening("ws") as server, open_websocket(server.url) as client:
        yield Victim(client, server.process.pid)


@asynccontextmanager
async def http() -> AsyncIterator[Victim]:
    """An HTTP server."""
    async with listening("serve") as server, open_http(server.url) as client:
        yield Victim(client, server.process.pid)


SERVERS: dict[str, Callable[[], AbstractAsyncContextManager[Victim]]] = {
    "stdio": stdio,
    "behind_a_gateway": behind_a_gateway,
    "websocket": websocket,
    "http": http,
}


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_that_is_killed(name: str, seed: int) -> None:
    """Every call ends at once: with an answer, or saying whether it may have run. None is answered twice, none hangs."""
    chance = random.Random(seed)
    ended: list[ExecutionResult | ClosedError | OutcomeUnknownError] = []

    async def call(executor: Executor, number: int) -> None:
        arguments: dict[str, object] = {"text": "x", "times": chance.choice([1, 1_000_000])}
        request = ExecutionRequest(tool="echo", arguments=arguments)
        if number % 2:
            request = ExecutionRequest(tool="write", arguments={"then": "wait", "gate": "g"}, timeout_ms=20_000)
        try:
            ended.append(await executor.execute(request))
        except (ClosedError, OutcomeUnknownError) as error:
            ended.append(error)

    async with SERVERS[name]() as victim:
        with trio.fail_after(20):
            (await victim.executor.execute(ExecutionRequest(tool="echo", arguments={"text": "a"}))).unwrap()
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(call, victim.executor, number)
            await trio.sleep(chance.random() * 0.05)
            os.kill(victim.pid, signal.SIGKILL)
            with trio.fail_after(NOTICE_SECONDS):
                while len(ended) < 20:  # noqa: ASYNC110 - they end in tasks of their own
                    await trio.sleep(0.01)
        for outcome in ended:
            if isinstance(outcome, ExecutionResult) and outcome.error is not None:
                assert name == "behind_a_gateway"
                assert outcome.error.code in ("EXECUTOR_UNAVAILABLE", "EXECUTION_UNCERTAIN")
        # Later ones are told so at once as well.
        with trio.fail_after(NOTICE_SECONDS):
            try:
                late = await victim.executor.execute(ExecutionRequest(tool="echo", arguments={"text": "a"}))
            except (ClosedError, OutcomeUnknownError):
                assert name != "behind_a_gateway"
            else:
                assert late.error is not None
                assert late.error.code == "EXECUTOR_UNAVAILABLE"


CLIENT = """\
import sys, trio
from carmy_engine import ExecutionRequest
from {module} import {opener}

async def call(client, number):
    request = ExecutionRequest(tool="read", arguments={{"then": "wait", "gate": "g"}})
    if number % 2:
        async with client.stream(request) as events:
            async for _ in events:
                pass
    await client.execute(request)

async def main():
    async with {opener}("{url}") as client, trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(call, client, number)

trio.run(main)
"""


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("name", ["websocket", "http"])
async def test_a_client_that_is_killed(name: str, seed: int) -> None:
    """Its calls are cancelled, whether they were waited for or listened to, and other clients do not notice."""
    chance = random.Random(seed)
    if name == "websocket":
        async with websocket_support.serving() as by_frames:
            await _kill_a_client("carmy_websocket", "open_websocket", by_frames, chance)
    else:
        async with http_support.serving() as by_http:
            await _kill_a_client("carmy_http", "open_http", by_http, chance)


async def _kill_a_client(
    module: str, opener: str, server: websocket_support.Running | http_support.Running, chance: random.Random
) -> None:
    script = CLIENT.format(module=module, opener=opener, url=server.url)
    calls = chance.randint(1, 10)
    async with running([sys.executable, "-c", script]) as client:
        with trio.fail_after(20):
            await server.stage.until(lambda: server.stage.arrived("g") >= calls)
        await trio.sleep(chance.random() * 0.01)
        kill(client.pid)
        with trio.fail_after(NOTICE_SECONDS):
            await server.engine.wait_idle()
        result = await server.engine.execute(ExecutionRequest(tool="echo", arguments={"text": "a"}))
        assert result.data == "a"
        assert server.stage.left("g") == server.stage.arrived("g")


PARENT = """\
import trio
from carmy_engine import ExecutionRequest
from carmy_stdio import open_stdio

async def main():
    async with open_stdio({command!r}) as client, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(client.execute, ExecutionRequest(tool="read", arguments={{"then": "wait", "gate": "g"}}))
        await client.execute(ExecutionRequest(tool="arrived", arguments={{"gate": "g", "calls": 5}}))
        print("ready", flush=True)

trio.run(main)
"""


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("hops", [1, 2])
async def test_a_parent_that_is_killed(hops: int, seed: int) -> None:
    """The child notices and ends by itself, calls and all; so does the child of a gateway that is one."""
    chance = random.Random(seed)
    script = PARENT.format(command=scripted() if hops == 1 else gateway())
    async with running([sys.executable, "-c", script], stdout=-1) as parent:
        assert parent.stdout is not None
        with trio.fail_after(30):
            if chance.random() < 0.7:
                assert b"ready" in await parent.stdout.receive_some()
            while len(found := children_of(parent.pid)) < hops:  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.01)
        await trio.sleep(chance.random() * 0.3)
        found = sorted({*found, *children_of(parent.pid)})
        parent.send_signal(signal.SIGKILL)
        await all_gone(found)


@pytest.mark.parametrize("seed", ROUNDS)
async def test_a_gateway_that_is_killed(seed: int) -> None:
    """Its caller gets an error, and the child it had does not outlive it."""
    chance = random.Random(seed)
    before = set(children_of(os.getpid()))
    async with open_stdio(gateway()) as client, trio.open_nursery() as nursery:
        found = sorted(set(children_of(os.getpid())) - before)
        assert len(found) == 2
        (near,) = [pid for pid in found if children_of(pid)]
        ends: list[bool] = []

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError):
                await client.execute(ExecutionRequest(tool="write", arguments={"then": "wait", "gate": "g"}))
            ends.append(True)

        for _ in range(5):
            nursery.start_soon(call)
        await client.execute(ExecutionRequest(tool="arrived", arguments={"gate": "g", "calls": 5}))
        await trio.sleep(chance.random() * 0.05)
        os.kill(near, signal.SIGKILL)
        await all_gone(found)
    assert ends == [True] * 5
