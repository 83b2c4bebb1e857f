"""Resources and prompts: listed for each caller, read, completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import trio

from carmy_engine import Engine, ErrorInfo, ExecutionResult
from carmy_engine.content import MAX_COMPLETIONS, PromptResult, ReadResult

from ..protocol.blocks import contents_of, message_of, prompt_entry, resource_entry
from ..protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, JsonRpcError, error_data
from ..protocol.listing import StaleCursorError, part_of
from ..protocol.params import CompleteParams, PageParams, PromptParams, ReadParams, parse
from .asking import Asking, missing_capability
from .exchange import Exchange
from .features import Handler, Result

LIST_TTL_MS = 60_000
"""How long a client may keep a list. Those that listen learn of changes at once."""

_CALLER_FAULTS = frozenset({"INVALID_ARGUMENTS", "PROMPT_NOT_FOUND", "RESOURCE_NOT_FOUND", "INVALID_REQUEST"})


def has_any(engine: Engine, kind: Literal["resources", "prompts"]) -> bool:
    """True if an engine has resources, or prompts, for any caller."""
    return bool(engine._reading().registries[kind].names)  # noqa: SLF001 - listing takes a caller and a loop


class Resources:
    """The feature of resources.

    Args:
        asking: Runs what may ask the client.
    """

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def handlers(self) -> Mapping[str, Handler]:
        """See `Feature`."""
        return {
            "resources/list": self._list,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """See `Feature`."""
        return {"resources": {"subscribe": True, "listChanged": True}}

    async def _list(self, exchange: Exchange) -> Result:
        catalog = await exchange.executor.resources()
        return _page(exchange, "resources", [resource_entry(spec) for spec in catalog.resources], catalog.version)

    async def _list_templates(self, exchange: Exchange) -> Result:
        catalog = await exchange.executor.resources()
        entries = [resource_entry(spec) for spec in catalog.templates]
        return _page(exchange, "resourceTemplates", entries, catalog.version)

    async def _read(self, exchange: Exchange) -> Result:
        params = parse(exchange.request.params, ReadParams, "resources/read")

        async def run() -> Result:
            result = await _execute(exchange, exchange.executor.read_resource(params.uri))
            if result.error is not None:
                raise _failure(exchange, result.error, {"uri": params.uri})
            await exchange.peer.wait_for_room()  # contents are large
            found = msgspec.json.decode(result.data_json or b"null", type=ReadResult)
            return _cached(exchange, {"contents": [contents_of(part) for part in found.contents]}, ttl_ms=0)

        return await self._asking.run(exchange, run, params.request_state, params.input_responses)

    async def _subscribe(self, exchange: Exchange) -> Result:
        params = parse(exchange.request.params, ReadParams, exchange.request.method)
        session = exchange.peer.session
        if session is None:
            raise JsonRpcError(INVALID_PARAMS, "there are no subscriptions without a session")
        await session.watch.subscribe(params.uri)
        return {}

    async def _unsubscribe(self, exchange: Exchange) -> Result:
        await trio.lowlevel.checkpoint_if_cancelled()
        params = parse(exchange.request.params, ReadParams, exchange.request.method)
        if exchange.peer.session is not None:
            exchange.peer.session.watch.unsubscribe(params.uri)
        return {}


class Prompts:
    """The feature of prompts.

    Args:
        asking: Runs what may ask the client.
    """

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def handlers(self) -> Mapping[str, Handler]:
        """See `Feature`."""
        return {"prompts/list": self._list, "prompts/get": self._get}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """See `Feature`."""
        return {"prompts": {"listChanged": True}}

    async def _list(self, exchange: Exchange) -> Result:
        catalog = await exchange.executor.prompts()
        return _page(exchange, "prompts", [prompt_entry(spec) for spec in catalog.prompts], catalog.version)

    async def _get(self, exchange: Exchange) -> Result:
        params = parse(exchange.request.params, PromptParams, "prompts/get")

        async def run() -> Result:
            result = await _execute(exchange, exchange.executor.get_prompt(params.name, params.arguments))
            if result.error is not None:
                raise _failure(exchange, result.error, {})
            found = msgspec.json.decode(result.data_json or b"null", type=PromptResult)
            messages = [message_of(message, exchange.client.version) for message in found.messages]
            return {"description": found.description, "messages": messages}

        return await self._asking.run(exchange, run, params.request_state, params.input_responses)


class Completions:
    """The feature of completion."""

    def handlers(self) -> Mapping[str, Handler]:
        """See `Feature`."""
        return {"completion/complete": self._complete}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """See `Feature`."""
        return {"completions": {}}

    async def _complete(self, exchange: Exchange) -> Result:
        params = parse(exchange.request.params, CompleteParams, "completion/complete")
        ref, argument = params.ref, params.argument
        name = ref.name if ref.type == "ref/prompt" else ref.uri
        if name is None:
            raise JsonRpcError(INVALID_PARAMS, "'ref' has neither the name of a prompt nor the uri of a resource")
        given = None if params.context is None else params.context.arguments
        kind: Any = "prompt" if ref.type == "ref/prompt" else "resource"
        found = await exchange.executor.complete(kind, name, argument.name, argument.value, given)
        values = list(found.values[:MAX_COMPLETIONS])
        return {"completion": {"values": values, "total": found.total, "hasMore": found.has_more}}


async def _execute(exchange: Exchange, execution: Any) -> ExecutionResult:
    result: ExecutionResult | None = None
    with exchange.block:
        result = await execution
    if result is None:
        raise JsonRpcError(INTERNAL_ERROR, "the request was cancelled before it was started")
    return result


def _failure(exchange: Exchange, error: ErrorInfo, data: Mapping[str, Any]) -> JsonRpcError:
    if error.code == "CLIENT_UNAVAILABLE" and exchange.client.is_modern:
        return missing_capability(error)
    code = INVALID_PARAMS if error.code in _CALLER_FAULTS else INTERNAL_ERROR
    if error.code == "RESOURCE_NOT_FOUND" and not exchange.client.is_modern:
        code = RESOURCE_NOT_FOUND
    return JsonRpcError(code, error.message, {**data, **error_data(error)})


def _page(exchange: Exchange, name: str, entries: Sequence[Any], version: str) -> Result:
    params = parse(exchange.request.params, PageParams, exchange.request.method)
    try:
        part, following = part_of(entries, version, params.cursor)
    except StaleCursorError:
        message = "the cursor is not valid, or no longer: list again from the start"
        raise JsonRpcError(INVALID_PARAMS, message) from None
    page = _cached(exchange, {name: part}, ttl_ms=LIST_TTL_MS)
    if following is not None:
        page["nextCursor"] = following
    return page


def _cached(exchange: Exchange, members: dict[str, Any], ttl_ms: int) -> dict[str, Any]:
    if exchange.client.is_modern:
        members |= {"ttlMs": ttl_ms, "cacheScope": "private"}
    return members
