"""Answers over HTTP that refuse a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from carmy_engine import AgentError, BoundEngine
from carmy_http.message import JSON_TYPE, NO_STORE, Request, Response

from ..protocol.errors import JsonRpcError
from ..protocol.messages import encode_error

JSON_HEADERS = (JSON_TYPE, NO_STORE)
"""The headers of an answer of one JSON document."""


def refuse(status: int, error: AgentError, headers: Iterable[tuple[bytes, bytes]] = ()) -> Response:
    """Answer with one error, to no request in particular."""
    return Response(status, (*JSON_HEADERS, *headers), encode_error(None, JsonRpcError.of(error)))


def refusal_of(caller: BoundEngine, request: Request, status: int, request_id: Any, error: JsonRpcError) -> Response:
    """Answer a message of a caller with an error, and record a refusal of the engine's rules."""
    if error.refusal is not None:
        caller.record_refusal(error.refusal, request.peer)
    return Response(status, JSON_HEADERS, encode_error(request_id, error))


def copy_of(response: Response) -> Response:
    """A response of its own: the front end adds headers to it."""
    return Response(response.status, response.headers, response.body)
