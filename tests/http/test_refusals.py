"""Every refusal leaves a record and a line in the log, and neither more than a few."""

from __future__ import annotations

import logging

import pytest
import trio

from carmy_engine import AgentContext, BearerTokens, ExecutionRecord, ExecutionStatus
from carmy_engine.transport import BURST_LINES
from tests.http.tools import echo
from tests.support.http import JSON, Running, render, serving

MAX_RECORDS = 60
"""Records of refusals in a minute, as docs/security.md promises."""

TOKENS = BearerTokens({"secret": AgentContext(principal="ana")})
BEARER = {"authorization": "Bearer secret"}


def only(server: Running) -> ExecutionRecord:
    """The only record that there is."""
    (record,) = server.engine.audit.newest()
    assert record.transport == "http"
    assert record.tool == ""
    assert record.status is ExecutionStatus.FAILED
    return record


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}])
async def test_missing_and_wrong_credentials(headers: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """A 401 leaves a record without a principal, and a line with the caller's address."""
    caplog.set_level(logging.INFO)
    async with serving(echo, authenticator=TOKENS) as server:
        assert (await server.call("echo", headers)).status == 401
        record = only(server)
    assert (record.error_code, record.principal) == ("UNAUTHENTICATED", None)
    assert "refused a request over http from 127.0.0.1: UNAUTHENTICATED" in caplog.messages


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({"content-type": JSON}, b"{", "INVALID_REQUEST"),
        ({"content-type": JSON}, b"\xff", "INVALID_REQUEST"),
        ({"content-type": JSON}, b"[]", "INVALID_REQUEST"),
        ({"content-type": JSON}, b'{"tool":"echo","context":{}}', "INVALID_REQUEST"),
        ({"content-type": "text/plain"}, b"{}", "INVALID_REQUEST"),
        ({"content-type": JSON}, b" " * (1024 * 1024 + 1), "PAYLOAD_TOO_LARGE"),
    ],
)
async def test_bodies_that_are_no_request(
    headers: dict[str, str], body: bytes, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A body that never becomes an execution leaves a record of its caller, and a line without what was sent."""
    caplog.set_level(logging.INFO)
    async with serving(echo, authenticator=TOKENS) as server, server.client() as client:
        assert (await client.request("POST", "/agent/execute", {**BEARER, **headers}, body)).code == code
        record = only(server)
    assert (record.error_code, record.principal) == (code, "ana")
    assert f"refused a request over http from 127.0.0.1: {code}" in caplog.messages


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/9.9\r\n\r\n", "INVALID_REQUEST"),
        (b"\x16\x03\x01\r\n\r\n", "INVALID_REQUEST"),
        (b"GET / HTTP/1.1\n\n", "INVALID_REQUEST"),
        (render("POST", "/agent/execute", {"transfer-encoding": "chunked"}) + b"zz\r\n", "INVALID_REQUEST"),
        (render("GET", "/agent/tools", {"host": "evil.example"}), "FORBIDDEN"),
        (render("GET", "/agent/tools", {"origin": "https://evil.example"}), "FORBIDDEN"),
        (render("GET", "/nowhere"), "ROUTE_NOT_FOUND"),
    ],
)
async def test_what_is_refused_before_a_caller_is_known(data: bytes, code: str) -> None:
    """Malformed messages, hosts, origins and addresses that are refused leave a record too."""
    async with serving(echo) as server, server.client() as client:
        await client.send(data)
        assert (await client.answer()).code == code
        assert only(server).error_code == code


async def test_refusals_go_to_every_sink() -> None:
    """A sink of the application gets the records of refusals like those of executions."""
    seen: list[str | None] = []

    class Sink:
        def record(self, record: ExecutionRecord) -> None:
            seen.append(record.error_code)

    async with serving(echo, authenticator=TOKENS, sinks=[Sink()]) as server:
        await server.call("echo")
        await server.call("echo", BEARER)
    assert seen == ["UNAUTHENTICATED", None]


async def test_a_flood_of_refusals_leaves_a_bounded_trail(caplog: pytest.LogCaptureFixture) -> None:
    """Strangers neither fill the log nor push the records of executions out of memory."""
    caplog.set_level(logging.INFO, logger="carmy.engine")
    async with serving(echo, authenticator=TOKENS) as server:
        await server.call("echo", BEARER)
        async with server.client() as client:
            with trio.fail_after(20):
                for _ in range(2 * MAX_RECORDS):
                    assert (await client.call("echo")).status == 401
        records = server.engine.audit.newest()
    assert sum(record.error_code == "UNAUTHENTICATED" for record in records) == MAX_RECORDS
    assert records[-1].principal == "ana"
    assert sum("UNAUTHENTICATED" in message for message in caplog.messages) == BURST_LINES
