"""Commands that ask a running server: one request over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from .._config.address import split_unix_url
from .._config.server_url import check_token, parse_server_url
from .._config.sources import TOKEN_VARIABLE
from .._model.error_boundary import reason_of
from .._model.errors import ConfigurationError, OutcomeUnknownError
from .._model.request import ExecutionRequest, OnRunning
from .._model.result import ExecutionStatus
from ._outcome import Failure, UsageError

EXECUTE_PATH = "/agent/execute"

CONNECT_SECONDS = 10.0
"""Limit for connecting. The server alone limits the time for the answer to a call."""

ANSWER_SECONDS = 30.0
"""Limit for the answer to anything but a call."""

CaFile = Annotated[
    str | None,
    Parameter(
        name="--ca-file", help="For https: the certificates (PEM) of the authorities that may sign the server's."
    ),
]
Token = Annotated[
    str | None,
    Parameter(help=f"For a server that wants credentials: sent as Authorization: Bearer. Default: {TOKEN_VARIABLE}."),
]


class _ResponseStatus(msgspec.Struct):
    """The part of an answer that decides the exit code; an error answer has no status."""

    status: str | None = None


class _Error(msgspec.Struct):
    code: str
    message: str


class _Refusal(msgspec.Struct):
    """An answer that is an error."""

    error: _Error


class _RequestBody(msgspec.Struct, omit_defaults=True):
    """The body of a request, without fields that have their defaults."""

    tool: str
    arguments: Any = None
    request_id: str | None = None
    timeout_ms: float | None = None
    on_running: OnRunning = "refuse"


class _ConnectionLostError(Exception):
    """The connection was lost after the request had been sent."""


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a socket with a file."""

    def __init__(self, file: str) -> None:
        super().__init__("localhost", timeout=CONNECT_SECONDS)
        self._file = file

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._file)


class RemoteServer:
    """A running server.

    Args:
        url: Of the server, or of its execute endpoint.
        token: Sent as ``Authorization: Bearer``; None for that of the environment.
        ca_file: Certificates in PEM of the authorities that may sign the server's; without it, the system's.

    Raises:
        UsageError: It is not an HTTP URL, or the token is malformed.
    """

    def __init__(self, url: str, token: str | None = None, ca_file: str | None = None) -> None:
        if token is None:
            token = os.environ.get(TOKEN_VARIABLE) or None
        ordinary, self._file = split_unix_url(url)
        try:
            parts = parse_server_url(
                ordinary, schemes=("http", "https"), example="http://127.0.0.1:3000", has_query=False
            )
            if token is not None:
                check_token(token)
        except ConfigurationError as error:
            raise UsageError(str(error)) from None
        assert parts.hostname is not None
        self.url = url
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, parts.port
        self._root = parts.path.rstrip("/").removesuffix(EXECUTE_PATH)
        self._ca_file = ca_file
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def json(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send a request whose answer is quick; return its JSON.

        Raises:
            UsageError: The file of certificates holds none.
            Failure: There was no connection, no JSON, or the server refused.
        """
        try:
            answer, data = self._exchange(method, path, body, ANSWER_SECONDS, "the request")
        except _ConnectionLostError as lost:
            raise Failure(f"{self.url}: {lost}") from None
        if answer.status == http.client.OK:
            return data
        try:
            error = msgspec.json.decode(data, type=_Refusal).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._no_server(answer) from None
        raise Failure(f"{self.url}: {error.code}: {error.message}")

    def call(self, request: ExecutionRequest) -> tuple[bytes, bool]:
        """Send one execution, and wait for its answer as long as the server takes.

        Returns:
            The body of the answer, and whether the execution completed.

        Raises:
            UsageError: The file of certificates holds none.
            Failure: There was no connection, or the answer was not JSON.
            OutcomeUnknownError: The connection was lost before the answer came.
        """
        body = msgspec.json.encode(msgspec.convert(request, _RequestBody, from_attributes=True))
        try:
            answer, data = self._exchange("POST", EXECUTE_PATH, body, None, "the call")
        except _ConnectionLostError as lost:
            raise OutcomeUnknownError.before_answer(f"{self.url}: {lost}", request.request_id) from None
        try:
            completed = msgspec.json.decode(data, type=_ResponseStatus).status == ExecutionStatus.COMPLETED
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._no_server(answer) from None
        return data, completed

    def _exchange(
        self, method: str, path: str, body: bytes | None, seconds: float | None, what: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        connection = self._connection()
        with contextlib.closing(connection):
            try:
                connection.connect()
            except (OSError, UnicodeError) as error:  # the latter is for a host that is no name
                raise Failure(f"cannot connect to {self.url}: {reason_of(error)}; {what} was not sent") from None
            try:
                connection.sock.settimeout(seconds)
                connection.request(method, self._root + path, body, headers)
                answer = connection.getresponse()
                return answer, answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise _ConnectionLostError(f"the connection was lost ({reason_of(error)})") from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._file is not None:
            return _UnixConnection(self._file)
        if self._scheme != "https":
            return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UsageError(f"--ca-file {self._ca_file!r} holds no certificates: {reason_of(error)}") from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_SECONDS, context=context)

    def _no_server(self, answer: http.client.HTTPResponse) -> Failure:
        return Failure(f"{self.url} answered {answer.status} {answer.reason} without JSON: is it a carmy server?")
