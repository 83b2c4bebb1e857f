"""The application behind every front end: one table of routes, and the order of the checks before them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from carmy_engine import BoundEngine, Engine, HttpSettings
from carmy_engine.codec import invalid_request
from carmy_engine.errors import AgentError, ClosedError
from carmy_engine.transport import RateLimitedLogger, raise_own
from carmy_net import within_trace

from ..message import (
    NO_STORE,
    Answer,
    Disconnected,
    Handler,
    Headers,
    Refusal,
    Request,
    RequestHead,
    Response,
    RouteMatch,
    body_too_large,
)
from . import confirmations, discovery, execute, executions, health, openapi, reading
from .access import SECURITY_HEADERS, Guard
from .errors import error_response, fault_response, log
from .mounts import NO_MOUNTS, HandlerOf
from .protected_resource import METADATA_PATH, ProtectedResource

HandlerFactory: TypeAlias = Callable[["Endpoints", RequestHead], Handler]


class Route(NamedTuple):
    """One address.

    Attributes:
        methods: For each method, a function that makes the handler for a request's head.
        is_open: No credentials are needed, and ``Host`` is not checked.
        is_public: No credentials are needed.
        head: HEAD follows GET.
    """

    methods: Mapping[str, HandlerFactory]
    is_open: bool = False
    is_public: bool = False
    head: bool = True

    def factory(self, method: str) -> HandlerFactory | None:
        """The factory for a method, None if the route does not have it."""
        return self.methods.get("GET" if self.head and method == "HEAD" else method)

    @property
    def allow(self) -> bytes:
        """The value of ``Allow``."""
        names = {"OPTIONS", *self.methods}
        if self.head and "GET" in names:
            names.add("HEAD")
        return ", ".join(sorted(names)).encode()


def _always(handler: Handler) -> HandlerFactory:
    """A factory that makes the same handler for every head."""
    return lambda _app, _head: handler


def _limited(handler: Callable[[HttpSettings, Request, BoundEngine], Awaitable[Answer]]) -> HandlerFactory:
    """The factory of a handler that needs the limits of the application."""
    return lambda app, _head: functools.partial(handler, app.settings)


def _discovery(app: Endpoints, _head: RequestHead) -> Handler:
    return functools.partial(discovery.discovery, app.name, app.mounts)


def _openapi(app: Endpoints, _head: RequestHead) -> Handler:
    return functools.partial(openapi.describe, app.engine)


def _execute(app: Endpoints, head: RequestHead) -> Handler:
    return functools.partial(execute.execute, execute.read_call_head(head), app.settings)


def _ready(app: Endpoints, _head: RequestHead) -> Handler:
    return functools.partial(health.ready, app.engine, app.log)


def _metadata(part: str) -> HandlerFactory:
    """The factory for the metadata of a part of the server; of a part that is not served there is none."""

    def make(app: Endpoints, _head: RequestHead) -> Handler:
        if not app.resource.exists or (part and part not in app.mounts):
            return _answer_without_route
        return functools.partial(app.resource.answer, part)

    return make


def _mounted(app: Endpoints, head: RequestHead) -> Handler:
    return app.mounts[head.path](head)


ROUTES: Mapping[str, Route] = {
    discovery.DISCOVERY_PATH: Route({"GET": _discovery}),
    discovery.CATALOG_PATH: Route({"GET": _always(discovery.catalog)}),
    openapi.OPENAPI_PATH: Route({"GET": _openapi}),
    discovery.EXECUTE_PATH: Route({"POST": _execute}),
    executions.EXECUTIONS_PATH: Route({"GET": _always(executions.list_all)}),
    confirmations.CONFIRMATIONS_PATH: Route({"GET": _always(confirmations.list_open)}),
    discovery.RESOURCES_PATH: Route({"GET": _always(reading.resources)}),
    reading.READ_PATH: Route({"POST": _limited(reading.read)}),
    discovery.PROMPTS_PATH: Route({"GET": _always(reading.prompts)}),
    reading.GET_PATH: Route({"POST": _limited(reading.get)}),
    discovery.COMPLETE_PATH: Route({"POST": _limited(reading.complete)}),
    METADATA_PATH: Route({"GET": _metadata("")}, is_public=True),
    METADATA_PATH + discovery.MCP_PATH: Route({"GET": _metadata(discovery.MCP_PATH)}, is_public=True),
    health.HEALTH_PATH: Route({"GET": _always(health.health)}, is_open=True),
    health.READY_PATH: Route({"GET": _ready}, is_open=True),
}
BY_ID: Mapping[str, Route] = {
    executions.EXECUTIONS_PREFIX: Route({"GET": _always(executions.show), "DELETE": _always(executions.cancel)}),
    confirmations.CONFIRMATIONS_PREFIX: Route({"POST": _limited(confirmations.answer)}),
}
"""Routes of one execution and one confirmation, by what precedes the id."""

MOUNTED = Route({"DELETE": _mounted, "GET": _mounted, "POST": _mounted}, head=False)
"""Without HEAD: the head of a stream contains no information."""


def _route_of(path: str) -> Route | None:
    route = ROUTES.get(path)
    if route is None:
        collection, slash, name = path.rpartition("/")
        if name:
            return BY_ID.get(collection + slash)
    return route


class Endpoints:
    """Answers requests from any front end: give it a `Request`, write the `Answer`.

    Args:
        engine: Runs the tools.
        mounts: Other applications, by their path.
        only_mounts: Of the project's own addresses, serve those about health only.

    Attributes:
        engine: Runs the tools.
        name: The server's name in the discovery document.
        settings: Limits in time and bytes.
        mounts: Other applications, by their path.
        log: For lines that a client can cause.
        resource: The server for clients of OAuth.
    """

    engine: Engine
    name: str
    settings: HttpSettings
    mounts: Mapping[str, HandlerOf]
    log: RateLimitedLogger
    resource: ProtectedResource

    def __init__(
        self, engine: Engine, mounts: Mapping[str, HandlerOf] = NO_MOUNTS, *, only_mounts: bool = False
    ) -> None:
        settings = engine.settings
        self.mounts = mounts
        self._only_mounts = only_mounts
        self.engine = engine
        self.name = settings.name
        self.log = RateLimitedLogger(log)
        self.settings = settings.http
        self._guard = Guard(engine)
        self.resource = self._guard.resource
        self._trusts_traceparent = settings.trust_traceparent
        self._always: Headers = SECURITY_HEADERS if settings.http.security_headers else ()

    async def answer(self, request: Request) -> Answer:
        """Answer one request, whatever it is.

        Raises:
            Disconnected: The client has gone; nothing is left to do for it.
            trio.Cancelled: The front end is closing. The execution is cancelled with it.
        """
        extra: Headers = ()
        caller = self._guard.anonymous
        answer: Answer
        try:
            extra, known_caller, handler = request.head.match or self._match(request.head)
            caller = known_caller or await self._guard.authenticate(request)
            if self._trusts_traceparent:
                caller = within_trace(caller, request.head.every(b"traceparent"))
            answer = await handler(request, caller)
        except Disconnected:
            raise
        except Refusal as refusal:
            caller.record_refusal(refusal.error, request.peer)
            answer = error_response(refusal.error, status=refusal.status, headers=refusal.headers)
        except AgentError as error:
            caller.record_refusal(error, request.peer)
            answer = error_response(error)
        except ClosedError:
            answer = error_response(AgentError.standard("SHUTTING_DOWN", "the engine behind this server is closed"))
        except BaseException as fault:  # noqa: BLE001 - logged and answered, see below
            # The boundary of one call: an authenticator of the host, or a fault of the endpoints, must cost one answer and
            # not the connection's other requests.
            raise_own(fault)
            answer = fault_response(f"{request.head.method} {request.head.path!r} failed", fault)
        if added := extra + self._always:
            answer.headers += added
        return answer

    def _match(self, head: RequestHead) -> RouteMatch:
        """Find the route of a head, check ``Host`` and ``Origin``, and store the match in the head.

        Raises:
            AgentError: ``FORBIDDEN``. Nothing is stored.
        """
        route = self.find_route(head)
        is_open = route is not None and route.is_open
        if not is_open:  # probes ask for health by whatever address they have
            self._guard.check_host(head)
        headers = self._guard.check_origin(head)
        if self._guard.is_preflight(head):
            match = RouteMatch(headers, self._guard.anonymous, self._guard.preflight)
        else:
            needs_none = route is not None and (route.is_open or route.is_public)
            caller = self._guard.anonymous if needs_none else self._guard.public
            match = RouteMatch(headers, caller, self._handler(head, route))
        head.match = match
        return match

    def _handler(self, head: RequestHead, route: Route | None) -> Handler:
        if route is None:
            return _answer_without_route
        factory = route.factory(head.method)
        if factory is None:
            return functools.partial(_answer_other_method, route.allow)
        return factory(self, head)

    def find_route(self, head: RequestHead) -> Route | None:
        """The route of a request, None when there is none. The prefix of the setting ``http.root_path`` is removed from its path."""
        if (
            self.settings.root_path is not None and not head.root
        ):  # where an ASGI server has set one, that is the prefix
            head.set_root(self.settings.root_path)
        route = _route_of(head.path)
        if self._only_mounts and route is not None and not (route.is_open or route.is_public):
            route = None
        return MOUNTED if route is None and head.path in self.mounts else route

    def refusal(self, status: int, reason: str, peer: str | None) -> Response:
        """The answer to bytes that are not a request.

        Args:
            status: The status code.
            reason: The message of the error.
            peer: The client's address, None where there is none.
        """
        error = body_too_large(self.settings.max_body_bytes).error if status == 413 else invalid_request(reason)
        return self.refuse(error, peer, status)

    def refuse(self, error: AgentError, peer: str | None, status: int | None = None) -> Response:
        """The answer to a request that a front end refuses by itself. Leaves a record."""
        self._guard.anonymous.record_refusal(error, peer)
        return error_response(error, status=status, headers=self._always)


async def _answer_without_route(request: Request, _engine: BoundEngine) -> Response:
    if request.head.method == "OPTIONS" and request.head.path == "*":
        return Response(204, [NO_STORE, (b"allow", b"DELETE, GET, HEAD, OPTIONS, POST")])
    raise AgentError.standard(
        "ROUTE_NOT_FOUND",
        "there is nothing at this address",
        suggested_action=f"GET {discovery.DISCOVERY_PATH} lists the addresses.",
    )


async def _answer_other_method(allow: bytes, request: Request, _engine: BoundEngine) -> Response:
    if request.head.method == "OPTIONS":
        return Response(204, [NO_STORE, (b"allow", allow)])
    error = AgentError.standard("METHOD_NOT_ALLOWED", f"this address answers to {allow.decode()} only")
    raise Refusal(error, headers=[(b"allow", allow)])
