"""The client's end of a connection, or of a session over HTTP, as a protocol object, sans-IO."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec

from carmy_engine import CarmyError
from carmy_frames.protocol import LocalProtocolError

from .connection import CLIENT, ClientState, Signal
from .headers import routing_headers
from .messages import encode_notification, encode_request
from .params import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from .versions import HANDSHAKE_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, is_modern


class NegotiationError(CarmyError):
    """The answer of a server to the first request cannot be read, or names no version that is spoken here."""


class _Discovered(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: dict[str, Any] = {}


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] = {}


class ClientProtocol:
    """The client's end. It begins with `discover`; `initialize` follows for a server without versions of that kind.

    Args:
        info: The name and version of this client.

    Attributes:
        state: See `ClientState`.
        version: Of the protocol; empty until it is agreed upon.
        capabilities: Of the server.
    """

    def __init__(self, info: Mapping[str, str]) -> None:
        self.state = ClientState.STARTING
        self.version = ""
        self.capabilities: Mapping[str, Any] = {}
        self._info = info
        self._numbers = itertools.count(1)

    @property
    def is_modern(self) -> bool:
        """True if the agreed version has no ``initialize``."""
        return is_modern(self.version)

    def next_id(self) -> int:
        """The id for the next request."""
        return next(self._numbers)

    def discover(self, number: int) -> bytes:
        """Encode the question which versions the server has, in the newest one."""
        return self._encode(number, "server/discover", {}, {}, LATEST_MODERN_VERSION)

    def receive_discovery(self, result: msgspec.Raw) -> bool:
        """Take the answer to `discover`. False if the server has no version without ``initialize`` that is spoken here.

        Raises:
            NegotiationError: It cannot be read.
        """
        found: _Discovered = _decoded(result, _Discovered)
        if LATEST_MODERN_VERSION not in found.supported_versions:
            return False
        self._agree(LATEST_MODERN_VERSION, found.capabilities)
        return True

    def initialize(self, number: int, offers: Mapping[str, Any]) -> bytes:
        """Encode ``initialize``.

        Args:
            number: The id.
            offers: The capabilities of this client.
        """
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": offers, "clientInfo": self._info}
        return encode_request(number, "initialize", params)

    def receive_initialized(self, result: msgspec.Raw) -> bytes:
        """Take the answer to `initialize`. Returns the notification that ends the handshake.

        Raises:
            NegotiationError: The answer cannot be read, or its version is not spoken here.
        """
        found: _Initialized = _decoded(result, _Initialized)
        if found.protocol_version not in HANDSHAKE_VERSIONS:
            known = ", ".join(HANDSHAKE_VERSIONS)
            raise NegotiationError(f"it answered with the version {found.protocol_version[:40]!r}; there are {known}")
        self._agree(found.protocol_version, found.capabilities)
        return encode_notification("notifications/initialized")

    def send_request(self, number: int, method: str, params: Mapping[str, Any], offers: Mapping[str, Any]) -> bytes:
        """Encode a request. Since 2026-07-28 it describes this client.

        Args:
            number: Its id.
            method: The method.
            params: Its parameters.
            offers: The capabilities of this client for this request.

        Raises:
            LocalProtocolError: No version is agreed upon, or the connection has ended.
        """
        if self.state is not ClientState.OPEN:
            raise LocalProtocolError(f"a request is not allowed when {self.state}")
        return self._encode(number, method, params, offers, self.version)

    def cancel(self, number: int) -> bytes:
        """Encode the notification that cancels a request."""
        return encode_notification("notifications/cancelled", {"requestId": number})

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a message over HTTP.

        Args:
            method: Its method; empty for an answer.
            params: Its parameters.
        """
        version = LATEST_MODERN_VERSION if method == "server/discover" else self.version
        return routing_headers(version, method, params) if version and method != "initialize" else {}

    def receive_end(self) -> None:
        """Record the end of the connection."""
        if CLIENT.allows(self.state, Signal.END):
            self.state = CLIENT.after(self.state, Signal.END)

    def _agree(self, version: str, capabilities: Mapping[str, Any]) -> None:
        self.state = CLIENT.after(self.state, Signal.AGREED)
        self.version, self.capabilities = version, capabilities

    def _encode(
        self, number: int, method: str, params: Mapping[str, Any], offers: Mapping[str, Any], version: str
    ) -> bytes:
        if is_modern(version):
            described = {PROTOCOL_VERSION: version, CLIENT_INFO: self._info, CLIENT_CAPABILITIES: offers}
            params = {**params, "_meta": {**params.get("_meta", {}), **described}}
        return encode_request(number, method, params)


def _decoded(result: msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(result, type=kind)
    except msgspec.DecodeError as error:
        raise NegotiationError(str(error)) from None
