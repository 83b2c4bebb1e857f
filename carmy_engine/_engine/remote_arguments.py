"""The arguments of a request that a client sends to a server."""

from __future__ import annotations

import msgspec

from .._idempotency.decisions import may_join
from .._model.codec import check_json, check_timeout_ms, decode, invalid_request
from .._model.request import ExecutionRequest
from .._schema.json_form import encode_arguments


def encode_remote_arguments(request: ExecutionRequest) -> msgspec.Raw | None:
    """Return a request's arguments as JSON, after the checks that a server would make; None if it has none.

    Raises:
        AgentError: ``INVALID_REQUEST`` or ``INVALID_ARGUMENTS``: the request cannot be sent.
    """
    if request.metadata is not None:
        raise invalid_request("metadata cannot be sent over a connection; put it into the arguments")
    if request.timeout_ms is not None:
        check_timeout_ms(request.timeout_ms)
    may_join(request.on_running)
    arguments = request.arguments
    if isinstance(arguments, msgspec.Raw):
        raw = bytes(arguments)
        check_json(raw)
        decode(raw)
        return arguments
    return None if arguments is None else msgspec.Raw(encode_arguments(arguments))
