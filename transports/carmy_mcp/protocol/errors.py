"""Errors of JSON-RPC and MCP, and protocol errors by the side that made the mistake."""

from __future__ import annotations

from typing import Any

import msgspec

from carmy_engine import AgentError, CarmyError, ErrorInfo

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Until 2025-11-25; since 2026-07-28 it is `INVALID_PARAMS`."""
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

HTTP_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The HTTP status of an error response since 2026-07-28, and of a message that is not accepted in any version; 200 for other codes."""


class JsonRpcError(CarmyError):
    """An error response.

    Attributes:
        code: See the constants of this module.
        message: One sentence.
        data: JSON-shaped details; None for none.
        refusal: The error of this package that it was made of, for the record of refusals; None if there is none.
    """

    refusal: AgentError | None = None

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def of(cls, error: AgentError, code: int = INVALID_REQUEST) -> JsonRpcError:
        """The error response for an error of this package, which becomes its data."""
        made = cls(code, error.message, error_data(error.info))
        made.refusal = error
        return made


class RemoteProtocolError(CarmyError):
    """The peer broke the protocol. The connection goes on.

    Attributes:
        request_id: The id of the request that the message was meant to be; None if it has none that can be read, and for responses.
        error: The violation.
    """

    def __init__(self, request_id: str | int | None, error: JsonRpcError) -> None:
        super().__init__(error.message)
        self.request_id = request_id
        self.error = error


def error_data(error: ErrorInfo) -> dict[str, Any]:
    """The ``data`` of an error response: JSON-shaped, so that a tool's details are what every transport sends."""
    return {"error": msgspec.json.decode(msgspec.json.encode(error))}
