"""Addresses: which are taken, which are refused, and in which words."""

from __future__ import annotations

import socket

import pytest

from carmy_engine import AgentContext, BearerTokens, Settings
from carmy_engine.errors import ConfigurationError
from carmy_net import enable_keepalive, listener_address, open_listeners
from tests.http.tools import echo
from tests.support.http import serving


async def test_the_line_for_people_ends_in_the_address() -> None:
    """The transport reports where it listens."""
    async with serving(echo) as server:
        assert server.line == f"http listening on http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
async def test_open_addresses_need_authentication(address: str) -> None:
    """An address that others can reach is refused without an authenticator, and the message names the settings."""
    with pytest.raises(ConfigurationError, match="allow_anonymous"):
        await open_listeners(Settings(address=address), authenticated=False)


async def test_open_addresses_on_purpose() -> None:
    """With an authenticator, or when anonymous calls are allowed, any address is fine."""
    for settings, authenticated in [
        (Settings(address="0.0.0.0:0"), True),
        (Settings(address="0.0.0.0:0", allow_anonymous=True), False),
    ]:
        for listener in await open_listeners(settings, authenticated=authenticated):
            assert listener_address(listener).startswith("0.0.0.0:")
            listener.close()


async def test_open_address_still_checks_hosts() -> None:
    """The rule of hosts does not depend on the address."""
    tokens = BearerTokens({"t": AgentContext(principal="ana")})
    async with serving(echo, settings={"address": "0.0.0.0:0"}, authenticator=tokens) as server:
        bearer = {"authorization": "Bearer t"}
        assert (await server.get("/agent/tools", {**bearer, "host": "10.0.0.1"})).status == 403
        assert (await server.get("/agent/tools", {**bearer, "host": "localhost"})).status == 200


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
async def test_dead_links_are_noticed() -> None:
    """The kernel is configured to give up a link on which the other machine shows no life, with data on its way and without."""
    listeners = await open_listeners(Settings(address="127.0.0.1:0"), authenticated=False)
    with listeners[0].socket as sock:
        enable_keepalive(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15


async def test_localhost() -> None:
    """A name that means loopback is fine, with one port for whatever it means."""
    listeners = await open_listeners(Settings(address="localhost:0"), authenticated=False)
    assert len(listeners) == 1
    listeners[0].close()


async def test_an_address_in_use() -> None:
    """An address that another process has is refused in words that say what to do."""
    async with serving(echo) as server:
        with pytest.raises(ConfigurationError, match="choose another"):
            await open_listeners(Settings(address=f"127.0.0.1:{server.port}"), authenticated=False)
