"""Serving as a process, and as several: signals under load, workers that die, a supervisor that dies, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine.cli._supervisor import DEFAULT_LIMITS, ending
from tests.faults.processes import all_gone
from tests.support.http import JSON, Client, render

from .conftest import Write
from .served import CARMY, LIMIT_SECONDS, MANY, begin, connected, outcome, served

INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    }
).encode()

HTTP = ("--server", "native", "--address", "127.0.0.1:0")


@pytest.fixture(autouse=True)
def many(write: Write) -> Path:
    """The program that is served."""
    return write("many.py", MANY)


def two(*words: str) -> tuple[str, ...]:
    return (*CARMY, "serve", "many.py", *(words or HTTP), "--processes", "2")


async def pid_of(client: Client) -> int:
    answer = await client.call("pid")
    pid: int = answer.json["data"]
    return pid


@asynccontextmanager
async def one_for_each(port: int, count: int = 2) -> AsyncIterator[dict[int, Client]]:
    """A connection to each process of a server, by the process's number."""
    found: dict[int, Client] = {}
    async with AsyncExitStack() as stack:
        while len(found) < count:
            client = await stack.enter_async_context(connected(port))
            found.setdefault(await pid_of(client), client)
        yield found


@pytest.mark.parametrize("count", ["1", "2"])
@pytest.mark.parametrize("server", ["hypercorn", "native"])
async def test_a_signal_under_load(tmp_path: Path, server: str, count: str) -> None:
    """At SIGTERM every running call still gets its answer, from however many processes; then they end, with 0."""
    go = tmp_path / "go"
    with trio.fail_after(LIMIT_SECONDS):
        command = (*CARMY, "serve", "many.py", "--server", server, "--address", "127.0.0.1:0", "--processes", count)
        async with served(*command) as server_, AsyncExitStack() as stack:
            port = await server_.port()
            workers = server_.workers()
            assert len(workers) == (0 if count == "1" else 2)
            clients = [await stack.enter_async_context(connected(port)) for _ in range(12)]
            for client in clients:
                await begin(client, "wait", json.dumps({"path": str(go)}))
            server_.process.send_signal(signal.SIGTERM)
            await server_.says("stopping")
            go.touch()
            for client in clients:
                assert b'"status":"completed"' in await outcome(client)
            assert await server_.process.wait() == 0
            await all_gone(workers)
            said = await server_.last_words()
            assert said.count("listening on") == said.count("stopping") == 1


async def test_a_unix_socket() -> None:
    """Several processes serve one socket with a file, which is gone afterwards."""
    path = Path("shop.sock")
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*two("--address", "unix:shop.sock")) as server:
            assert await server.says("listening on ") == f"http://unix:{path.absolute()}"
            done = await trio.run_process(
                [*CARMY, "call", "pid", "--url", "http://unix:shop.sock"], capture_stdout=True, check=False
            )
            assert json.loads(done.stdout)["data"] in server.workers()
            server.process.send_signal(signal.SIGTERM)
            assert await server.process.wait() == 0
            assert not path.exists()


@pytest.mark.parametrize("words", [("serve",), ("serve", "--processes", "2"), ("ws",)])
async def test_an_inherited_socket(words: tuple[str, ...]) -> None:
    """A command serves on a socket that its parent process has opened and kept."""
    name, *options = words
    with trio.fail_after(LIMIT_SECONDS), socket.create_server(("127.0.0.1", 0)) as sock:
        number, port = sock.fileno(), sock.getsockname()[1]
        command = (*CARMY, name, "many.py", *options, "--address", f"fd://{number}")
        async with served(*command, pass_fds=[number]) as server:
            assert await server.port() == port
            async with connected(port) as client:
                assert (await client.request("GET", "/nowhere")).status == 404
            server.process.send_signal(signal.SIGTERM)
            assert await server.process.wait() == 0
        waiting = socket.create_connection(("127.0.0.1", port))  # as a connection does while a service restarts
        waiting.close()


async def test_a_worker_that_is_killed() -> None:
    """A worker that dies is reported and replaced, and others serve meanwhile."""
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*two()) as server:
            port = await server.port()
            async with one_for_each(port) as clients:
                victim, survivor = clients
                os.kill(victim, signal.SIGKILL)
                told = await server.says("was killed by SIGKILL")
                assert f"(pid {victim})" in server.heard
                assert told == "; starting another one in 0.5 s"
                assert await pid_of(clients[survivor]) == survivor
            async with one_for_each(port) as clients:
                assert victim not in clients
                assert survivor in clients


async def test_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """When the supervisor is killed its workers finish what runs, and end as well."""
    go = tmp_path / "go"
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*two()) as server:
            port = await server.port()
            workers = server.workers()
            async with connected(port) as client:
                await begin(client, "wait", json.dumps({"path": str(go)}))
                server.process.kill()
                await server.process.wait()
                while True:  # until the listener is closed, and nobody could be told to wait
                    try:
                        (await trio.open_tcp_stream("127.0.0.1", port)).socket.close()
                    except OSError:
                        break
                go.touch()
                assert b'"status":"completed"' in await outcome(client)
            await all_gone(workers, LIMIT_SECONDS)


async def test_a_signal_for_all(tmp_path: Path) -> None:
    """A signal that a terminal sends to all processes at once counts as one."""
    go = tmp_path / "go"
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*two(), start_new_session=True) as server:
            port = await server.port()
            async with connected(port) as client:
                await begin(client, "wait", json.dumps({"path": str(go)}))
                os.killpg(server.process.pid, signal.SIGINT)
                await server.says("stopping")
                go.touch()
                assert b'"status":"completed"' in await outcome(client)
            assert await server.process.wait() == 0
            assert "Traceback" not in await server.last_words()


async def test_who_waits_to_be_accepted(tmp_path: Path) -> None:
    """A client that had connected when all processes were signalled to end is answered, although none of them had come to accept it."""
    go = tmp_path / "go"
    request = render("GET", "/health", {"connection": "close"})
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*two()) as server, AsyncExitStack() as stack:
            port = await server.port()
            async with one_for_each(port) as found:
                for pid, client in found.items():
                    body = json.dumps({"tool": "hog", "arguments": {"path": str(go)}}).encode()
                    await client.send(render("POST", "/agent/execute", {"content-type": JSON}, body))
                    while not Path(f"{go}-{pid}").exists():  # noqa: ASYNC110 - it cannot tell otherwise
                        await trio.sleep(0.01)
                waiting = [await stack.enter_async_context(connected(port)) for _ in range(500)]
                for client in waiting:
                    await client.send(request)
                server.process.send_signal(signal.SIGTERM)
                await server.says("stopping")
                go.touch()
                assert {(await client.answer()).status for client in waiting} == {200}
                assert await server.process.wait() == 0


async def test_the_second_signal(directory: Path) -> None:
    """A second signal ends all processes at once, and theirs, although a tool holds an event loop."""
    os.mkfifo(directory / "told")
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*CARMY, "serve", "slow.py", *HTTP, "--processes", "2") as server:
            port = await server.port()
            async with connected(port) as client:
                await client.send(render("POST", "/agent/execute", {"content-type": JSON}, b'{"tool":"spin"}'))
                told = await trio.to_thread.run_sync((directory / "told").read_text, abandon_on_cancel=True)
                family = server.workers()
                assert int(told) in family
                server.process.send_signal(signal.SIGINT)
                await server.says("stopping")
                server.process.send_signal(signal.SIGTERM)
                assert await server.process.wait() == 128 + signal.SIGTERM
            await all_gone(family)


async def test_one_request_at_all_processes(tmp_path: Path) -> None:
    """With a store that they share, a request that reaches several processes runs once, and all give its answer."""
    notes = tmp_path / "notes"
    fields: dict[str, Any] = {"arguments": {"path": str(notes)}, "request_id": "once"}
    codes: list[str | None] = []
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*two(), env={**os.environ, "STORE": f"sqlite:{tmp_path}/state.db"}) as server:
            port = await server.port()
            assert "store" not in server.heard

            async def send() -> None:
                async with connected(port) as client:
                    answer = await client.call("note", **fields)
                    codes.append(answer.code)

            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(send)
            assert set(codes) <= {None, "EXECUTION_UNCERTAIN"}
            async with one_for_each(port) as clients:
                answers = [await client.call("note", **fields) for client in clients.values()]
            assert len({answer.body for answer in answers}) == 1
            assert [answer.headers["idempotent-replayed"] for answer in answers] == ["true", "true"]
    assert notes.read_text() == "noted\n"


async def test_what_is_not_shared_is_said() -> None:
    """The start reports what each process has for itself, its memory included."""
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*two()) as server:
            port = await server.port()
            assert "2 processes; each has turns, rate limits and max_executions of its own" in server.heard
            assert "the store memory: is one for each process" in server.heard
            async with connected(port) as client:
                headers = {"content-type": JSON, "accept": f"{JSON}, text/event-stream"}
                answer = await client.request("POST", "/mcp", headers, INITIALIZE)
                assert answer.status == 200
                assert "mcp-session-id" not in answer.headers
                known = (await client.call("environment")).json["data"]
            assert not [name for name in known if "CARMY" in name]


async def test_the_program_itself() -> None:
    """A program that runs its own command line has several processes as well, by the settings too."""
    environ = {**os.environ, "STORE": "memory:"}
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            served(CARMY[0], "many.py", "--processes", "2", *HTTP, env=environ) as server,
            one_for_each(await server.port()) as clients,
        ):
            assert set(clients) == set(server.workers())


async def test_what_keeps_an_application_from_starting(write: Write) -> None:
    """It is reported once, whatever the number of processes, and the exit code is 1."""
    write(
        "broken.py",
        '''
        from carmy_engine import App, State

        app = App("broken")

        @app.tool(effect="none")
        async def lost(of: State[dict]) -> str:
            """Need what nobody gives."""
            return ""
        ''',
    )
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*CARMY, "serve", "broken.py", *HTTP, "--processes", "3") as server:
            said = await server.last_words()
            assert await server.process.wait() == 1
    assert said.count("lost") == 1
    assert "listening" not in said


@pytest.mark.parametrize("count", ["0", "257", "few"])
async def test_a_number_that_is_none(count: str) -> None:
    """A number of processes that cannot be is a wrong command line."""
    done = await trio.run_process([*CARMY, "serve", "many.py", "--processes", count], capture_stderr=True, check=False)
    assert done.returncode == 2
    assert b"processes" in done.stderr


def test_waits_grow_and_end() -> None:
    """A worker that ends again and again is replaced after longer and longer waits, and then no more."""
    waits = [DEFAULT_LIMITS.next_wait(crashes) for crashes in range(1, DEFAULT_LIMITS.max_crashes + 1)]
    assert waits == [0.5, 1, 2, 4, 8, None]


def test_endings_in_words() -> None:
    """Exit codes and signals are distinguished, unknown signals included."""
    assert ending(3) == "ended with exit code 3"
    assert ending(-signal.SIGSEGV) == "was killed by SIGSEGV"
    assert ending(-63) == "was killed by signal 63"


def test_a_setting_counts_too(directory: Path) -> None:
    """The number of processes is a setting like others."""
    (directory / "carmy.toml").write_text("app = 'shop.py'\n[http]\nprocesses = 0\n")
    done = subprocess.run([*CARMY, "serve"], capture_output=True, text=True, check=False)
    assert (done.returncode, "http.processes must be" in done.stderr) == (1, True)
