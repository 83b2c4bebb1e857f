"""What the client decides, without a loop."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from carmy_engine import AgentError, ClosedError, ErrorInfo, ExecutionRequest, ExecutionResult
from carmy_http import HttpClientLimits
from carmy_http.client.retries import (
    Failure,
    Lost,
    RequestBody,
    next_wait,
    read_answer,
    wait_for_running,
)

LIMITS = HttpClientLimits()
URL = "http://127.0.0.1:1"


def body_of(remaining: float = math.inf, **fields: Any) -> Any:
    return msgspec.json.decode(RequestBody.of(ExecutionRequest(**fields)).body(remaining))


def test_only_what_is_given_is_sent() -> None:
    """The body has the fields of the request that are set, and nothing of any context."""
    assert body_of(tool="echo") == {"tool": "echo"}
    assert body_of(tool="echo", arguments={"a": [1, "é"]}, request_id="r", timeout_ms=5) == {
        "tool": "echo",
        "arguments": {"a": [1, "é"]},
        "request_id": "r",
        "timeout_ms": 5,
    }


def test_what_is_left_of_the_deadline_is_sent() -> None:
    """The shorter of the request's limit and what the caller has left goes to the server, and never zero."""
    assert body_of(2.5, tool="echo")["timeout_ms"] == 2500
    assert body_of(2.5, tool="echo", timeout_ms=100)["timeout_ms"] == 100
    assert body_of(0.05, tool="echo", timeout_ms=100)["timeout_ms"] == 50
    assert body_of(-1, tool="echo")["timeout_ms"] > 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"arguments": msgspec.Raw(b"{")}, "INVALID_REQUEST"),
        ({"arguments": msgspec.Raw(b'{"a":NaN}')}, "INVALID_REQUEST"),
        ({"arguments": msgspec.Raw(b'{},"principal":"eve"')}, "INVALID_REQUEST"),
        ({"arguments": msgspec.Raw(b"[" * 200 + b"]" * 200)}, "INVALID_REQUEST"),
        ({"arguments": {"a": "x" * 1_100_000}}, "PAYLOAD_TOO_LARGE"),
        ({"timeout_ms": math.inf}, "INVALID_REQUEST"),
        ({"timeout_ms": math.nan}, "INVALID_REQUEST"),
        ({"timeout_ms": 0}, "INVALID_REQUEST"),
        ({"on_running": "join"}, "INVALID_REQUEST"),
        ({"timeout_ms": True}, "INVALID_REQUEST"),
        ({"timeout_ms": "1"}, "INVALID_REQUEST"),
        ({"request_id": "\ud800"}, "INVALID_REQUEST"),
        ({"metadata": {"a": 1}}, "INVALID_REQUEST"),
    ],
)
def test_what_cannot_be_sent(fields: dict[str, Any], code: str) -> None:
    """A request that no server could take is refused here, with the code that a server would give."""
    with pytest.raises(AgentError) as raised:
        RequestBody.of(ExecutionRequest(tool="echo", **fields))
    assert raised.value.code == code


def test_waits_grow_and_end() -> None:
    """Attempts are few, and the waits between them grow."""
    waits = [next_wait(count, Failure.NOT_SENT, repeatable=False) for count in range(1, LIMITS.max_attempts + 1)]
    assert waits == [LIMITS.first_wait_secs, LIMITS.first_wait_secs * 2, LIMITS.first_wait_secs * 4, None]


def test_only_what_is_safe_is_repeated() -> None:
    """What may have run is sent again only if that is harmless."""
    assert next_wait(1, Failure.LOST, repeatable=False) is None
    assert next_wait(1, Failure.LOST, repeatable=True) == LIMITS.first_wait_secs


def test_the_wait_that_is_asked_for() -> None:
    """A wait that the server names is kept; one that is too long is left to the caller."""
    assert next_wait(1, Failure.LOST, repeatable=True, asked=3) == 3
    assert next_wait(1, Failure.LOST, repeatable=True, asked=3600) is None


def test_an_answer() -> None:
    """A result has what the body and the header say."""
    body = b'{"execution_id":"e","status":"completed","data":{"a":9007199254740993},"_agent":{"cacheable":true,"next_actions":[]}}'
    result = read_answer(URL, 200, {"idempotent-replayed": "true"}, body)
    assert result.data_json == b'{"a":9007199254740993}'
    assert (result.execution_id, result.replayed, result.cacheable) == ("e", True, True)
    assert not read_answer(URL, 200, {}, body).replayed


def test_a_refusal() -> None:
    """The server's refusal of a request is a result without an execution."""
    body = msgspec.json.encode({"error": AgentError.standard("UNAUTHENTICATED", "no").info})
    result = read_answer(URL, 401, {}, body)
    assert result.execution_id == ""
    assert result.error is not None
    assert result.error.code == "UNAUTHENTICATED"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_somebody_in_between(status: int) -> None:
    """An answer of a proxy does not show whether the tool has run, but may give the time to wait."""
    for value, wait in (("3", 3), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("-1", None)):
        with pytest.raises(Lost) as raised:
            read_answer(URL, status, {"retry-after": value}, b"<html>")
        assert raised.value.failure is Failure.LOST
        assert raised.value.wait == wait


@pytest.mark.parametrize("status", [200, 204, 301, 404, 405])
def test_something_else(status: int) -> None:
    """What is no server of this protocol is a ClosedError that states what it answered."""
    with pytest.raises(ClosedError, match=str(status)):
        read_answer(URL, status, {}, b"<html>")


def test_an_attempt_that_wait_for_running() -> None:
    """Only an uncertain outcome whose attempt is running is asked for again."""

    def result(code: str, state: str) -> ExecutionResult:
        error = AgentError.standard(code, "", details={"state": state}).info
        return ExecutionResult(execution_id="e", error=error)

    assert wait_for_running(result("EXECUTION_UNCERTAIN", "running")) == LIMITS.first_wait_secs
    assert wait_for_running(result("EXECUTION_UNCERTAIN", "interrupted")) is None
    assert wait_for_running(result("TIMEOUT", "running")) is None
    assert wait_for_running(ExecutionResult(execution_id="e", data_json=b"1")) is None
    info = AgentError.standard("EXECUTION_UNCERTAIN", "", retry_after=2, details={"state": "running"}).info
    assert isinstance(info, ErrorInfo)
    assert wait_for_running(ExecutionResult(execution_id="e", error=info)) == 2
