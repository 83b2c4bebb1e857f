"""One connection to a server, or one session over HTTP: the version, requests, and what the server sends by itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

import msgspec
import trio

from carmy_engine import CarmyError, __version__
from carmy_engine.abc import ClientFeatures, LogLevel
from carmy_engine.transport import RateLimitedLogger, shortened
from carmy_frames.protocol import LocalProtocolError

from ..protocol.client import ClientProtocol, NegotiationError
from ..protocol.connection import key_of
from ..protocol.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, UNSUPPORTED_VERSION, JsonRpcError
from ..protocol.messages import ErrorResponse, Id, Notification, Request, encode_error, encode_result
from ..protocol.params import LOG_LEVEL, CancelledParams, LevelParams, ProgressParams, parse
from ..protocol.versions import LATEST_MODERN_VERSION
from .limits import McpClientLimits
from .link import Link, LinkError, NotSentError, Outgoing, RefusedError, SessionEndedError
from .questions import answer, is_question, offers_of

log = RateLimitedLogger(logging.getLogger("carmy.mcp"))

MAX_SERVER_REQUESTS = 64
"""Requests of a server without an answer. A call rarely asks more than one thing at a time."""

_INFO = {"name": "carmy-engine", "version": __version__}


class Listener(Protocol):
    """The caller of one request, while it has no answer.

    Attributes:
        client: The client behind the call; None if there is none.
        wants_reports: Reports of progress are of use.
    """

    client: ClientFeatures | None
    wants_reports: bool

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report of progress. Must not wait."""
        ...

    async def log(self, level: LogLevel, message: str) -> None:
        """Take a log message. Must not wait."""
        ...


class QuestionError(CarmyError):
    """A server without sessions asks for what its caller has not offered, or without an end.

    Attributes:
        asked: The methods.
    """

    def __init__(self, asked: Iterable[str]) -> None:
        super().__init__("the server asks for something in the middle of the call that this caller cannot answer")
        self.asked = sorted(set(asked))


class _InputRequired(msgspec.Struct, rename="camel"):
    """The result that asks for more (2026-07-28, "Multi Round-Trip Requests")."""

    result_type: str = "complete"
    input_requests: dict[str, _InputRequest] = {}
    request_state: Any = msgspec.UNSET


class _InputRequest(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Question:
    """A request of the server without an answer.

    Attributes:
        scope: Of the task that answers it.
        during: The id of the request that it belongs to; None if that is not known.
    """

    def __init__(self, during: int | None) -> None:
        self.scope = trio.CancelScope()
        self.during = during


class _LogParams(msgspec.Struct):
    level: str
    data: Any = ""
    logger: str | None = None


class ClientSession:
    """The requests of one client, and the messages of its server.

    Args:
        link: The way to the server.
        tasks: For answers to the server, and for what is received beside requests.
        limits: Of the client.
        client: The client of callers that have none of their own. What it offers is declared where a session has one declaration.
        on_end: Called with the reason when the connection has ended.

    Attributes:
        has_news: The server may have other tools than those that were listed.
    """

    def __init__(
        self,
        link: Link,
        tasks: trio.Nursery,
        limits: McpClientLimits,
        client: ClientFeatures | None,
        on_end: Callable[[str], None],
    ) -> None:
        self.has_news = True
        self._protocol = ClientProtocol(_INFO)
        self._link = link
        self._tasks = tasks
        self._limits = limits
        self._client = client
        self._on_end = on_end
        self._listeners: dict[int, Listener] = {}
        self._questions: dict[Id, _Question] = {}
        self._listening = trio.CancelScope()
        self._renewing = trio.Lock()
        self._has_ended = False

    @property
    def version(self) -> str:
        """The version of the protocol; empty until it is agreed upon."""
        return self._protocol.version

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the server."""
        return self._protocol.capabilities

    @property
    def has_headers(self) -> bool:
        """Calls repeat some of their arguments in headers."""
        return self._protocol.is_modern and self._link.has_headers

    def has(self, *path: str) -> bool:
        """True if the server declares a capability, such as ``tools`` or ``tools``, ``listChanged``."""
        found: Any = self.capabilities
        for name in path:
            found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
        return found is not None and found is not False

    async def connect(self) -> None:
        """Agree on a version: the newest without ``initialize``, if the server has it.

        Raises:
            JsonRpcError: The server refused.
            NegotiationError: Its answer is none.
            LinkError: There is no answer.
        """
        if not await self._discover():
            await self._initialize()
        self._listening = trio.CancelScope()
        self._tasks.start_soon(self._listen, self._listening)

    async def _discover(self) -> bool:
        """Ask which versions the server has. Servers of older versions refuse that at once, except for a few that are silent."""
        protocol = self._protocol
        for _ in range(2):
            number = protocol.next_id()
            data = protocol.discover(number)
            headers = protocol.headers("server/discover", {})
            with trio.move_on_after(self._limits.probe_secs):
                try:
                    return protocol.receive_discovery(await self._answer(number, data, headers))
                except JsonRpcError as refusal:
                    if refusal.code == UNSUPPORTED_VERSION and LATEST_MODERN_VERSION in _supported(refusal):
                        continue
                except NotSentError as error:
                    if not isinstance(error, RefusedError):
                        raise
                except (LinkError, NegotiationError):
                    pass
            break
        return False

    async def _initialize(self) -> None:
        protocol = self._protocol
        offers: dict[str, Any] = {"elicitation": {"form": {}}, **offers_of(self._client)}
        number = protocol.next_id()
        result = await self._answer(number, protocol.initialize(number, offers), {})
        await self._link.send(protocol.receive_initialized(result), protocol.headers("", {}))

    async def _renew(self, ended: str) -> None:
        """Begin a new session in place of one that the server has ended.

        Raises:
            NotSentError: The server does not begin one.
        """
        async with self._renewing:
            if self._link.session != ended:
                return
            self._listening.cancel()
            self._link.session = ""
            self._protocol = ClientProtocol(_INFO)
            self.has_news = True
            try:
                await self._initialize()
            except (LinkError, JsonRpcError, NegotiationError) as error:
                self._link.session = ended  # the next request tries again
                raise NotSentError(
                    f"the server has ended the session, and did not begin another one: {error}"
                ) from error
            self._listening = trio.CancelScope()
            self._tasks.start_soon(self._listen, self._listening)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        listener: Listener | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> msgspec.Raw:
        """Send a request, answer what the server asks meanwhile, and return the result. If cancelled, so is the request.

        Args:
            method: The method.
            params: Its parameters.
            listener: The caller.
            headers: More headers for HTTP.

        Raises:
            JsonRpcError: The answer is an error.
            QuestionError: The server asks for what the caller does not offer.
            LinkError: There is no answer.
        """
        given = params
        for _ in range(self._limits.max_rounds):
            result = await self._request(method, given, listener, headers or {})
            asked = _input_required(result) if self._protocol.is_modern else None
            if asked is None:
                return result
            given = {**params, **await self._answers(asked, listener)}
        raise QuestionError([method])

    async def _answers(self, asked: _InputRequired, listener: Listener | None) -> dict[str, Any]:
        """The parameters that answer the questions of a server."""
        client = self._client_of(listener)
        methods = [question.method for question in asked.input_requests.values()]
        if len(methods) > MAX_SERVER_REQUESTS or not all(map(is_question, methods)):
            raise QuestionError(methods[:MAX_SERVER_REQUESTS])
        answers: dict[str, Any] = {}
        for key, question in asked.input_requests.items():
            try:
                answers[key] = await answer(question.method, question.params, client, self.version)
            except JsonRpcError as error:
                raise QuestionError([question.method]) from error
        state = {} if asked.request_state is msgspec.UNSET else {"requestState": asked.request_state}
        return {**({"inputResponses": answers} if answers else {}), **state}

    async def _request(
        self, method: str, params: Mapping[str, Any], listener: Listener | None, headers: Mapping[str, str]
    ) -> msgspec.Raw:
        if self._renewing.locked():
            async with self._renewing:
                pass
        try:
            return await self._send(method, params, listener, headers)
        except SessionEndedError as ended:  # the server has not seen the request
            await self._renew(ended.session)
            return await self._send(method, params, listener, headers)

    async def _send(
        self, method: str, params: Mapping[str, Any], listener: Listener | None, headers: Mapping[str, str]
    ) -> msgspec.Raw:
        protocol = self._protocol
        number = protocol.next_id()
        offers: dict[str, Any] = {}
        if listener is not None:
            client = self._client_of(listener)
            offers = offers_of(client) if protocol.is_modern else {}
            meta: dict[str, Any] = {"progressToken": number} if listener.wants_reports else {}
            if protocol.is_modern and (listener.wants_reports or client is not None):
                meta[LOG_LEVEL] = "info"
            if meta:
                params = {**params, "_meta": {**params.get("_meta", {}), **meta}}
            self._listeners[number] = listener
        try:
            data = protocol.send_request(number, method, params, offers)
            return await self._answer(number, data, {**protocol.headers(method, params), **headers})
        except LocalProtocolError as error:
            raise NotSentError(str(error)) from None
        except trio.Cancelled:
            # The end of its connection cancels a request over HTTP, in versions without sessions.
            if not (self._has_ended or (self._link.has_headers and protocol.is_modern)):
                self._tasks.start_soon(self._link.send, protocol.cancel(number), protocol.headers("", {}))
            raise
        finally:
            self._listeners.pop(number, None)
            for question in self._questions.values():
                if question.during == number:
                    question.scope.cancel()

    async def _answer(self, number: int, data: bytes, headers: Mapping[str, str]) -> msgspec.Raw:
        found = await self._link.request(Outgoing(number, data, headers))
        if isinstance(found, ErrorResponse):
            error = found.error
            code = int(error.code) if abs(error.code) < 2**53 else INTERNAL_ERROR
            raise JsonRpcError(code, error.message, error.data)
        return found.result

    async def _listen(self, scope: trio.CancelScope) -> None:
        """Receive what the server sends without a request, until cancelled or refused."""
        with scope:
            if not self._protocol.is_modern:
                if self.has("logging"):
                    with contextlib.suppress(JsonRpcError, LinkError):
                        await self.request("logging/setLevel", {"level": "info"})
                await self._link.listen(self._protocol.headers("", {}))
                return
            while self.has("tools", "listChanged"):
                try:
                    await self.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
                except JsonRpcError:
                    return  # the tools are listed at the next catalog all the same
                except LinkError:
                    pass
                self.has_news = True
                await trio.sleep(self._limits.resume_secs)

    def _client_of(self, listener: Listener | None) -> ClientFeatures | None:
        return self._client if listener is None or listener.client is None else listener.client

    async def receive(self, message: Request | Notification, during: int | None) -> None:
        """See `Receiver.receive`."""
        if isinstance(message, Request):
            self._receive_request(message, during)
        elif message.method == "notifications/tools/list_changed":
            self.has_news = True
        elif message.method == "notifications/progress":
            with contextlib.suppress(JsonRpcError):
                report = parse(message.params, ProgressParams, message.method)
                token = report.progress_token
                listener = self._listeners.get(token) if isinstance(token, int) else None
                if listener is not None and listener.wants_reports:
                    await listener.report(report.progress, report.total, report.message)
        elif message.method == "notifications/message":
            await self._receive_log(message, during)
        elif message.method == "notifications/cancelled":
            with contextlib.suppress(JsonRpcError):
                cancelled = parse(message.params, CancelledParams, message.method).request_id
                question = None if cancelled is None else self._questions.get(key_of(cancelled))
                if question is not None:
                    question.scope.cancel()

    def receive_end(self, why: str) -> None:
        """See `Receiver.receive_end`."""
        self._has_ended = True
        self._protocol.receive_end()
        self._on_end(why)

    def close(self) -> None:
        """End all requests: the client is closed."""
        self._has_ended = True
        self._protocol.receive_end()
        self._link.close()

    async def _receive_log(self, message: Notification, during: int | None) -> None:
        try:
            parse(message.params, LevelParams, message.method)
            found = msgspec.json.decode(message.params, type=_LogParams)
        except (JsonRpcError, msgspec.DecodeError):
            return
        text = found.data if isinstance(found.data, str) else msgspec.json.encode(found.data).decode()
        level: Any = found.level
        number = self._request_of(during)
        listener = None if number is None else self._listeners.get(number)
        if listener is None:
            log.info("a server logged (%s): %s", level, shortened(text))
        else:
            await listener.log(level, text)

    def _request_of(self, during: int | None) -> int | None:
        """The request that a message belongs to. Where all share one connection, it is known only if there is no other one."""
        if during is None and len(self._listeners) == 1:
            return next(iter(self._listeners))
        return during

    def _asked_client(self, during: int | None) -> ClientFeatures | None:
        """The client that a question is for. None where it is not known which of several is meant."""
        if during is not None:
            return self._client_of(self._listeners.get(during))
        found = {id(client): client for client in map(self._client_of, self._listeners.values())}
        if not found:
            return self._client
        return next(iter(found.values())) if len(found) == 1 else None

    def _receive_request(self, request: Request, during: int | None) -> None:
        key = key_of(request.id)
        if key in self._questions or len(self._questions) >= MAX_SERVER_REQUESTS:
            log.warning(
                "a server has more than %d requests without an answer, or uses an id twice", MAX_SERVER_REQUESTS
            )
            return
        self._questions[key] = _Question(self._request_of(during))
        self._tasks.start_soon(self._reply, request, self._asked_client(during), self._questions[key])

    async def _reply(self, request: Request, client: ClientFeatures | None, question: _Question) -> None:
        """Answer a request of the server. One that is cancelled gets no answer."""
        try:
            with question.scope:
                data = await self._reply_to(request, client)
                await self._link.send(data, self._protocol.headers("", {}))
        finally:
            self._questions.pop(key_of(request.id), None)

    async def _reply_to(self, request: Request, client: ClientFeatures | None) -> bytes:
        if request.method == "ping":
            return encode_result(request.id, b"{}")
        if not is_question(request.method) or self._protocol.is_modern:
            return encode_error(request.id, JsonRpcError(METHOD_NOT_FOUND, "there is no such method"))
        try:
            result = await answer(request.method, request.params, client, self.version)
        except JsonRpcError as error:
            return encode_error(request.id, error)
        return encode_result(request.id, msgspec.json.encode(result))


class _Versions(msgspec.Struct):
    supported: list[str] = []


def _supported(refusal: JsonRpcError) -> list[str]:
    try:
        return msgspec.convert(refusal.data, _Versions).supported
    except msgspec.ValidationError:
        return []


def _input_required(result: msgspec.Raw) -> _InputRequired | None:
    """The questions in a result; None if it is complete."""
    if b'"input_required"' not in bytes(result):
        return None
    try:
        found = msgspec.json.decode(result, type=_InputRequired)
    except msgspec.DecodeError:
        return None
    return found if found.result_type == "input_required" else None
