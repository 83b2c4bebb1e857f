"""The two ends of a connection, or of a session over HTTP, as protocol objects, sans-IO.

The first request decides how a connection goes on: ``initialize`` begins a handshake, and a request that describes its client begins a
connection without state.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import msgspec

from carmy_engine import AgentError
from carmy_engine.codec import invalid_request
from carmy_frames.protocol import LocalProtocolError, Table, Word

from .errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, JsonRpcError, RemoteProtocolError
from .headers import unsupported_version
from .messages import (
    ErrorResponse,
    Id,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from .params import (
    CLIENT_CAPABILITIES,
    NO_CAPABILITIES,
    PROTOCOL_VERSION,
    Client,
    InitializeParams,
    Meta,
    client_of,
    meta_of,
    parse,
    parse_capabilities,
)
from .versions import MODERN_VERSIONS, negotiated

MAX_KNOWN_CLIENTS = 256
"""Limit of cached client descriptions. There are few, and parsing one takes as long as a call."""

MAX_DESCRIPTION_BYTES = 4096
"""Limit of a cached client description: larger ones would only cost memory."""


class ServerState(Word):
    """The states of a server's connection."""

    STARTING = "starting"
    """No version has been agreed upon."""
    HANDSHAKE = "handshake"
    """``initialize`` has been answered."""
    MODERN = "modern"
    """Every request describes its client."""
    ENDING = "ending"
    """The client's input has ended; accepted requests are still answered."""
    CLOSED = "closed"


class ClientState(Word):
    """The states of a client's connection."""

    STARTING = "starting"
    OPEN = "open"
    CLOSED = "closed"


class Signal(Word):
    """An input of a state machine, from the view of the side that owns it."""

    INITIALIZE = "initialize"
    PING = "ping"
    REQUEST = "request"
    """A request without a description of its client."""
    DESCRIBED = "described request"
    """A request with a description of its client."""
    AGREED = "agreed"
    """The client has learned the version of the server."""
    END = "end"
    """The peer's end of input."""
    LAST_ANSWER = "last answer"
    """The last answer after the client's end of input."""


SERVER: Table[ServerState, Signal] = Table(
    {
        (ServerState.STARTING, Signal.INITIALIZE): ServerState.HANDSHAKE,
        (ServerState.STARTING, Signal.PING): ServerState.STARTING,
        (ServerState.STARTING, Signal.DESCRIBED): ServerState.MODERN,
        (ServerState.STARTING, Signal.END): ServerState.ENDING,
        (ServerState.HANDSHAKE, Signal.INITIALIZE): ServerState.HANDSHAKE,
        (ServerState.HANDSHAKE, Signal.PING): ServerState.HANDSHAKE,
        (ServerState.HANDSHAKE, Signal.REQUEST): ServerState.HANDSHAKE,
        (ServerState.HANDSHAKE, Signal.END): ServerState.ENDING,
        (ServerState.MODERN, Signal.DESCRIBED): ServerState.MODERN,
        (ServerState.MODERN, Signal.END): ServerState.ENDING,
        (ServerState.ENDING, Signal.LAST_ANSWER): ServerState.CLOSED,
    }
)

CLIENT: Table[ClientState, Signal] = Table(
    {
        (ClientState.STARTING, Signal.AGREED): ClientState.OPEN,
        (ClientState.STARTING, Signal.REQUEST): ClientState.STARTING,
        (ClientState.STARTING, Signal.END): ClientState.CLOSED,
        (ClientState.OPEN, Signal.REQUEST): ClientState.OPEN,
        (ClientState.OPEN, Signal.END): ClientState.CLOSED,
    }
)


_DESCRIBED = PROTOCOL_VERSION.encode()


def key_of(request_id: Id) -> Id:
    """The key of an id among those in use. Some clients cancel the request ``1`` by the id ``"1"``."""
    if isinstance(request_id, int):
        return request_id
    if request_id.isascii() and request_id.lstrip("-").isdigit() and len(request_id) < 19:
        number = int(request_id)
        return number if str(number) == request_id else request_id
    return request_id


class KnownClients:
    """Reads the descriptions of clients in requests, and keeps those that come again and again.

    Args:
        most: The number that is kept.
    """

    def __init__(self, most: int = MAX_KNOWN_CLIENTS) -> None:
        self._most = most
        self._known: dict[bytes, Client] = {}

    def client_in(self, meta: Meta) -> Client:
        """The client of a request of a version without ``initialize``.

        Raises:
            JsonRpcError: The description is not complete, or its version is not supported.
        """
        version, capabilities = meta.version, meta.capabilities
        missing = [
            name
            for name, value in ((PROTOCOL_VERSION, version), (CLIENT_CAPABILITIES, capabilities))
            if value is msgspec.UNSET
        ]
        if missing:
            names = " and ".join(f"'{name}'" for name in missing)
            raise JsonRpcError(INVALID_PARAMS, f"'_meta' of the request must be an object with {names}")
        if not isinstance(version, str):
            raise JsonRpcError(INVALID_PARAMS, f"'{PROTOCOL_VERSION}' in '_meta' must be a string")
        if version not in MODERN_VERSIONS:
            raise unsupported_version(version, MODERN_VERSIONS)
        if not capabilities:
            return client_of(version, NO_CAPABILITIES) if isinstance(capabilities, dict) else _refuse(capabilities)
        key = msgspec.json.encode((version, capabilities))
        client = self._known.get(key)
        if client is None:
            client = client_of(version, parse_capabilities(capabilities))
            if len(key) <= MAX_DESCRIPTION_BYTES:
                if len(self._known) >= self._most:
                    del self._known[next(iter(self._known))]
                self._known[key] = client
        return client


def _refuse(capabilities: object) -> Client:
    return client_of(MODERN_VERSIONS[-1], parse_capabilities(capabilities))


class Ids:
    """The requests of the peer that have no answer, and those of this side."""

    def __init__(self) -> None:
        self.accepted: set[Id] = set()
        self._numbers = itertools.count(1)
        self.asked: set[Id] = set()

    def encode_request(self, method: str, params: Any) -> tuple[int, bytes]:
        """The id and the bytes of a request of this side, whose answer is expected from now on."""
        number = next(self._numbers)
        self.asked.add(number)
        return number, encode_request(number, method, params)

    def forget(self, number: Id) -> None:
        """Expect no answer to a request of this side any more."""
        self.asked.discard(number)

    def is_answer(self, message: Response | ErrorResponse) -> bool:
        """True if a response answers a request of this side. It is not expected any more."""
        if message.id not in self.asked:
            return False
        self.asked.discard(message.id)
        return True


class ServerProtocol:
    """The server's end of a connection, or of a session over HTTP.

    Args:
        max_calls: Calls of tools that may be without an answer.
        max_requests: Requests of any kind: beside as many calls as there can be, a client can still ask how it goes.
        known: The descriptions of clients.

    Attributes:
        state: See `ServerState`.
        client: The client, after the handshake; None before, and in versions without one.
    """

    def __init__(self, max_calls: int, max_requests: int, known: KnownClients | None = None) -> None:
        self.state = ServerState.STARTING
        self.client: Client | None = None
        self._max_calls = max_calls
        self._max_requests = max_requests
        self._known = known or KnownClients()
        self._ids = Ids()

    @property
    def accepted(self) -> Collection[Id]:
        """The keys of the requests that have no answer; see `key_of`."""
        return self._ids.accepted

    def receive_message(self, data: bytes) -> Message | None:
        """Decode a message. A `Request` counts as accepted: it must get one answer, or be forgotten.

        Returns:
            The message; None for a response that answers no request of this side.

        Raises:
            RemoteProtocolError: The message is not valid, or not allowed now. Send `reply` and go on.
            LocalProtocolError: The connection has ended.
        """
        return self.receive(decode(data))

    def receive(self, message: Message) -> Message | None:
        """Take a message that has been decoded; see `receive_message`."""
        if self.state in (ServerState.ENDING, ServerState.CLOSED):
            raise LocalProtocolError(f"a message is not allowed when {self.state}")
        if isinstance(message, Request):
            self.accept(message)
            return message
        if isinstance(message, Notification) or self._ids.is_answer(message):
            return message
        return None

    def accept(self, request: Request) -> None:
        """Count a request as accepted.

        Raises:
            RemoteProtocolError: It is not allowed now.
        """
        accepted = self._ids.accepted
        key = key_of(request.id)
        if key in accepted:
            twice = invalid_request(f"a request with the id {request.id!r} is still being handled")
            raise RemoteProtocolError(request.id, JsonRpcError.of(twice))
        if len(accepted) >= (self._max_calls if request.method == "tools/call" else self._max_requests):
            message = f"{len(accepted)} requests of this connection have no answer yet, which is the limit"
            overloaded = AgentError.standard("OVERLOADED", message, retry_after=1)
            raise RemoteProtocolError(request.id, JsonRpcError.of(overloaded, INTERNAL_ERROR))
        accepted.add(key)

    def client_of(self, request: Request) -> Client:
        """The client of an accepted request. The first request of a connection decides how it goes on.

        Raises:
            JsonRpcError: The request is not allowed in this state.
        """
        if self.state is ServerState.HANDSHAKE and request.method != "initialize":
            assert self.client is not None
            if _DESCRIBED in bytes(request.params) and meta_of(request.params).version is not msgspec.UNSET:
                message = "this connection began with 'initialize', so its requests describe no client"
                raise JsonRpcError(INVALID_REQUEST, message)
            return self.client
        if request.method == "initialize":
            return self.initialize(request)
        meta = meta_of(request.params)
        if self.state is ServerState.STARTING and meta.version is msgspec.UNSET:
            if request.method == "ping":
                return client_of(negotiated(""), NO_CAPABILITIES)
            raise JsonRpcError(
                INVALID_PARAMS, "the first request must be 'initialize', or describe its client in '_meta'"
            )
        client = self._known.client_in(meta)
        self.state = SERVER.after(self.state, Signal.DESCRIBED)
        return client

    def initialize(self, request: Request) -> Client:
        """Agree on a version.

        Raises:
            JsonRpcError: The connection has no handshake, or the parameters are not valid.
        """
        if not SERVER.allows(self.state, Signal.INITIALIZE):
            raise unsupported_version(_requested(request), MODERN_VERSIONS)
        params = parse(request.params, InitializeParams, "initialize")
        self.client = client_of(negotiated(params.protocol_version), params.capabilities)
        self.state = SERVER.after(self.state, Signal.INITIALIZE)
        return self.client

    def reply_to(self, violation: RemoteProtocolError) -> bytes:
        """The bytes of the reply to a message that was not accepted.

        It has no id if a request with that id has not been answered: it would be taken for that request's answer.
        """
        request_id = violation.request_id
        if request_id is not None and key_of(request_id) in self._ids.accepted:
            request_id = None
        return encode_error(request_id, violation.error)

    def send_result(self, request_id: Id, result: bytes) -> bytes:
        """Encode the answer to an accepted request."""
        self._answered(request_id)
        return encode_result(request_id, result)

    def send_error(self, request_id: Id, error: JsonRpcError) -> bytes:
        """Encode the error that answers an accepted request."""
        self._answered(request_id)
        return encode_error(request_id, error)

    def forget(self, request_id: Id) -> None:
        """Record that an accepted request gets no answer: its client has cancelled it."""
        self._answered(request_id)

    def send_request(self, method: str, params: Any) -> tuple[int, bytes]:
        """Encode a request to the client, and expect its answer.

        Raises:
            LocalProtocolError: The version does not allow requests of a server, or the connection has ended.
        """
        if self.state is not ServerState.HANDSHAKE:
            raise LocalProtocolError(f"a request to the client is not allowed when {self.state}")
        return self._ids.encode_request(method, params)

    def withdraw(self, request_id: Id) -> bytes:
        """Expect no answer to a request to the client, and encode the notification that cancels it."""
        self._ids.forget(request_id)
        return encode_notification("notifications/cancelled", {"requestId": request_id})

    def receive_end(self) -> None:
        """Record the client's end of input. Accepted requests are still answered."""
        self.state = SERVER.after(self.state, Signal.END)
        self._close_if_done()

    def _answered(self, request_id: Id) -> None:
        try:
            self._ids.accepted.remove(key_of(request_id))
        except KeyError:
            raise LocalProtocolError(f"there is no unanswered request {request_id!r}") from None
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.state is ServerState.ENDING and not self._ids.accepted:
            self.state = SERVER.after(self.state, Signal.LAST_ANSWER)


def _requested(request: Request) -> str:
    try:
        found: Any = msgspec.json.decode(request.params).get("protocolVersion")
    except (msgspec.DecodeError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""
