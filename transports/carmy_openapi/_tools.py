"""Tools that call the operations of an API."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from carmy_engine import AgentContext, AgentError, Effect, ToolSpec

from ._answers import OUTPUT_SCHEMA, error_of, value_of
from ._http import NotSent, Unanswered, send
from ._operations import Operation
from ._request import write_request

log = logging.getLogger("carmy.engine")

_EFFECTS = {
    "GET": Effect.READ,
    "PUT": Effect.EXTERNAL_WRITE,
    "POST": Effect.EXTERNAL_WRITE,
    "PATCH": Effect.EXTERNAL_WRITE,
    "DELETE": Effect.DESTRUCTIVE,
}
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})


class OperationTool:
    """One operation as a tool.

    Args:
        operation: The operation.
        client: Sends the requests.
        secrets_of: The credentials, by security scheme.
        effect: What it does to the world; None for the effect of its method.
        max_bytes: Of an answer.

    Attributes:
        spec: The properties of the tool.
    """

    def __init__(
        self,
        operation: Operation,
        client: Any,
        secrets_of: Mapping[str, str],
        effect: Effect | None,
        max_bytes: int,
    ) -> None:
        self._operation = operation
        self._client = client
        self._secrets = secrets_of
        self._max_bytes = max_bytes
        self.spec = ToolSpec(
            name=operation.name,
            title=operation.title,
            description=operation.description,
            input_schema=operation.input_schema,
            output_schema=OUTPUT_SCHEMA,
            effect=_EFFECTS[operation.method] if effect is None else effect,
            idempotent=operation.method in _IDEMPOTENT,
            parallel_safe=True,
        )

    async def execute(self, ctx: AgentContext, input: dict[str, Any]) -> Any:  # noqa: A002 - the contract's name
        """Send the request and return the data of the answer.

        Raises:
            AgentError: The API answered with an error, the arguments cannot be sent, or the connection failed.
        """
        operation = self._operation
        key = _key_of(ctx) if operation.takes_key else None
        request = write_request(operation, input, self._secrets, key)
        try:
            status, headers, body = await send(self._client, request, self._max_bytes)
        except NotSent as lost:
            log.warning("the server of the tool %s cannot be reached: %s", operation.name, lost)
            raise AgentError.standard(
                "EXECUTOR_UNAVAILABLE", f"the server of {operation.name} cannot be reached; nothing was sent"
            ) from lost
        except Unanswered as lost:
            log.warning("the server of the tool %s gave no answer: %s", operation.name, lost)
            if self.spec.is_repeatable:
                message = f"the connection to the server of {operation.name} was lost"
                raise AgentError.standard("EXECUTOR_UNAVAILABLE", message) from lost
            raise AgentError.standard(
                "EXECUTION_UNCERTAIN",
                f"the connection to the server of {operation.name} was lost; its effects may or may not exist",
                suggested_action="Find out whether the effect exists before you use a new request_id.",
                details={"state": "interrupted"},
            ) from lost
        kind = headers.get("content-type", "")
        if status >= 300:
            raise error_of(status, kind, body, headers.get("retry-after"), operation.place)
        return value_of(status, kind, body, operation.place)


def _key_of(ctx: AgentContext) -> str:
    """The ``Idempotency-Key`` of a call: the same for the same ``request_id`` of the same caller, and no other."""
    if ctx.request_id is None:
        return ctx.execution_id
    parts = msgspec.json.encode([ctx.principal, ctx.session, ctx.request_id])
    return hashlib.sha256(parts).hexdigest()
