"""``/agent/resources`` and ``/agent/prompts``: what this caller may read, and reading it; ``/agent/complete``: values for arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import msgspec

from carmy_engine import BoundEngine, ExecutionResult, HttpSettings
from carmy_engine.codec import (
    LONG_MESSAGE_BYTES,
    UniqueNames,
    check_json,
    check_timeout_ms,
    decode,
    invalid_request,
    no_pulse,
)

from ..message import JSON_TYPE, NO_STORE, Answer, Request, Response
from .discovery import PROMPTS_PATH, RESOURCES_PATH, cached
from .execute import json_response, read_call_head

READ_PATH = f"{RESOURCES_PATH}/read"
GET_PATH = f"{PROMPTS_PATH}/get"

T = TypeVar("T", bound=msgspec.Struct)


class ReadBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that reads a resource."""

    uri: str
    timeout_ms: float | None = None


class GetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that renders a prompt."""

    name: str
    arguments: dict[str, Any] | None = None
    timeout_ms: float | None = None


class CompleteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that completes an argument."""

    kind: Literal["prompt", "resource"]
    name: str
    argument: str
    value: str = ""
    given: dict[str, str] = {}


class JsonBody(Generic[T]):
    """The strict reader of one kind of body."""

    def __init__(self, shape: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(shape)
        self._names = UniqueNames(shape.__struct_fields__)

    async def read(self, request: Request, limits: HttpSettings, engine: BoundEngine) -> T:
        """Read a request's body.

        Raises:
            AgentError: ``INVALID_REQUEST``.
            Refusal: It is too large or too slow.
        """
        problem = read_call_head(request.head).problem
        if problem is not None:
            raise invalid_request(problem)
        body = await request.read_body(limits)
        if not body:
            raise invalid_request("the body is empty; send a JSON object")
        if len(body) <= LONG_MESSAGE_BYTES:
            return self._parse(body)
        return await engine.read_message(partial(self._parse, body))

    def _parse(self, body: bytes, pulse: Callable[[], None] = no_pulse) -> T:
        check_json(body, pulse=pulse)
        found: T = decode(body, decoder=self._decoder)
        self._names.check(body, pulse=pulse)
        timeout_ms = getattr(found, "timeout_ms", None)
        if timeout_ms is not None:
            check_timeout_ms(timeout_ms)
        return found


_READ, _GET, _COMPLETE = JsonBody(ReadBody), JsonBody(GetBody), JsonBody(CompleteBody)


async def resources(request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET /agent/resources``."""
    found = await engine.resources()
    return cached(request, found.document, b'"%b"' % found.version.encode())


async def prompts(request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET /agent/prompts``."""
    found = await engine.prompts()
    return cached(request, found.document, b'"%b"' % found.version.encode())


async def read(limits: HttpSettings, request: Request, engine: BoundEngine) -> Answer:
    """Answer ``POST /agent/resources/read`` as the execution of a tool is answered.

    Raises:
        AgentError: ``INVALID_REQUEST``.
        Refusal: The body is too large or too slow.
        Disconnected: The client left; the execution has been cancelled.
    """
    wanted = await _READ.read(request, limits, engine)

    def run(caller: BoundEngine) -> Awaitable[ExecutionResult]:
        return caller.read_resource(wanted.uri, timeout_ms=wanted.timeout_ms)

    return json_response(await request.while_connected(run, engine))


async def get(limits: HttpSettings, request: Request, engine: BoundEngine) -> Answer:
    """Answer ``POST /agent/prompts/get``; see `read`."""
    wanted = await _GET.read(request, limits, engine)

    def run(caller: BoundEngine) -> Awaitable[ExecutionResult]:
        return caller.get_prompt(wanted.name, wanted.arguments, timeout_ms=wanted.timeout_ms)

    return json_response(await request.while_connected(run, engine))


async def complete(limits: HttpSettings, request: Request, engine: BoundEngine) -> Response:
    """Answer ``POST /agent/complete``.

    Raises:
        AgentError: ``INVALID_REQUEST``; what the engine refuses with.
        Refusal: The body is too large or too slow.
    """
    wanted = await _COMPLETE.read(request, limits, engine)
    found = await request.while_connected(
        engine.complete, wanted.kind, wanted.name, wanted.argument, wanted.value, wanted.given
    )
    return Response(200, (JSON_TYPE, NO_STORE), msgspec.json.encode(found))
