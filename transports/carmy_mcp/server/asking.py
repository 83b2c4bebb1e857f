"""Requests whose execution may ask their client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from carmy_engine import ErrorInfo
from carmy_engine.transport import fingerprint

from ..protocol.errors import INVALID_PARAMS, MISSING_CLIENT_CAPABILITY, JsonRpcError
from ..protocol.params import meta_of
from .client import LEVELS, ExchangeClient
from .exchange import Exchange
from .features import Result
from .rounds import Rounds

UNKNOWN_STATE = "the requestState is not valid for this request, or no longer: send it again without"
"""The answer to a request with a state that was not given for it."""


class Asking:
    """Gives executions the client behind them.

    Args:
        rounds: The executions that wait for answers.
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds

    async def run(
        self,
        exchange: Exchange,
        run: Callable[[], Awaitable[Result]],
        state: str | None,
        answers: Mapping[str, msgspec.Raw] | None,
    ) -> Result:
        """Run an execution, or continue the one that a state belongs to.

        Args:
            exchange: The request.
            run: Runs the execution, under the scope of the exchange.
            state: As it came with the request.
            answers: Likewise.

        Raises:
            JsonRpcError: The state is not valid.
        """
        client = exchange.client
        if not client.is_modern:
            self.bind(exchange)
            return await run()
        if state is not None:
            result = await self._rounds.resume(exchange, state, _identity(exchange), answers or {})
            if result is None:
                raise JsonRpcError(INVALID_PARAMS, UNKNOWN_STATE)
            return result
        offers = client.capabilities
        if not (offers.can_show_forms or offers.sampling is not None or offers.roots is not None):
            self.bind(exchange)
            return await run()

        async def bound() -> Result:
            self.bind(exchange)  # to the round, which is the peer by now
            return await run()

        return await self._rounds.run(exchange, _identity(exchange), bound)

    def bind(self, exchange: Exchange) -> None:
        """Bind the client of a request to its executor."""
        session = exchange.peer.session
        if exchange.client.is_modern:
            level = meta_of(exchange.request.params).log_level
            level = level if level in LEVELS else None
        else:
            level = "info" if session is None else session.log_level
        exchange.executor = exchange.executor.bind(client=ExchangeClient(exchange.client, exchange.peer, level))


_CAPABILITIES = {"can_ask": "elicitation", "can_sample": "sampling", "has_roots": "roots"}


def missing_capability(error: ErrorInfo) -> JsonRpcError:
    """The error of a call that needs more than its client has declared."""
    needed = _CAPABILITIES.get(str((error.details or {}).get("needs")))
    data: Any = None if needed is None else {"requiredCapabilities": {needed: {}}}
    return JsonRpcError(MISSING_CLIENT_CAPABILITY, error.message, data)


def _identity(exchange: Exchange) -> bytes:
    """A hash of the method and the parameters, but for what differs in each round."""
    found = msgspec.json.decode(exchange.request.params)
    kept = {name: value for name, value in found.items() if name in ("name", "uri", "arguments")}
    return fingerprint(exchange.request.method, msgspec.json.encode(kept), None)
