"""The client of one request, as tools see it: a person, a model, roots and a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carmy_engine import AgentError
from carmy_engine.abc import Answer, LogLevel, Root, Sample, SampleRequest
from carmy_engine.content import Content

from ..protocol.blocks import content_of_block, message_of
from ..protocol.errors import JsonRpcError
from ..protocol.params import Client, ElicitResult, RootsResult, SampleResult
from .exchange import Peer

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

ASKING_VERSION = "2025-06-18"
"""The first version in which a server can ask a person."""


class ExchangeClient:
    """See `carmy_engine.abc.ClientFeatures`.

    Args:
        client: The client.
        peer: The way back to it.
        level: The least severe level of log messages that the client takes; None for none.
    """

    def __init__(self, client: Client, peer: Peer, level: str | None) -> None:
        self._client = client
        self._peer = peer
        self._level = len(LEVELS) if level is None else LEVELS.index(level)

    @property
    def can_ask(self) -> bool:
        """See `ClientFeatures`."""
        return self._client.version >= ASKING_VERSION and self._has(self._client.capabilities.can_show_forms)

    @property
    def can_sample(self) -> bool:
        """See `ClientFeatures`."""
        return self._has(self._client.capabilities.sampling is not None)

    @property
    def has_roots(self) -> bool:
        """See `ClientFeatures`."""
        return self._has(self._client.capabilities.roots is not None)

    def _has(self, declared: bool) -> bool:
        return declared and self._peer.can_ask

    async def ask(self, message: str, schema: Mapping[str, Any], /) -> Answer:
        """See `ClientFeatures`."""
        params = {"mode": "form", "message": message, "requestedSchema": _without_extras(schema)}
        found = await self._request("elicitation/create", params, ElicitResult)
        return Answer(found.action, found.content)

    async def sample(self, request: SampleRequest, /) -> Sample:
        """See `ClientFeatures`."""
        version = self._client.version
        params: dict[str, Any] = {
            "messages": [message_of(message, version) for message in request.messages],
            "maxTokens": request.max_tokens,
        }
        if request.system is not None:
            params["systemPrompt"] = request.system
        if request.temperature is not None:
            params["temperature"] = request.temperature
        if request.stop:
            params["stopSequences"] = list(request.stop)
        if request.models:
            params["modelPreferences"] = {"hints": [{"name": name} for name in request.models]}
        found = await self._request("sampling/createMessage", params, SampleResult)
        blocks = found.blocks
        content: tuple[Content, ...] = tuple(map(content_of_block, blocks))
        return Sample(content=content, model=found.model, stop_reason=found.stop_reason)

    async def roots(self) -> Sequence[Root]:
        """See `ClientFeatures`."""
        found = await self._request("roots/list", {}, RootsResult)
        return [Root(root.uri, root.name) for root in found.roots]

    def log(self, level: LogLevel, message: str, /) -> bool:
        """See `ClientFeatures`."""
        if self._level == len(LEVELS):
            return False
        if LEVELS.index(level) >= self._level:
            self._peer.notify_soon("notifications/message", {"level": level, "logger": "tool", "data": message})
        return True

    async def _request(self, method: str, params: Any, kind: Any) -> Any:
        try:
            return msgspec.json.decode(await self._peer.ask(method, params), type=kind)
        except JsonRpcError as error:
            refused = f"the client refused {method}, or failed (code {error.code})"
        except msgspec.DecodeError:
            refused = f"the answer of the client to {method} cannot be read"
        raise AgentError.standard("INVALID_ANSWER", refused)


def _without_extras(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a schema that the protocol has for forms."""
    return {name: schema[name] for name in ("type", "properties", "required") if name in schema}
