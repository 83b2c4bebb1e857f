"""Addresses that are no host and port: sockets with a file, sockets that were inherited, ports that are shared."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from carmy_engine import AgentContext, BearerTokens, ConfigurationError, Settings
from carmy_engine.abc import Credentials
from carmy_net import listener_address, listener_url, open_listeners
from tests.http.tools import echo
from tests.support.http import Answer, Client, serving

LOCAL = ("127.0.0.1", 0)


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Client]:
    stream = await trio.open_unix_socket(str(path))
    async with stream:
        yield Client(trio.SocketStream(stream.socket))


async def call(path: Path) -> Answer:
    async with connected(path) as client:
        return await client.call("echo", arguments={"text": "hello"})


def bound(family: socket.AddressFamily, address: object) -> int:
    """The descriptor of a listening socket that nobody else owns."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind(address)  # type: ignore[arg-type] # of whatever family
    sock.listen()
    return sock.detach()


async def refusal(address: str, **settings: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        await open_listeners(Settings(address=address, **settings), authenticated=False)  # type: ignore[arg-type] # by name
    return str(caught.value)


async def test_a_unix_socket(tmp_path: Path) -> None:
    """A server listens on a path, reports the address, and answers there as anywhere."""
    path = tmp_path / "shop.sock"
    with trio.fail_after(10):
        async with serving(echo, settings={"address": f"unix:{path}"}) as server:
            assert server.line == f"http listening on http://unix:{path}"
            answer = await call(path)
            assert (answer.status, answer.json["data"]) == (200, "hello")
            async with connected(path) as client:
                assert (await client.request("GET", "/agent/tools", {"host": "evil.example"})).status == 403


async def test_its_file_is_for_the_owner_alone(tmp_path: Path) -> None:
    """No other user may connect, whatever the umask is."""
    path = tmp_path / "shop.sock"
    before = os.umask(0)
    try:
        (listener,) = await open_listeners(Settings(address=f"unix:{path}"), authenticated=False)
    finally:
        os.umask(before)
    with listener.socket:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert listener.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


async def test_its_file_goes_when_the_listener_closes(tmp_path: Path) -> None:
    """The file is gone as soon as the server drains, while running calls still get their answers."""
    path = tmp_path / "shop.sock"
    with trio.fail_after(10):
        async with serving(echo, settings={"address": f"unix:{path}"}) as server, connected(path) as client:
            assert (await client.request("GET", "/health")).status == 200
            await server.engine.shut_down()
            await server.ended.wait()
            assert not path.exists()


async def test_its_file_goes_when_the_server_is_cancelled(tmp_path: Path) -> None:
    """A server that is stopped hard leaves no file behind either."""
    path = tmp_path / "shop.sock"
    async with serving(echo, settings={"address": f"unix:{path}"}) as server:
        assert path.exists()
        server.scope.cancel()
        await server.ended.wait()
        assert not path.exists()


async def test_what_a_dead_server_has_left_is_replaced(tmp_path: Path) -> None:
    """The file of a server that was killed does not prevent a start."""
    path = tmp_path / "shop.sock"
    os.close(bound(socket.AF_UNIX, str(path)))
    assert path.exists()
    with trio.fail_after(10):
        async with serving(echo, settings={"address": f"unix:{path}"}):
            assert (await call(path)).status == 200


async def test_a_path_in_use(tmp_path: Path) -> None:
    """The socket of a server that lives, and a file that is none, are left as they are."""
    path, file = tmp_path / "shop.sock", tmp_path / "notes"
    file.write_text("mine")
    async with serving(echo, settings={"address": f"unix:{path}"}):
        assert "Address already in use" in await refusal(f"unix:{path}")
        assert (await call(path)).status == 200
    assert "no socket" in await refusal(f"unix:{file}")
    assert file.read_text() == "mine"


async def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    """A path that is too long, or in no directory, is refused in words."""
    assert "too long" in await refusal(f"unix:{tmp_path / ('x' * 200)}")
    assert "No such file" in await refusal(f"unix:{tmp_path / 'no' / 'where'}")


async def test_the_file_of_a_successor_stays(tmp_path: Path) -> None:
    """A server that ends removes its own file only, not that of a server that has taken its place."""
    path = tmp_path / "shop.sock"
    settings = Settings(address=f"unix:{path}")
    (first,) = await open_listeners(settings, authenticated=False)
    path.unlink()
    (second,) = await open_listeners(settings, authenticated=False)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


async def test_an_inherited_socket() -> None:
    """A server listens on the socket that it was given, and reports its address."""
    number = bound(socket.AF_INET, LOCAL)
    with trio.fail_after(10):
        async with serving(echo, settings={"address": f"fd://{number}"}) as server:
            assert server.line == f"http listening on http://127.0.0.1:{server.port}"
            assert not os.get_inheritable(number)
            assert (await server.call("echo", arguments={"text": "hello"})).json["data"] == "hello"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


async def test_inherited_sockets_of_two_kinds(tmp_path: Path) -> None:
    """Several descriptors are several addresses of one server; the file of one is left to the process that made it."""
    path = tmp_path / "shop.sock"
    numbers = bound(socket.AF_INET, LOCAL), bound(socket.AF_UNIX, str(path))
    with trio.fail_after(10):
        async with serving(echo, settings={"address": "fd://{},{}".format(*numbers)}) as server:
            assert (await server.get("/health")).status == 200
            assert (await call(path)).status == 200
    assert path.exists()


async def test_inherited_sockets_keep_the_rules() -> None:
    """Where a socket is bound decides whether credentials are needed, as if it had been bound here."""
    refused = await refusal(f"fd://{bound(socket.AF_INET, ('0.0.0.0', 0))}")
    assert "allow_anonymous" in refused
    settings = Settings(address=f"fd://{bound(socket.AF_INET, ('0.0.0.0', 0))}")
    (listener,) = await open_listeners(settings, authenticated=True)
    assert listener_address(listener).startswith("0.0.0.0:")
    listener.close()


async def test_descriptors_that_are_nothing_of_the_kind(tmp_path: Path) -> None:
    """A descriptor that is closed, a file or a connection is refused, saying what it is not."""
    gone = os.dup(0)
    os.close(gone)
    assert f"descriptor {gone} is no socket" in await refusal(f"fd://{gone}")
    with (tmp_path / "file").open("w") as file:
        assert "is no socket" in await refusal(f"fd://{file.fileno()}")
    here, there = socket.socketpair()
    with there:
        assert "none that listens" in await refusal(f"fd://{here.detach()}")


async def test_a_shared_port() -> None:
    """Servers that both say reuse_port share a port; one that does not say so is refused."""
    settings = {"reuse_port": True}
    with trio.fail_after(10):
        async with serving(echo, settings=settings) as first:
            address = f"127.0.0.1:{first.port}"
            async with serving(echo, settings={**settings, "address": address}) as second:
                assert first.port == second.port
            assert "Address already in use" in await refusal(address)


async def test_callers_without_an_address(tmp_path: Path) -> None:
    """An authenticator gets no address when there is none."""
    path = tmp_path / "shop.sock"
    peers: list[str | None] = []
    tokens = BearerTokens({"t": AgentContext(principal="ana")})

    def authenticate(credentials: Credentials) -> AgentContext | None:
        peers.append(credentials.peer)
        return tokens(credentials)

    with trio.fail_after(10):
        async with (
            serving(echo, settings={"address": f"unix:{path}"}, authenticator=authenticate),
            connected(path) as client,
        ):
            assert (await client.call("echo", {"authorization": "Bearer t"}, arguments={"text": ""})).status == 200
    assert peers == [None]


async def test_where_a_path_begins(tmp_path: Path) -> None:
    """The URL of a socket with a file separates the path behind it, as proxies write it."""
    (listener,) = await open_listeners(Settings(address=f"unix:{tmp_path}/s"), authenticated=False)
    with listener.socket:
        assert listener_url(listener, "http") == f"http://unix:{tmp_path}/s"
        assert listener_url(listener, "ws", "/agent/ws") == f"ws://unix:{tmp_path}/s:/agent/ws"
