"""The server: a table of handlers in front of an engine, for every carrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from carmy_engine import AgentError, Engine, __version__
from carmy_engine.transport import as_agent_error, raise_own, shortened

from ..protocol.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, JsonRpcError, error_data
from ..protocol.methods import has
from ..protocol.params import SERVER_INFO
from ..protocol.results import ResultWriter
from ..protocol.versions import VERSIONS
from .asking import Asking
from .confirmations import Questions
from .exchange import Exchange
from .features import Feature, Handler
from .listening import Listening
from .reading import Completions, Prompts, Resources, has_any
from .rounds import Rounds
from .tasks import Tasks
from .tools import Tools

DISCOVERY_TTL_MS = 3_600_000
"""How long a client may keep what a server declares about itself."""


class McpServer:
    """Answers the requests of clients.

    Args:
        engine: An open engine.
        nursery: For calls that become tasks. Cancelling it cancels them.

    Attributes:
        engine: The engine.
        questions: The open questions to persons.
        tasks: The calls that became tasks; None if no call does.
        tools: The tools.
    """

    def __init__(self, engine: Engine, nursery: trio.Nursery) -> None:
        limits = engine.settings.mcp
        self.engine = engine
        settings = engine.settings
        self.info = {"name": engine.name, "version": settings.version or __version__}
        if settings.title is not None:
            self.info["title"] = settings.title
        self._about = {} if settings.instructions is None else {"instructions": settings.instructions}
        self.writer = ResultWriter({SERVER_INFO: self.info}, limits.max_text_bytes)
        self.questions = Questions(engine.stopping, limits)
        self.tasks = Tasks(nursery, limits) if limits.promote_after_secs else None
        asking = Asking(Rounds(nursery, limits))
        questions = self.questions if limits.confirm == "ask" else None
        self.tools = Tools(engine, self.writer, questions, self.tasks, asking)
        features: list[Feature | None] = [self.tools, self.tasks, Listening(engine.stopping)]
        has_resources, has_prompts = has_any(engine, "resources"), has_any(engine, "prompts")
        if has_resources:
            features.append(Resources(asking))
        if has_prompts:
            features.append(Prompts(asking))
        if has_resources or has_prompts:
            features.append(Completions())
        self._features: Sequence[Feature] = [feature for feature in features if feature is not None]
        self._handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "ping": _ping,
            "server/discover": self._discover,
        }
        for feature in self._features:
            self._handlers.update(feature.handlers())

    async def answer(self, exchange: Exchange) -> bytes:
        """Handle one request. Returns the result as JSON.

        Raises:
            JsonRpcError: The error response.
        """
        request = exchange.request
        modern = exchange.client.is_modern
        handler = self._handlers.get(request.method)
        try:
            if handler is None or not has(request.method, exchange.client.version):
                raise JsonRpcError(METHOD_NOT_FOUND, "there is no such method", shortened(request.method))
            result = await handler(exchange)
        except JsonRpcError:
            raise
        except AgentError as error:
            raise JsonRpcError.of(error) from None
        except BaseException as error:  # noqa: BLE001 - the boundary round one request; a host's policy can raise anything
            raise_own(error)
            told, _ = as_agent_error(error, "the request", expose=False)
            raise JsonRpcError(INTERNAL_ERROR, told.message, error_data(told.info)) from None
        return result if isinstance(result, bytes) else self.writer.result(result, modern=modern)

    def _capabilities(self, *, modern: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for feature in self._features:
            found.update(feature.capabilities(modern=modern))
        return found

    async def _initialize(self, exchange: Exchange) -> dict[str, Any]:
        await trio.lowlevel.checkpoint_if_cancelled()
        return {
            "protocolVersion": exchange.client.version,
            "capabilities": self._capabilities(modern=False),
            "serverInfo": self.info,
            **self._about,
        }

    async def _discover(self, _: Exchange) -> dict[str, Any]:
        await trio.lowlevel.checkpoint_if_cancelled()
        return {
            "supportedVersions": [*VERSIONS],
            "capabilities": self._capabilities(modern=True),
            "ttlMs": DISCOVERY_TTL_MS,
            "cacheScope": "public",
            **self._about,
        }


async def _ping(_: Exchange) -> dict[str, Any]:
    await trio.lowlevel.checkpoint_if_cancelled()
    return {}
