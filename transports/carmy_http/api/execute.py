"""``POST /agent/execute``: from the bytes of a request to the bytes of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from carmy_engine import BoundEngine, ExecutionRequest, ExecutionResult
from carmy_engine.codec import answer_body, check_json, decode, duplicate_key, invalid_request, without_value
from carmy_engine.transport import OnRunning

from ..message import JSON_TYPE, NO_STORE, Answer, Disconnected, HeaderList, Request, RequestHead, Response
from .body import body_at_hand, read_body
from .content_negotiation import content_type_problem, wants_events
from .errors import STATUS_OF_CATEGORY, retry_after
from .event_response import EventResponse


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    request_id: str | None = None
    timeout_ms: float | None = None
    on_running: OnRunning = "refuse"


_decoder = msgspec.json.Decoder(_Body)
_FIELDS = tuple(f'"{name}"'.encode() for name in _Body.__struct_fields__)
_SUCCESS_HEADERS: HeaderList = (JSON_TYPE, NO_STORE)
_REPLAYED = (b"idempotent-replayed", b"true")


async def execute(request: Request, engine: BoundEngine, body_seconds: float) -> Answer:
    """Answer ``POST /agent/execute`` with one JSON document or, if the client prefers it, with a stream of events.

    Raises:
        AgentError: ``INVALID_REQUEST``.
        Refusal: The body is too large or too slow.
        Disconnected: The client left; its execution has been cancelled.
    """
    plain = request.plain is not None
    if not plain:
        check_head(request)
    body = body_at_hand(request)
    if body is None:
        body = await read_body(request, body_seconds)
    wanted = parse(body, () if plain else request.every(b"idempotency-key"))
    if not plain and wants_events(request.every(b"accept")):
        return EventResponse(request, engine, wanted)
    if request.watch():
        try:
            return json_response(await engine.execute(wanted))
        finally:
            request.unwatch()
    async with request.cancelled_when_gone():
        return json_response(await engine.execute(wanted))
    raise Disconnected


def check_head(request: RequestHead) -> None:
    """Refuse a head that announces what cannot be read.

    Raises:
        AgentError: ``INVALID_REQUEST``.
    """
    problem = content_type_problem(request.first(b"content-type"))
    if problem is not None:
        raise invalid_request(problem)
    coding = request.first(b"content-encoding")
    if coding is not None and coding.strip().lower() not in {b"", b"identity"}:
        raise invalid_request("the body must not be compressed; send it without Content-Encoding")


def is_plain(request: RequestHead) -> bool:
    """Whether a head that `check_head` has passed asks for one document, and its body says all about the call."""
    return request.first(b"idempotency-key") is None and not wants_events(request.every(b"accept"))


def parse(body: bytes, keys: Sequence[bytes]) -> ExecutionRequest:
    """Read a request's body, strictly.

    Args:
        body: The bytes.
        keys: The values of the header ``Idempotency-Key``.

    Raises:
        AgentError: ``INVALID_REQUEST``, with ``details.reason``.
    """
    if not body:
        raise invalid_request("the body is empty; send a JSON object with the field 'tool'")
    check_json(body)
    envelope = decode(body, decoder=_decoder)
    seen = without_value(body, b'"arguments"', envelope.arguments)
    if seen.find(b"\\u") >= 0:
        _refuse_duplicates(body)  # an escape may spell a name
    for name in _FIELDS:
        if seen.count(name) > 1:
            _refuse_duplicates(body)  # but it may be a value as well
    timeout_ms = envelope.timeout_ms
    if timeout_ms is not None and not 0 < timeout_ms < math.inf:
        raise invalid_request("timeout_ms must be a positive number")
    return ExecutionRequest(
        tool=envelope.tool,
        arguments=envelope.arguments,
        request_id=_request_id(envelope.request_id, keys) if keys else envelope.request_id,
        timeout_ms=timeout_ms,
        on_running=envelope.on_running,
    )


def _refuse_duplicates(body: bytes) -> None:
    twice = duplicate_key(body)
    if twice is not None:
        raise invalid_request(f"the field '{twice}' is there twice")


def _request_id(field: str | None, keys: Sequence[bytes]) -> str | None:
    found = {field} if field is not None else set[str]()
    for key in keys:
        try:
            found.add(key.decode())
        except UnicodeDecodeError:
            raise invalid_request("the header Idempotency-Key is not valid UTF-8") from None
    if len(found) > 1:
        raise invalid_request("the header Idempotency-Key and the field 'request_id' differ, or there are several keys")
    return found.pop()


def json_response(result: ExecutionResult) -> Response:
    """The answer for one outcome. A replay differs from the first answer in one header only."""
    body = answer_body(result)
    error = result.error
    if error is None and not result.replayed:
        return Response(200, _SUCCESS_HEADERS, body)
    status = 200 if error is None else STATUS_OF_CATEGORY[error.category]
    headers = [*_SUCCESS_HEADERS]
    if error is not None:
        headers += retry_after(error)
    if result.replayed:
        headers.append(_REPLAYED)
    return Response(status, headers, body)
