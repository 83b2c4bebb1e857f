"""``POST /agent/execute``: outcomes, statuses, refusals, idempotency."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.tools import crash, delete, echo, fail, nothing, sleep
from tests.support.http import JSON, Running, serving

EXECUTE = "/agent/execute"


async def post(server: Running, body: bytes, **headers: str) -> Any:
    fields = {"content-type": JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with server.client() as client:
        return await client.request("POST", EXECUTE, fields, body)


async def test_success() -> None:
    """A completed execution is answered with its data, may not be stored, and states whether it is cacheable."""
    async with serving(echo) as server:
        answer = await server.call("echo", arguments={"text": "hi"})
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == JSON
    body = answer.json
    assert list(body) == ["execution_id", "status", "data", "_agent"]
    assert (body["status"], body["data"], body["_agent"]) == (
        "completed",
        "hi",
        {"cacheable": True, "next_actions": []},
    )


async def test_null_data_is_present() -> None:
    """A tool that returns nothing is answered with the member data, null."""
    async with serving(nothing) as server:
        answer = await server.call("nothing")
    assert answer.json["data"] is None


@pytest.mark.parametrize(
    ("category", "status"),
    [
        ("validation", 400), ("permission", 403), ("not_found", 404), ("cancelled", 408), ("conflict", 409),
        ("internal", 500), ("capacity", 503), ("timeout", 504),
    ],
)  # fmt: skip
async def test_status_follows_the_category(category: str, status: int) -> None:
    """A failed execution has the status of its error's category, and the body of an execution."""
    async with serving(fail) as server:
        answer = await server.call("fail", arguments={"code": "MINE", "category": category})
    assert (answer.status, answer.code) == (status, "MINE")
    assert answer.json["execution_id"].startswith("exec_")


async def test_retry_after_is_rounded_up() -> None:
    """An error with a wait is accompanied by Retry-After, in whole seconds, rounded up, and by a next action."""
    async with serving(fail) as server:
        arguments = {"code": "LATER", "category": "capacity", "retryable": True, "retry_after": 1.2}
        answer = await server.call("fail", arguments=arguments)
    assert answer.headers["retry-after"] == "2"
    assert answer.json["_agent"]["next_actions"][0]["after_ms"] == 1200


async def test_crash_tells_no_secrets() -> None:
    """What a tool did not declare is answered with 500 and an id, without the exception's text."""
    async with serving(crash) as server:
        answer = await server.call("crash")
    assert (answer.status, answer.code) == (500, "TOOL_PANIC")
    assert b"secret" not in answer.body


async def test_confirmation_required() -> None:
    """A destructive tool without permission is refused with 403 and a next action."""
    async with serving(delete) as server:
        answer = await server.call("delete", arguments={"name": "x"})
    assert (answer.status, answer.code) == (403, "CONFIRMATION_REQUIRED")
    assert answer.json["_agent"]["next_actions"][0]["tool"] == "delete"


async def test_unknown_tool() -> None:
    """An unknown tool is an execution's outcome: 404 with a body that has an id."""
    async with serving(echo) as server:
        answer = await server.call("ecko")
    assert (answer.status, answer.code) == (404, "TOOL_NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"{", "truncated"),
        (b'{"tool":"echo"} x', "trailing"),
        (b"\xef\xbb\xbf{}", "malformed"),
        (b'{"tool":"\xff"}', "UTF-8"),
        (b"[]", "Expected"),
        (b"{}", "tool"),
        (b'{"tool":1}', "tool"),
        (b'{"tool":"echo","principal":"root"}', "principal"),
        (b'{"tool":"echo","context":{}}', "context"),
        (b'{"tool":"echo","tool":"echo"}', "twice"),
        (b'{"tool":"echo","\\u0074ool":"echo"}', "twice"),
        (b'{"tool":"echo","timeout_ms":0}', "timeout_ms"),
        (b'{"tool":"echo","timeout_ms":-1}', "timeout_ms"),
        (b'{"tool":"echo","timeout_ms":true}', "timeout_ms"),
        (b'{"tool":"echo","timeout_ms":"5"}', "timeout_ms"),
        (b'{"tool":"echo","on_running":"join"}', "on_running"),
        (b'{"tool":"echo","on_running":true}', "on_running"),
        (b'{"tool":"echo","request_id":5}', "request_id"),
        (b'{"tool":"echo","arguments":{"text":' + b"[" * 200 + b"]" * 200 + b"}}", "nested"),
        (b'{"tool":"echo","arguments":{"text":NaN}}', ""),
        (b'{"tool":"echo","arguments":{"text":1e999}}', ""),
    ],
)
async def test_not_a_request(body: bytes, reason: str) -> None:
    """What is no valid request is answered with 400, only an error, and a reason."""
    async with serving(echo) as server:
        answer = await post(server, body)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert list(answer.json) == ["error"]
    assert reason.lower() in answer.json["error"]["details"]["reason"].lower()
    assert answer.headers["cache-control"] == "no-store"


ALL_FIELDS = "the fields are 'tool', 'arguments', 'request_id', 'timeout_ms', 'on_running'"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("argumets", "the field 'argumets' is not known; did you mean 'arguments'?"),
        ("requestId", "the field 'requestId' is not known; did you mean 'request_id'?"),
        ("context", f"the field 'context' is not known; {ALL_FIELDS}"),
        ("x" * 500_000, f"the field '{'x' * 100}…' is not known; {ALL_FIELDS}"),
    ],
    ids=["argumets", "requestId", "context", "long"],
)
async def test_an_unknown_field_is_put_right(name: str, said: str) -> None:
    """The nearest field is named, or all of them, in the words that are used for arguments; never at any length."""
    async with serving(echo) as server:
        answer = await post(server, json.dumps({"tool": "echo", name: 1}).encode())
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert answer.json["error"]["details"]["reason"] == said


async def test_names_of_fields_inside_arguments_are_no_duplicates() -> None:
    """Only the envelope's own fields count as duplicates."""
    async with serving(echo) as server:
        answer = await server.call("echo", arguments={"text": 'a "tool" \u00e9'})
    assert answer.status == 200


@pytest.mark.parametrize(
    "raw", [b'{"tool":"echo"}', b'{"tool":"echo","arguments":null}', b'{"tool":"echo","arguments":{}}']
)
async def test_missing_arguments(raw: bytes) -> None:
    """Missing and null arguments mean none."""
    async with serving(echo) as server:
        answer = await post(server, raw)
    assert answer.json["data"] == ""


@pytest.mark.parametrize("raw", [b"[]", b'""', b"0", b"true"])
async def test_arguments_that_are_no_object(raw: bytes) -> None:
    """Arrays and scalars are invalid arguments of a valid request."""
    async with serving(echo) as server:
        answer = await post(server, b'{"tool":"echo","arguments":%b}' % raw)
    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENTS")
    assert "execution_id" in answer.json


@pytest.mark.parametrize(
    "value", ["text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=latin-1"]
)
async def test_content_type(value: str) -> None:
    """Only JSON is accepted, which keeps simple cross-site forms out."""
    async with serving(echo) as server:
        answer = await post(server, b'{"tool":"echo"}', content_type=value)
        missing = await server.get(EXECUTE, {"content-length": "0"}, method="POST")
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert "Content-Type" in missing.json["error"]["details"]["reason"]


@pytest.mark.parametrize("value", ["Application/JSON", 'application/json; charset="UTF-8"', "application/vnd.x+json"])
async def test_content_types_of_json(value: str) -> None:
    """JSON is JSON in any case, with parameters and under a structured suffix."""
    async with serving(echo) as server:
        assert (await post(server, b'{"tool":"echo"}', content_type=value)).status == 200


async def test_content_type_comes_before_size_and_syntax() -> None:
    """Of several problems the content type is refused first, then the size, then the syntax."""
    async with serving(echo) as server:
        big = b"{" + b" " * 1_100_000
        wrong = await post(server, big, content_type="text/plain")
        large = await post(server, big)
    assert (wrong.status, large.status) == (400, 413)


async def test_compressed_body_is_refused() -> None:
    """A compressed body is refused in words that say so."""
    async with serving(echo) as server:
        answer = await post(server, b"\x1f\x8b", content_encoding="gzip")
    assert "compressed" in answer.json["error"]["details"]["reason"]


@pytest.mark.parametrize(("size", "status"), [(1_048_576, 200), (1_048_577, 413)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_body_limit_is_exact(size: int, status: int, chunked: bool) -> None:
    """Exactly 1 MiB passes and one byte more does not, with a length and in chunks."""
    head, tail = b'{"tool":"echo","arguments":{"text":"', b'"}}'
    body = head + b"x" * (size - len(head) - len(tail)) + tail
    async with serving(echo) as server, server.client() as client:
        if chunked:
            fields = {"content-type": JSON, "transfer-encoding": "chunked"}
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:70_000], body[70_000:]))
            answer = await client.request("POST", EXECUTE, fields, chunks + b"0\r\n\r\n")
        else:
            answer = await client.request("POST", EXECUTE, {"content-type": JSON}, body)
    assert answer.status == status
    if status == 413:
        assert answer.code == "PAYLOAD_TOO_LARGE"


async def test_replay_is_identical_but_for_a_header() -> None:
    """The same request_id and request replay the same bytes, marked by a header."""
    async with serving(echo) as server:
        first = await server.call("echo", arguments={"text": "a"}, request_id="r1")
        second = await server.call("echo", arguments={"text": "a"}, request_id="r1")
        third = await server.call("echo", {"idempotency-key": "r1"}, arguments={"text": "a"})
        conflict = await server.call("echo", arguments={"text": "b"}, request_id="r1")
    assert first.body == second.body == third.body
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == third.headers["idempotent-replayed"] == "true"
    assert (conflict.status, conflict.code) == (409, "IDEMPOTENCY_CONFLICT")


async def test_idempotency_key_must_agree() -> None:
    """Header and field may say the same, and must not differ."""
    async with serving(echo) as server:
        same = await server.call("echo", {"idempotency-key": "r"}, request_id="r")
        other = await server.call("echo", {"idempotency-key": "s"}, request_id="r")
        empty = await server.call("echo", {"idempotency-key": ""})
    assert same.status == 200
    assert (other.status, other.code) == (400, "INVALID_REQUEST")
    assert (empty.status, empty.code) == (400, "INVALID_ID")


async def test_timeout() -> None:
    """A request's own limit ends the tool with 504, and the connection serves the next request."""
    async with serving(sleep, echo) as server, server.client() as client:
        answer = await client.call("sleep", arguments={"seconds": 60}, timeout_ms=20)
        assert (answer.status, answer.code) == (504, "TIMEOUT")
        assert (await client.call("echo")).status == 200


async def test_errors_inside_json_are_valid_json() -> None:
    """Whatever text a caller sends, the refusal is one JSON document."""
    async with serving(echo) as server:
        answer = await post(server, json.dumps({"tool": 'a"\\\u2028'}).encode())
    assert answer.json["error"]["code"] == "TOOL_NOT_FOUND"
