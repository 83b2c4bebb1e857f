"""``/health`` and ``/ready``."""

from __future__ import annotations

import threading

import pytest
import trio

from carmy_engine.errors import AgentError
from carmy_engine.transport import BURST_LINES
from tests.boundary.escapes import ESCAPES, SECRET, made
from tests.http.tools import echo
from tests.support.http import serving


async def test_health() -> None:
    """Health is always the same."""
    async with serving(echo) as server:
        answer = await server.get("/health")
    assert (answer.status, answer.json) == (200, {"ok": True})
    assert answer.headers["cache-control"] == "no-store"


async def test_ready_names_what_failed(caplog: pytest.LogCaptureFixture) -> None:
    """Readiness runs every check, of either kind, and names each that failed; health does not change."""

    async def fine() -> None:
        await trio.lowlevel.checkpoint()

    async def down() -> None:
        raise AgentError("DATABASE_UNAVAILABLE", "no database", "capacity", retryable=True, retry_after=3)

    def crashes() -> bool:
        raise RuntimeError("a secret")

    checks = {
        "fine": fine,
        "plain": lambda: True,
        "later": lambda: fine(),
        "down": down,
        "false": lambda: False,
        "bad": crashes,
    }
    async with serving(echo, ready_checks=checks) as server:
        answer = await server.get("/ready")
        assert (await server.get("/health")).status == 200
    assert (answer.status, answer.json["ready"]) == (503, False)
    assert list(answer.json["checks"]) == list(checks)
    assert {name for name, check in answer.json["checks"].items() if check["ok"]} == {"fine", "plain", "later"}
    assert answer.json["checks"]["down"]["error"]["code"] == "DATABASE_UNAVAILABLE"
    assert answer.headers["retry-after"] == "3"
    assert b"secret" not in answer.body
    assert "a secret" in caplog.text


@pytest.mark.parametrize("escape", ESCAPES)
async def test_whatever_a_check_raises_is_its_failure(escape: str, caplog: pytest.LogCaptureFixture) -> None:
    """A check of either kind may raise anything: it is named as failed, and the other checks and requests are answered."""

    def plain() -> None:
        raise made(escape)

    async def later() -> None:
        await trio.lowlevel.checkpoint()
        raise made(escape)

    checks = {"plain": plain, "later": later, "fine": lambda: True}
    async with serving(echo, ready_checks=checks) as server:
        answer = await server.get("/ready")
        assert {name: check["ok"] for name, check in answer.json["checks"].items()} == {
            "plain": False,
            "later": False,
            "fine": True,
        }
        assert SECRET not in answer.body.decode()
        assert (await server.get("/health")).status == 200
    assert sorted(record.getMessage() for record in caplog.records) == [
        "the readiness check 'later' failed",
        "the readiness check 'plain' failed",
    ]


async def test_ready() -> None:
    """Without a failing check the server is ready."""
    async with serving(echo) as server:
        answer = await server.get("/ready")
        head = await server.get("/ready", method="HEAD")
    assert (answer.status, answer.json) == (200, {"ready": True, "checks": {}})
    assert head.status == 200


async def test_checks_that_hang() -> None:
    """Checks run together, each with its limit, also those that block a thread; the others still have their results."""
    free = threading.Event()

    def blocks() -> None:
        free.wait(10)

    checks = {"hangs": trio.sleep_forever, "blocks": blocks, "fine": lambda: None}
    async with serving(echo, ready_checks=checks, http={"ready_timeout_secs": 0.2}) as server:
        with trio.fail_after(5):
            answer = await server.get("/ready")
        free.set()
    assert answer.status == 503
    assert [check["ok"] for check in answer.json["checks"].values()] == [False, False, True]
    assert answer.json["checks"]["hangs"]["error"]["code"] == "READY_TIMEOUT"


@pytest.mark.parametrize("path", ["/health", "/ready"])
@pytest.mark.parametrize("host", ["10.1.2.3", "10.1.2.3:8080", "pod-7.cluster.local", "evil.example", "a b", ""])
async def test_probes_may_use_any_host(path: str, host: str) -> None:
    """Health is answered whatever name or address a probe uses: Kubernetes and load balancers ask by the address of the machine."""
    async with serving(echo) as server:
        assert (await server.get(path, {"host": host})).status == 200
        assert (await server.get(path, {"host": host, "origin": "https://evil.example"})).status == 403
        assert (await server.get(f"http://10.1.2.3{path}", {"host": host})).status == 200


async def test_a_check_that_fails_is_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    """Anyone may ask for readiness, so each failing check writes a few tracebacks a minute, however often it is asked for."""

    def crashes() -> bool:
        raise RuntimeError("no disk")

    async with serving(echo, ready_checks={"one": crashes, "two": crashes}) as server, server.client() as client:
        for _ in range(3 * BURST_LINES):
            assert (await client.request("GET", "/ready")).status == 503
    for name in ("one", "two"):
        assert caplog.messages.count(f"the readiness check '{name}' failed") == BURST_LINES
