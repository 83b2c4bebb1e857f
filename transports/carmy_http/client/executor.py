"""The client: an executor that sends its calls to a server of ``carmy/1``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx2
import msgspec
import trio

from carmy_engine import (
    AgentError,
    Catalog,
    ClosedError,
    ExecutionCompleted,
    ExecutionEvent,
    ExecutionRequest,
    ExecutionResult,
    OutcomeUnknownError,
    grace,
)
from carmy_engine.transport import parse_server_url, raise_single, require_trio, split_unix_url
from carmy_frames.driver import EventChannel
from carmy_frames.protocol import parse_catalog, parse_event
from carmy_net import EventReader

from ..api.discovery import CATALOG_PATH, EXECUTE_PATH
from .http_io import chunks_of, connections, read, send
from .limits import DEFAULT_LIMITS, HttpClientLimits
from .retries import Failure, Lost, RequestBody, next_wait, read_answer, read_error, wait_for_running

T = TypeVar("T")


@asynccontextmanager
async def open_http(
    url: str,
    *,
    token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    limits: HttpClientLimits = DEFAULT_LIMITS,
) -> AsyncIterator[HttpClient]:
    """Call a server for the length of a block.

    Nothing is connected before the first call. Calls in other tasks that are still running when the block ends raise
    `OutcomeUnknownError`. Proxies that the environment names are not used, and redirections not followed.

    Args:
        url: ``http://`` or ``https://``; the address under which the server, or the application, is mounted; of a server
            on a unix socket, ``http://unix:FILE``.
        token: Sent as ``Authorization: Bearer``.
        ca_file: Certificates in PEM of the authorities that may sign an ``https://`` server's; without it, the public ones.
        limits: In time, bytes and numbers.

    Raises:
        ConfigurationError: The URL or the token is malformed, or the file holds no certificates.
    """
    require_trio("open_http", "open_http(...)")
    ordinary, file = split_unix_url(url)
    parse_server_url(ordinary, schemes=("http", "https"), example="http://127.0.0.1:3000", has_query=False)
    base = ordinary.rstrip("/").removesuffix(EXECUTE_PATH)
    http = connections(base, token, file, ca_file, limits)
    client = HttpClient(http, base, base if file is None else url, limits)
    try:
        yield client
    finally:
        client.close()
        with grace():
            await http.aclose()


class HttpClient:
    """The client of one server; an executor. Made by `open_http`.

    Each call has a connection to itself while it lasts. Leaving a call's scope closes it, which cancels the call on the
    server.
    """

    def __init__(self, http: httpx2.AsyncClient, base: str, name: str, limits: HttpClientLimits) -> None:
        self._http = http
        self._base = base
        self._name = name
        self._limits = limits
        self._closed = False
        self._scopes: set[trio.CancelScope] = set()
        self._catalog: Catalog | None = None
        self._etag = ""

    def close(self) -> None:
        """End all calls, and refuse later ones. Called by `open_http`."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one request to its end; see `carmy_engine.abc.Executor.execute`.

        The deadline of the caller's scope also limits the execution, by ``timeout_ms``. A request that cannot be sent, or that the
        server refuses as invalid, gives a result with an empty ``execution_id``.

        A request is sent again if nothing was sent. With a ``request_id``, it is sent again also when its connection broke: the
        server then repeats the answer, or returns ``EXECUTION_UNCERTAIN``. There are at most ``limits.max_attempts``.

        Raises:
            ClosedError: The server cannot be reached: the tool has not run.
            OutcomeUnknownError: The connection was lost while the call may have run.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        try:
            wanted = RequestBody.of(request, self._limits.max_request_bytes)
        except AgentError as error:
            await trio.lowlevel.checkpoint()
            return ExecutionResult(execution_id="", error=error.info)
        return await self._repeat(
            lambda: self._ask(wanted), wanted.request_id, repeatable=wanted.request_id is not None
        )

    @asynccontextmanager
    async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
        """Run one request and give its events; see `carmy_engine.abc.Executor.stream`.

        A stream that has begun is not repeated.

        Raises:
            ClosedError: As `execute`.
            OutcomeUnknownError: As `execute`; from the channel when it happens in the block.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        events = EventChannel()
        try:
            wanted = RequestBody.of(request, self._limits.max_request_bytes)
        except AgentError as error:
            await events.put_refusal(request.tool, ExecutionResult(execution_id="", error=error.info))
            yield events
            return
        response = await self._repeat(
            lambda: self._post(wanted, "text/event-stream"),
            wanted.request_id,
            repeatable=wanted.request_id is not None,
        )
        try:
            async with trio.open_nursery() as background:
                background.start_soon(self._receive, response, wanted, events)
                try:
                    yield events
                finally:
                    events.stop()
                    background.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)
        finally:
            with grace():
                await response.aclose()

    async def catalog(self) -> Catalog:
        """The tools that this client's caller may use. Requested each time; the server sends it only if it has changed.

        Raises:
            ClosedError: The server cannot be reached, or does not answer.
            AgentError: The server refused.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        try:
            return await self._repeat(self._get_catalog, None, repeatable=True)
        except OutcomeUnknownError as error:
            raise ClosedError(f"{self._name} did not give its catalog: {error.__cause__ or error}") from error

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the client of {self._name} was used after its block had ended")

    async def _until_closed(self, request_id: str | None, run: Callable[[], Awaitable[T]]) -> T:
        """Run a function that is cancelled when the client is closed.

        Raises:
            OutcomeUnknownError: The client was closed.
        """
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._closed:
                scope.cancel()
            try:
                return await run()
            finally:
                self._scopes.discard(scope)
        raise self._unknown("the client was closed", request_id)

    def _unknown(self, why: str, request_id: str | None) -> OutcomeUnknownError:
        return OutcomeUnknownError.before_answer(f"{self._name}: {why}", request_id)

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], request_id: str | None, *, repeatable: bool) -> T:
        """Try until there is an answer, as often as `next_wait` allows, or until the client is closed."""
        return await self._until_closed(
            request_id, lambda: self._repeat_attempts(attempt, request_id, repeatable=repeatable)
        )

    async def _repeat_attempts(
        self, attempt: Callable[[], Awaitable[T]], request_id: str | None, *, repeatable: bool
    ) -> T:
        count = 0
        may_have_run = False
        while True:
            count += 1
            try:
                answer = await attempt()
            except Lost as lost:
                may_have_run |= lost.failure is Failure.LOST
                wait = next_wait(count, lost.failure, repeatable=repeatable, asked=lost.wait, limits=self._limits)
                if wait is None:
                    if may_have_run:
                        raise self._unknown(lost.why, request_id) from lost
                    raise ClosedError(f"{self._name}: {lost.why}; the call was not sent") from lost
            else:
                # Only a repeated request can meet its own first attempt.
                asked = (
                    wait_for_running(answer, self._limits)
                    if may_have_run and isinstance(answer, ExecutionResult)
                    else None
                )
                if asked is None:
                    return answer
                wait = next_wait(count, Failure.LOST, repeatable=True, asked=asked, limits=self._limits)
                if wait is None:
                    return answer
            await trio.sleep(wait)

    async def _ask(self, wanted: RequestBody) -> ExecutionResult:
        response = await self._post(wanted, "application/json")
        body = await read(response, self._limits.max_answer_bytes)
        return read_answer(self._name, response.status_code, response.headers, body)

    async def _post(self, wanted: RequestBody, accept: str) -> httpx2.Response:
        remaining = trio.current_effective_deadline() - trio.current_time()
        limits = self._limits
        is_stream = accept == "text/event-stream"
        seconds = limits.silence_secs if is_stream else wanted.seconds(remaining) + limits.margin_secs
        return await send(
            self._http,
            "POST",
            self._base + EXECUTE_PATH,
            {"content-type": "application/json", "accept": accept},
            seconds,
            wanted.body(remaining),
            limits=limits,
        )

    async def _get_catalog(self) -> Catalog:
        headers = {"accept": "application/json"} | ({"if-none-match": self._etag} if self._catalog is not None else {})
        url, limits = self._base + CATALOG_PATH, self._limits
        response = await send(self._http, "GET", url, headers, limits.catalog_secs, limits=limits)
        body = await read(response, self._limits.max_answer_bytes)
        if response.status_code == 304 and self._catalog is not None:
            return self._catalog
        if response.status_code != 200:
            raise AgentError.of(read_error(self._name, response.status_code, response.headers, body))
        try:
            found = parse_catalog(body)
        except AgentError as error:
            raise ClosedError(f"{self._name} answered with an invalid catalog: {error.message}") from None
        # The document as it was sent, byte by byte.
        self._catalog = msgspec.structs.replace(found, document=body, version=hashlib.sha256(body).hexdigest())
        self._etag = response.headers.get("etag", "")
        return self._catalog

    async def _receive(self, response: httpx2.Response, wanted: RequestBody, events: EventChannel) -> None:
        """Read the events of a stream, until the last one."""
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        receive = self._receive_events if is_stream else self._receive_answer
        try:
            await self._until_closed(wanted.request_id, lambda: receive(response, wanted, events))
        except Lost as lost:
            error = self._unknown(lost.why, wanted.request_id)
            error.__cause__ = lost
            events.fail(error)
        except (OutcomeUnknownError, ClosedError) as error:
            events.fail(error)

    async def _receive_answer(self, response: httpx2.Response, wanted: RequestBody, events: EventChannel) -> None:
        """Put the answer to an invalid request into the stream, as its last event."""
        body = await read(response, self._limits.max_answer_bytes)
        result = read_answer(self._name, response.status_code, response.headers, body)
        await events.put_refusal(wanted.tool, result)

    async def _receive_events(self, response: httpx2.Response, wanted: RequestBody, events: EventChannel) -> None:
        reader = EventReader(self._limits.max_answer_bytes)
        seq = 0
        is_complete = False
        try:
            async with chunks_of(response) as chunks:
                async for chunk in chunks:
                    for found in reader.feed(chunk):
                        event = parse_event(found.event, seq, found.data, wanted.tool)
                        if event is None:
                            continue  # of a newer server
                        seq += 1
                        await events.put(event)
                        # Read on to the end of the body, so that the connection can be used again.
                        is_complete |= isinstance(event, ExecutionCompleted)
        except Lost:
            if not is_complete:
                raise
        except (ValueError, AgentError) as error:
            raise Lost(Failure.LOST, f"the server sent an invalid event ({error})") from error
        if not is_complete:
            raise Lost(Failure.LOST, "the stream ended")
