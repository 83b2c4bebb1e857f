"""The application behind every front end: one table of routes, and the order of the checks before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from carmy_engine import BoundEngine, Engine
from carmy_engine.codec import invalid_request
from carmy_engine.errors import AgentError, ClosedError
from carmy_engine.transport import RateLimitedLogger, raise_own

from ..http1.response_bytes import whole
from ..message import NO_STORE, Answer, Disconnected, Headers, PlainCall, Request, RequestHead, Response
from . import discovery, execute, executions, health
from .access import SECURITY_HEADERS, Guard
from .body import read_body
from .errors import Refusal, error_response, fault_response, log
from .mounts import NO_MOUNTS, AsgiApplication, MountedResponse

Handler = Callable[["Endpoints", Request, "BoundEngine"], Awaitable[Answer]]
OpenHandler = Callable[["Endpoints"], Awaitable[Answer]]


class Route(NamedTuple):
    """One address.

    Attributes:
        methods: What it does for each method.
        open: Handlers that need no credentials; such a route has no `methods`.
        head: HEAD follows GET.
    """

    methods: Mapping[str, Handler]
    open: OpenHandler | None = None
    head: bool = True

    @property
    def allow(self) -> bytes:
        """The value of ``Allow``."""
        names = {"OPTIONS", *(self.methods if self.open is None else ("GET",))}
        if self.head and "GET" in names:
            names.add("HEAD")
        return ", ".join(sorted(names)).encode()


async def _discover(app: Endpoints, request: Request, engine: BoundEngine) -> Answer:
    return await discovery.discovery(app.name, request, engine, app.mounts)


async def _catalog(app: Endpoints, request: Request, engine: BoundEngine) -> Answer:
    return await discovery.catalog(request, engine)


def _call(app: Endpoints, request: Request, engine: BoundEngine) -> Awaitable[Answer]:
    return execute.execute(request, engine, app.body_seconds)


async def _list(app: Endpoints, request: Request, engine: BoundEngine) -> Answer:
    return await executions.list_all(engine)


async def _show(app: Endpoints, request: Request, engine: BoundEngine) -> Answer:
    return await executions.show(request, engine)


async def _cancel(app: Endpoints, request: Request, engine: BoundEngine) -> Answer:
    return await executions.cancel(request, engine)


async def _pass_on(app: Endpoints, request: Request, engine: BoundEngine) -> Answer:
    body = await read_body(request, app.body_seconds) if request.method == "POST" else b""
    return MountedResponse(app.mounts[request.path], request, engine, body)


async def _health_of(app: Endpoints) -> Answer:
    return await health.health()


async def _ready_of(app: Endpoints) -> Answer:
    return await health.ready(app.engine, app.log)


CALL = Route({"POST": _call})
ROUTES: Mapping[str, Route] = {
    discovery.DISCOVERY_PATH: Route({"GET": _discover}),
    discovery.CATALOG_PATH: Route({"GET": _catalog}),
    discovery.EXECUTE_PATH: CALL,
    executions.EXECUTIONS_PATH: Route({"GET": _list}),
    "/health": Route({}, open=_health_of),
    "/ready": Route({}, open=_ready_of),
}
EXECUTION = Route({"GET": _show, "DELETE": _cancel})
MOUNTED = Route({"DELETE": _pass_on, "GET": _pass_on, "POST": _pass_on}, head=False)
"""Without HEAD: the head of a stream tells nothing."""


def route_of(path: str) -> Route | None:
    """The route of a path, None when there is nothing."""
    route = ROUTES.get(path)
    if route is None and path.startswith(executions.EXECUTIONS_PREFIX):
        rest = path.removeprefix(executions.EXECUTIONS_PREFIX)
        if rest and "/" not in rest:
            return EXECUTION
    return route


class Endpoints:
    """Answers requests. Knows no front end; give it a `Request`, write the `Answer`.

    Args:
        engine: What runs the tools.
        mounts: Other applications, by their path.
        only_mounts: Our own addresses are those about health only.

    Attributes:
        engine: What runs the tools.
        name: The server's name in the discovery document.
        body_seconds: For a whole request body.
        mounts: Other applications, by their path.
        log: For what strangers can cause.
    """

    engine: Engine
    name: str
    body_seconds: float
    mounts: Mapping[str, AsgiApplication]

    def __init__(
        self, engine: Engine, mounts: Mapping[str, AsgiApplication] = NO_MOUNTS, *, only_mounts: bool = False
    ) -> None:
        settings = engine.settings
        self.mounts = mounts
        self._only_mounts = only_mounts
        self.engine = engine
        self.name = settings.name
        self.log = RateLimitedLogger(log)
        self.body_seconds = settings.http.body_timeout_secs
        self._guard = Guard(engine)
        self._always: Headers = SECURITY_HEADERS if settings.http.security_headers else ()

    def plain_call(self, request: RequestHead) -> PlainCall | None:
        """What the head decides of the plainest call; None when it is not so plain, or no call, or will be refused.

        It depends on the head alone, so a front end may remember it for requests with the very same head, which clients
        send again and again: see `Request.plain`.
        """
        engine = self._guard.anyone
        if engine is None or request.method != "POST" or self._route_of(request.path) is not CALL:
            return None
        try:
            self._guard.check_host(request)
            extra = self._guard.check_origin(request)
            execute.check_head(request)
        except AgentError:
            return None  # `answer` finds the same, and says so
        return PlainCall(engine, extra) if execute.is_plain(request) else None

    async def answer(self, request: Request) -> Answer:
        """Answer one request, whatever it is.

        Raises:
            Disconnected: The client has gone; nothing is left to do for it.
            trio.Cancelled: The front end is closing. The execution is cancelled with it.
        """
        extra: Headers = ()
        caller = self._guard.nobody
        answer: Answer
        try:
            if (plain := request.plain) is not None:
                extra = plain.extra
                caller = plain.engine
                answer = await execute.execute(request, caller, self.body_seconds)
            else:
                route = self._route_of(request.path)
                is_open = route is not None and route.open is not None
                if not is_open:  # probes ask for health by whatever address they have
                    self._guard.check_host(request)
                extra = self._guard.check_origin(request)
                preflight = self._guard.preflight(request)
                if preflight is None and not is_open:
                    caller = await self._guard.authenticate(request)
                answer = preflight or await self._dispatch(request, route, caller)
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
            # The boundary of one call: an authenticator of the host, or a fault of ours, must cost one answer and
            # not the connection's other requests.
            raise_own(fault)
            answer = fault_response(f"{request.method} {request.path!r} failed", fault)
        if added := extra + self._always:
            answer.headers += added
        return answer

    def refuse(self, status: int, reason: str, peer: str | None) -> bytes:
        """The whole answer to bytes that are no request; the connection closes after it.

        Args:
            status: The status code.
            reason: What is wrong.
            peer: The client's address, None where there is none.
        """
        error = invalid_request(reason)
        self._guard.nobody.record_refusal(error, peer)
        return whole(error_response(error, status=status, headers=self._always), with_body=True, ends=True)

    async def _dispatch(self, request: Request, route: Route | None, engine: BoundEngine) -> Answer:
        if route is None:
            return self._no_route(request)
        if route.open is not None:
            if request.method in {"GET", "HEAD"}:
                return await route.open(self)
            return self._other_method(request, route)
        method = "GET" if route.head and request.method == "HEAD" else request.method
        handler = route.methods.get(method)
        if handler is None:
            return self._other_method(request, route)
        return await handler(self, request, engine)

    def _route_of(self, path: str) -> Route | None:
        route = route_of(path)
        if self._only_mounts and route is not None and route.open is None:
            route = None
        return MOUNTED if route is None and path in self.mounts else route

    def _no_route(self, request: Request) -> Response:
        if request.method == "OPTIONS" and request.path == "*":
            return Response(204, [NO_STORE, (b"allow", b"DELETE, GET, HEAD, OPTIONS, POST")])
        raise AgentError.standard(
            "ROUTE_NOT_FOUND",
            "there is nothing at this address",
            suggested_action=f"GET {discovery.DISCOVERY_PATH} says where everything is.",
        )

    def _other_method(self, request: Request, route: Route) -> Response:
        if request.method == "OPTIONS":
            return Response(204, [NO_STORE, (b"allow", route.allow)])
        raise _method_not_allowed(route.allow)


def _method_not_allowed(allow: bytes) -> Refusal:
    error = AgentError.standard("METHOD_NOT_ALLOWED", f"this address answers to {allow.decode()} only")
    return Refusal(error, headers=[(b"allow", allow)])
