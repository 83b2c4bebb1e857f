"""``carmy call --url``: one POST to a running server."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from typing import Any

import msgspec

from .._config.address import split_unix_url
from .._config.server_url import check_token, parse_server_url
from .._model.error_boundary import reason_of
from .._model.errors import ConfigurationError, OutcomeUnknownError
from .._model.request import ExecutionRequest, OnRunning
from .._model.result import ExecutionStatus
from ._outcome import Failure, UsageError

EXECUTE_PATH = "/agent/execute"

CONNECT_SECONDS = 10.0
"""Limit for connecting. The server alone limits the time for the answer."""


class _ResponseStatus(msgspec.Struct):
    """The part of an answer that decides the exit code; an error answer has no status."""

    status: str | None = None


class _RequestBody(msgspec.Struct, omit_defaults=True):
    """The body of a request, without fields that have their defaults."""

    tool: str
    arguments: Any = None
    request_id: str | None = None
    timeout_ms: float | None = None
    on_running: OnRunning = "refuse"


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a socket with a file."""

    def __init__(self, file: str) -> None:
        super().__init__("localhost", timeout=CONNECT_SECONDS)
        self._file = file

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._file)


def _connection(scheme: str, host: str, port: int | None, ca_file: str | None) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UsageError(f"--ca-file {ca_file!r} holds no certificates: {reason_of(error)}") from None
    return http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context)


def call(
    url: str, request: ExecutionRequest, token: str | None = None, ca_file: str | None = None
) -> tuple[bytes, bool]:
    """Send one request, and wait for its answer.

    Args:
        url: Of the server, or of its execute endpoint.
        request: What is asked for.
        token: Sent as ``Authorization: Bearer``.
        ca_file: Certificates in PEM of the authorities that may sign the server's; without it, the system's.

    Returns:
        The body of the answer, and whether the execution completed.

    Raises:
        UsageError: It is not an HTTP URL, the token is malformed, or the file holds no certificates.
        Failure: There was no connection, or the answer was not JSON.
        OutcomeUnknownError: The connection was lost before the answer came.
    """
    ordinary, file = split_unix_url(url)
    try:
        parts = parse_server_url(ordinary, schemes=("http", "https"), example="http://127.0.0.1:3000", has_query=False)
        if token is not None:
            check_token(token)
    except ConfigurationError as error:
        raise UsageError(str(error)) from None
    assert parts.hostname is not None
    path = parts.path.rstrip("/")
    if not path.endswith(EXECUTE_PATH):
        path += EXECUTE_PATH
    connection = (
        _connection(parts.scheme, parts.hostname, parts.port, ca_file) if file is None else _UnixConnection(file)
    )
    body = msgspec.convert(request, _RequestBody, from_attributes=True)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with contextlib.closing(connection):
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:  # the latter is for a host that is no name
            raise Failure(f"cannot connect to {url}: {reason_of(error)}; the call was not sent") from None
        try:
            connection.sock.settimeout(None)
            connection.request("POST", path, msgspec.json.encode(body), headers)
            answer = connection.getresponse()
            answered = answer.read()
        except (OSError, http.client.HTTPException) as error:
            lost = f"{url}: the connection was lost ({reason_of(error)})"
            raise OutcomeUnknownError.before_answer(lost, request.request_id) from None
    try:
        completed = msgspec.json.decode(answered, type=_ResponseStatus).status == ExecutionStatus.COMPLETED
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Failure(f"{url} answered {answer.status} {answer.reason} without JSON: is it a carmy server?") from None
    return answered, completed
