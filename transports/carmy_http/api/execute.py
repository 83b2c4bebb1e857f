"""``POST /agent/execute``: from the bytes of a request to the bytes of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from carmy_engine import BoundEngine, ExecutionRequest, ExecutionResult, HttpSettings
from carmy_engine.codec import (
    LONG_MESSAGE_BYTES,
    UniqueNames,
    answer_body,
    check_json,
    check_timeout_ms,
    decode,
    invalid_request,
    no_pulse,
)
from carmy_engine.transport import OnRunning
from carmy_net import lacking_permission

from ..message import JSON_TYPE, NO_STORE, Answer, HeaderList, Request, RequestHead, Response
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
_UNIQUE = UniqueNames(_Body.__struct_fields__)
_SUCCESS_HEADERS: HeaderList = (JSON_TYPE, NO_STORE)
_REPLAYED = (b"idempotent-replayed", b"true")


class CallHead(NamedTuple):
    """What the head of ``POST /agent/execute`` states about the call.

    Attributes:
        problem: The reason to refuse it, None when there is none.
        keys: The values of the header ``Idempotency-Key``.
        wants_events: The client prefers a stream of events.
    """

    problem: str | None
    keys: Sequence[bytes]
    wants_events: bool


def read_call_head(head: RequestHead) -> CallHead:
    """Read the headers that concern the call."""
    problem = content_type_problem(head.first(b"content-type"))
    coding = head.first(b"content-encoding")
    if problem is None and coding is not None and coding.strip().lower() not in {b"", b"identity"}:
        problem = "the body must not be compressed; send it without Content-Encoding"
    return CallHead(problem, head.every(b"idempotency-key"), wants_events(head.every(b"accept")))


async def execute(call: CallHead, limits: HttpSettings, request: Request, engine: BoundEngine) -> Answer:
    """Answer ``POST /agent/execute`` with one JSON document or, if the client prefers it, with a stream of events.

    Raises:
        AgentError: ``INVALID_REQUEST``.
        Refusal: The body is too large or too slow.
        Disconnected: The client left; its execution has been cancelled.
    """
    if call.problem is not None:
        raise invalid_request(call.problem)
    body = await request.read_body(limits)
    if len(body) <= LONG_MESSAGE_BYTES:
        wanted = parse(body, call.keys)
    else:
        wanted = await engine.read_message(partial(parse, body, call.keys))
    if call.wants_events:
        return EventResponse(request, engine, wanted)
    return json_response(await request.while_connected(engine.execute, wanted))


def parse(body: bytes, keys: Sequence[bytes], pulse: Callable[[], None] = no_pulse) -> ExecutionRequest:
    """Read a request's body, strictly.

    Args:
        body: The bytes.
        keys: The values of the header ``Idempotency-Key``.
        pulse: Called after each piece of a long body.

    Raises:
        AgentError: ``INVALID_REQUEST``, with ``details.reason``.
    """
    if not body:
        raise invalid_request("the body is empty; send a JSON object with the field 'tool'")
    check_json(body, pulse=pulse)
    envelope = decode(body, decoder=_decoder)
    _UNIQUE.check(body, (b'"arguments"', envelope.arguments), pulse=pulse)
    timeout_ms = envelope.timeout_ms
    if timeout_ms is not None:
        check_timeout_ms(timeout_ms)
    return ExecutionRequest(
        tool=envelope.tool,
        arguments=envelope.arguments,
        request_id=_request_id(envelope.request_id, keys) if keys else envelope.request_id,
        timeout_ms=timeout_ms,
        on_running=envelope.on_running,
    )


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
        if (scope := lacking_permission(error)) is not None:
            headers.append((b"www-authenticate", b'Bearer error="insufficient_scope", scope="%b"' % scope.encode()))
    if result.replayed:
        headers.append(_REPLAYED)
    return Response(status, headers, body)
