"""The application: tools, state, policies and a store, added one at a time and opened as an engine."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, overload

import msgspec

from .._auth.configured import configured_authenticator, is_configured
from .._config.settings import Settings
from .._config.sources import Deployment, read_deployment
from .._engine.engine import Engine
from .._engine.opening import open_engine
from .._engine.pipeline import Pipeline
from .._execution.asyncio_tools import open_loop_if_needed
from .._execution.policy import RequireToolPermission
from .._gateway.mount import Mount, Mountable, mounted_tools
from .._gateway.tool_source import ToolSource, sourced_tools
from .._loops.running import require_trio
from .._model import host_objects, protocols
from .._model.compiled_tool import Backend, CompiledTool
from .._model.effect import Effect
from .._model.errors import AgentError, ConfigurationError, DeclarationError, StartupError
from .._model.extras import missing_extra
from .._model.spec import DEFAULT_MAX_WAITING
from .._telemetry.metrics import Metrics
from .._tools.declaration import (
    _ATTRIBUTE,
    ToolAttributes,
    declare,
)
from .._tools.provided import provision_of
from .._tools.resources import (
    CompiledPrompt,
    CompiledResource,
    ReadAttributes,
    declare_prompt,
    declare_resource,
)
from .._workers.loading import is_worker
from ..stores.memory import MemoryStore
from .app_state import AppState
from .contents import Contents
from .plugins import AsgiApp, find_store, make_asgi

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter  # of the extra `otel`, which only `App.metrics` and `App.spans` need
    from opentelemetry.trace import Tracer

    from .._telemetry.meter import MeterExport

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=protocols.Middleware)
ReadyCheck = Callable[[], Awaitable[object] | object]


class App:
    """An application: a name, tools, state, policies, sinks, a store, an authenticator and readiness checks.

    In process it reads no file and no environment unless `configure` is true, and it adds no tool by itself. `app` returns an
    application that does both. Commands (``carmy``, `run`) apply the settings of the process to every application. Methods that
    add something return the application, so that they can be chained.

    ::

        app = App("shop", timeout=30).add(search, create_order).state(database)

        async with app.open() as engine:
            ...

    Args:
        name: The server's name in discovery documents.
        timeout: Seconds; the default deadline of an execution. Default: 30.
        version: The application's, for clients of MCP.
        title: Its name for people, for clients of MCP.
        instructions: How a model uses its tools together, for clients of MCP.
        settings: All other settings; the arguments before this one override it.
        configure: Read ``CARMY_*`` and ``carmy.toml`` now; they win over everything that the program gives.
        backend: The library of the application's async code: of tools without a ``backend`` of their own, factories of state, functions
            of start and end, middleware, readiness checks and the authenticator. With ``asyncio`` they run in an asyncio loop: that of
            the program, or one in a thread.

    Raises:
        ConfigurationError: `name` or `timeout` is out of range; or, with `configure`, a setting is unknown or out of range.
    """

    def __init__(
        self,
        name: str,
        *,
        timeout: float | None = None,
        version: str | None = None,
        title: str | None = None,
        instructions: str | None = None,
        settings: Settings | None = None,
        configure: bool = False,
        backend: Backend = "trio",
    ) -> None:
        if backend not in ("trio", "asyncio"):
            raise DeclarationError(f"application {name!r}: backend={backend!r} is neither 'trio' nor 'asyncio'")
        self._backend: Backend = backend
        given = {
            "name": name,
            "timeout_secs": timeout,
            "version": version,
            "title": title,
            "instructions": instructions,
        }
        changes = {key: value for key, value in given.items() if value is not None}
        self._given = msgspec.structs.replace(settings or Settings(), **changes)
        self.deployment = read_deployment() if configure else Deployment()
        """Settings from outside the program, which win over what it gives. Commands set them."""
        self._contents = Contents()
        self._open: set[Engine] = set()
        self._mounts: list[Mount] = []
        self._sources: list[ToolSource] = []
        self._state = AppState()
        self._middleware: list[protocols.Middleware] = []
        self._policies: list[protocols.Policy] = []
        self._sinks: list[protocols.Sink] = []
        self._make_pipeline: Callable[..., Pipeline] = Pipeline
        self._meter_export: MeterExport | None = None
        self._store: protocols.IdempotencyStore | None = None
        self._authenticator: protocols.Authenticator | None = None
        self._ready_checks: dict[str, ReadyCheck] = {}

    @property
    def settings(self) -> Settings:
        """The settings that `open` uses by default."""
        return self.deployment.over(self._given)

    @property
    def name(self) -> str:
        """The server's name."""
        return self.settings.name

    @property
    def _owner(self) -> str:
        return f"application {self.name!r}"

    def tool(self, **attributes: Unpack[ToolAttributes]) -> Callable[[F], F]:
        """Declare a function as a tool and add it, in one. Takes what `carmy_engine.tool` takes.

        Raises:
            DeclarationError: The function cannot be a tool. The message names the reason, the place and the correction.
        """

        def decorate(function: F) -> F:
            # Not registered: it is added here, so `app()` must not find it once more.
            declaration = declare(function, {**attributes, "register": False}, depth=1)
            setattr(function, _ATTRIBUTE, declaration)
            self._contents.add([declaration])
            return function

        return decorate

    def resource(
        self, uri: str, *, mime_type: str | None = None, **attributes: Unpack[ReadAttributes]
    ) -> Callable[[F], F]:
        """Declare a function that reads a resource, or the resources of a template, and add it.

        ::

            @app.resource("orders://{id}")
            async def order(id: int, orders: State[Orders]) -> Order: ...

        Args:
            uri: The address, or a template (RFC 6570) with ``{name}``, ``{+name}`` (slashes included) and ``{?name,other}`` at its end.
                Each variable is a parameter.
            mime_type: Of its content. Default: ``text/plain`` for str, ``application/octet-stream`` for bytes, the own one of
                content, ``application/json`` for anything else.
            **attributes: See `ReadAttributes`.

        Raises:
            DeclarationError: The function or the address cannot be used.
        """

        def decorate(function: F) -> F:
            self._contents.reads.append(declare_resource(function, uri, mime_type, attributes, depth=1))
            return function

        return decorate

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, /, **attributes: Unpack[ReadAttributes]) -> Callable[[F], F]: ...

    def prompt(self, function: F | None = None, /, **attributes: Unpack[ReadAttributes]) -> F | Callable[[F], F]:
        """Declare a function that renders a prompt, and add it; with or without attributes.

        The function returns a text, a `Message`, content, or a list of these.

        Args:
            function: The function, where the decorator has no attributes.
            **attributes: See `ReadAttributes`.

        Raises:
            DeclarationError: The function cannot be used.
        """

        def decorate(function: F, depth: int = 1) -> F:
            self._contents.reads.append(declare_prompt(function, attributes, depth=depth))
            return function

        return decorate if function is None else decorate(function, 2)

    def notify_resource(self, uri: str) -> None:
        """`Engine.notify_resource` of every engine that this application is open as. Safe in any thread; never blocks."""
        for engine in tuple(self._open):
            engine.notify_resource(uri)

    def add(self, *tools: object) -> Self:
        """Add tools: everything that `ToolRegistry.register` takes.

        That is: functions declared with ``@tool``, objects whose methods are, objects with ``spec`` and ``execute``, and
        registries. Of a subset, the tools that it leaves out are known to be left out (``TOOL_NOT_PERMITTED``).

        Raises:
            DeclarationError: One of them is none of these.
        """
        self._contents.add(tools)
        return self

    def mount(self, executor: Mountable, *, prefix: str = "", max_waiting: int = DEFAULT_MAX_WAITING) -> Self:
        """Offer the tools of another executor: another engine, a child process, a server.

        ::

            app.mount(open_stdio(["carmy", "stdio", "files.py"]), prefix="fs.")

        Its catalog is read when the application is opened. Policies, retries, deadlines, turns and records of this
        application apply to its tools. It sees this application as its caller.

        Args:
            executor: One that is open; or what opens one, such as ``open_stdio(...)``, entered by `open` and left with it. An
                application that is opened more than once needs a function that gives it: ``lambda: open_stdio(...)``.
            prefix: What comes before the names of its tools here.
            max_waiting: Calls that may wait here for a turn with one of its tools.

        Raises:
            DeclarationError: It is no executor and opens none, or the prefix cannot begin a name.
        """
        self._mounts.append(Mount(executor, prefix, max_waiting))
        return self

    def openapi(
        self,
        source: object,
        *,
        client: object = None,
        asgi: object = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        effects: Mapping[str, Effect | str] | None = None,
        credentials: Mapping[str, str] | None = None,
        base_url: str | None = None,
        prefix: str = "",
        max_response_bytes: int | None = None,
    ) -> Self:
        """Offer the operations of an HTTP interface, which a document of OpenAPI 3.0 or 3.1 describes, as tools.

        ::

            app.openapi("https://api.example/openapi.json", include=["list*"], credentials={"key": key})
            app.openapi(fastapi_app)

        Args:
            source: The document, its path, its URL, or an application with a method ``openapi()``, such as one of FastAPI, which is
                then called in process.
            client: An ``httpx2.AsyncClient`` to send requests with; it stays open.
            asgi: The application in process that the document describes.
            include: Patterns of operation ids, names of tools, or ``GET /path``, with ``*``. Default: all.
            exclude: The same of operations to leave out.
            effects: By name, operation id or ``GET /path``. Default: ``read`` for GET, ``destructive`` for DELETE, else ``external_write``.
            credentials: By name of the security scheme; for ``basic``, ``user:password``.
            base_url: The address of the server. Default: the first one of the document.
            prefix: What comes before the names of the tools.
            max_response_bytes: Of one answer. Default: 4 MiB.

        Raises:
            DeclarationError: An argument has the wrong type. Problems of the document are reported by `check` and `open`.
            ModuleNotFoundError: The extra ``openapi`` is not installed.
        """
        try:
            package = importlib.import_module("carmy_openapi")
        except ModuleNotFoundError as missing:
            raise missing_extra("app.openapi", "openapi", missing) from None
        limit = {} if max_response_bytes is None else {"max_response_bytes": max_response_bytes}
        made: ToolSource = package.OpenApi(
            source,
            client=client,
            asgi=asgi,
            include=include,
            exclude=exclude,
            effects=effects,
            credentials=credentials,
            base_url=base_url,
            prefix=prefix,
            **limit,
        )
        self._sources.append(made)
        return self

    def state(self, value: object, as_type: Any = None) -> Self:
        """Give tools an object for their ``State[T]`` parameters.

        Args:
            value: The object. It is used as it is, by all calls at once.
            as_type: The exact ``T`` it is found under. Default: the object's own class.

        Raises:
            DeclarationError: There is state of this type already, or the object is not of it, or it makes or opens one.
        """
        self._state.add(value, as_type, self._owner)
        return self

    def provide(self, factory: Any, as_type: Any = None, *, scope: str = "app", enter: bool = True) -> Self:
        """Give tools a value for their ``State[T]`` parameters that is made when it is needed, and cleaned up afterwards.

        ::

            @asynccontextmanager
            async def pool(settings: State[DatabaseSettings]) -> AsyncIterator[Pool]:
                async with open_pool(settings.url) as pool:
                    yield pool

            def session(pool: State[Pool]) -> Iterator[Session]:
                with pool.session() as session, session.begin():
                    yield session

            app.provide(pool).provide(session, scope="execution")

        With ``scope="app"`` the value is made before transports listen, in order of need, and left in reverse order after the drain;
        `Settings.startup_timeout_secs` and `Settings.shutdown_timeout_secs` limit each. A failure at start is ``STATE_FAILED``,
        and what had been entered is left. A failure at the end is logged.

        With ``scope="execution"`` it is made for each execution of a tool that needs it, inside the deadline, and left with the
        outcome: a context manager sees the exception of a call that failed, was cancelled or timed out, or whose output is not valid.
        It cannot turn a failure into a success. After a cancel, it has the grace of the call for its end.

        Plain factories, and both ends of plain context managers, run in worker threads. For a plain tool they share the tool's
        thread; a thread that is abandoned at the deadline leaves its state by itself when it ends.

        Args:
            factory: A function or a generator function, plain or async; a class; or, for ``scope="app"``, a context manager. Its
                parameters are ``State[T]`` of others, or have defaults; with ``scope="execution"`` one can be `AgentContext`.
            as_type: The exact ``T`` the value is found under. Default: what the factory is annotated to return.
            scope: ``app`` or ``execution``.
            enter: Enter the value if it is a context manager; False to give it as it is.

        Raises:
            DeclarationError: It is no factory, or it names no type, or there is state of this type already.
        """
        provision = provision_of(factory, as_type, scope, self._owner, enters=enter, depth=1)
        self._state.provide(provision, self._owner)
        return self

    @contextlib.contextmanager
    def override(self, as_type: Any, value: object) -> Iterator[Self]:
        """Use another value for a ``State[T]`` in engines that are opened inside the block. For tests.

        A provided value is not made then.

        Args:
            as_type: The ``T``.
            value: The value in its place.

        Raises:
            DeclarationError: The application has no state of this type.
        """
        with self._state.override(as_type, value, self._owner):
            yield self

    def on_start(self, function: F) -> F:
        """Call a function, plain or async, when all state is there, before transports listen. In order of adding.

        A failure is ``STATE_FAILED``. `Settings.startup_timeout_secs` limits it.

        Args:
            function: Its parameters are ``State[T]``, or have defaults. A plain one runs in a worker thread.

        Raises:
            DeclarationError: It cannot be called so.
        """
        self._state.add_hook(function, self._owner, starts=True)
        return function

    def on_stop(self, function: F) -> F:
        """Call a function, plain or async, after the drain, before state is left. In reverse order of adding.

        It is called only if all functions of the start succeeded. A failure is logged. `Settings.shutdown_timeout_secs` limits it.

        Args:
            function: As for `on_start`.

        Raises:
            DeclarationError: It cannot be called so.
        """
        self._state.add_hook(function, self._owner, starts=False)
        return function

    def middleware(self, function: M) -> M:
        """Run a function around every call of a tool; outermost is the one that was added first.

        ::

            @app.middleware
            async def measured(call: ToolCall, proceed: Callable[[], Awaitable[Any]]) -> Any:
                with timer(call.spec.name):
                    return await proceed()

        It runs inside the deadline, after the reservation of the ``request_id``, and not for replays. See
        `carmy_engine.abc.Middleware`.

        Raises:
            DeclarationError: It is no async function of a call and the function that proceeds.
        """
        host_objects.check_middleware(function, self._owner)
        self._middleware.append(function)
        return function

    def policy(self, policy: protocols.Policy) -> Self:
        """Add a policy. They are asked in the order of adding, before the one for confirmations.

        Raises:
            DeclarationError: It is no policy.
        """
        host_objects.check_policy(policy, self._owner)
        self._policies.append(policy)
        return self

    def sink(self, sink: protocols.Sink) -> Self:
        """Add a receiver of audit records.

        Raises:
            DeclarationError: It is no sink; one whose ``record`` is async is none.
        """
        host_objects.check_sink(sink, self._owner)
        self._sinks.append(sink)
        return self

    def spans(self, tracer: Tracer | None = None) -> Self:
        """Make a span of OpenTelemetry for every execution. Without this there are none, and they cost nothing.

        Args:
            tracer: The tracer; None for the tracer ``carmy_engine`` of the global provider.

        Raises:
            DeclarationError: There are spans already, or OpenTelemetry is not installed.
        """
        try:
            from .._engine.spans import Spans  # noqa: PLC0415 - the only part that needs the extra `otel`
        except ModuleNotFoundError as missing:
            raise DeclarationError(
                f"spans need the package {missing.name!r}: pip install 'carmy-engine[otel]'"
            ) from None
        if self._make_pipeline is not Pipeline:
            raise DeclarationError(f"application {self.name!r} makes spans already")
        spans = Spans(tracer)
        self._make_pipeline = spans.pipeline
        return self.sink(spans)

    def metrics(self, meter: Meter | None = None) -> Self:
        """Export the metrics of the engine to OpenTelemetry. ``metrics.address`` serves them to Prometheus, with or without this.

        Args:
            meter: The meter; None for the meter ``carmy_engine`` of the global provider.

        Raises:
            DeclarationError: The metrics are exported already, or OpenTelemetry is not installed.
        """
        try:
            from .._telemetry.meter import MeterExport  # noqa: PLC0415 - needs the extra `otel`
        except ModuleNotFoundError as missing:
            raise DeclarationError(
                f"the export of metrics needs the package {missing.name!r}: pip install 'carmy-engine[otel]'"
            ) from None
        if self._meter_export is not None:
            raise DeclarationError(f"application {self.name!r} exports its metrics already")
        self._meter_export = MeterExport(meter)
        return self

    def store(self, store: protocols.IdempotencyStore | str) -> Self:
        """Keep the idempotency entries in `store`: an object, or a URL as in the configuration (``sqlite:PATH``).

        Raises:
            DeclarationError: It is not a store. (That a URL means nothing here is found out by `check` and `open`.)
        """
        if isinstance(store, str):
            changed = msgspec.structs.replace(self._given.store, url=store)
            self._given = msgspec.structs.replace(self._given, store=changed)
            self._store = None
        else:
            host_objects.check_store(store, self._owner)
            self._store = store
        return self

    @property
    def given_store(self) -> protocols.IdempotencyStore | None:
        """The store object that `store` was given; None when there is a URL, ``settings.store.url``."""
        return self._store

    @property
    def authenticator(self) -> protocols.Authenticator | None:
        """The argument of `authenticate`; None if there is none, also if the settings describe one."""
        return self._authenticator

    @property
    def has_authenticator(self) -> bool:
        """Callers over a network have to show credentials: to the authenticator of the program, or to that of the settings."""
        return self._authenticator is not None or is_configured(self.settings.auth)

    def authenticate(self, authenticator: protocols.Authenticator) -> Self:
        """Let `authenticator` turn credentials into trusted context; without one, and without one in the settings, all callers are anonymous.

        Raises:
            DeclarationError: There is one already, or it cannot be called with credentials.
        """
        host_objects.check_authenticator(authenticator, self._owner)
        if self._authenticator is not None:
            raise DeclarationError(
                f"application {self.name!r} has an authenticator already; combine the two in one function"
            )
        self._authenticator = authenticator
        return self

    def ready(self, name: str, check: ReadyCheck) -> Self:
        """Add a readiness check: a function, async or not, that raises or returns False while `name` is not ready.

        Raises:
            DeclarationError: There is a check of this name already, or it cannot be called without arguments.
        """
        host_objects.check_ready_check(check, self._owner)
        if name in self._ready_checks:
            raise DeclarationError(
                f"application {self.name!r} has a readiness check {name!r} already; choose another name"
            )
        self._ready_checks[name] = check
        return self

    def check(self) -> list[AgentError | ConfigurationError]:
        """Every problem that keeps `open` from starting; empty if there is none. Only `open` reads the catalogs of mounts."""
        found = [*self._build(self.settings)[2], *self._find_authenticator(self.settings)[1]]
        return [*found, *(problem for source in self._sources for problem in source.check())]

    @contextlib.asynccontextmanager
    async def open(
        self, *, settings: Settings | None = None, problems: Sequence[AgentError | ConfigurationError] = ()
    ) -> AsyncIterator[Engine]:
        """Open the application as an engine; leaving the block shuts the engine down.

        Args:
            settings: For this run, instead of the application's own.
            problems: Problems that the caller found; `StartupError` lists them with the application's own.

        Raises:
            StartupError: It cannot start. Lists every problem of its tools, state, store and mounts.
            ConfigurationError: The only problem is a setting.
            WrongLoopError: Another loop than trio runs here, or none.
        """
        require_trio("app.open", "open_app(app)")
        settings = self.settings if settings is None else settings
        tools, store, own = self._build(settings)
        authenticator, refused = self._find_authenticator(settings)
        policies = [*([RequireToolPermission()] if settings.auth.require_permissions else []), *self._policies]
        async with contextlib.AsyncExitStack() as stack:
            mounted, reads, unusable = await mounted_tools(self._mounts, stack)
            sourced, unreadable = await sourced_tools(self._sources, stack, settings.limits.max_output_bytes)
            outside: list[tuple[Mount | ToolSource, CompiledTool]] = [*mounted, *sourced]
            match [*own, *refused, *problems, *unusable, *unreadable, *self._contents.clashes(outside)]:
                case []:
                    pass
                case [ConfigurationError() as only]:
                    raise only
                case found:
                    raise StartupError(found)
            everything = [*tools, *(tool for _, tool in mounted)]
            needed = open_loop_if_needed(everything, self._backend, settings.limits.max_threads)
            loop = await stack.enter_async_context(needed)
            state = await stack.enter_async_context(
                self._state.open(settings, loop if self._backend == "asyncio" else None)
            )
            if self._state.is_provided:
                tools, _ = self._contents.compile_tools(state, settings.limits.max_output_bytes)
            resources, prompts, _ = self._contents.compile_reads(state, settings.limits.max_output_bytes)
            metrics: Metrics | None = None
            if self._meter_export is not None or settings.metrics.address is not None:
                metrics = Metrics()
                if self._meter_export is not None:
                    stack.enter_context(self._meter_export.exporting(metrics))
            async with open_engine(
                tools=[*tools, *(tool for _, tool in outside)],
                settings=settings,
                policies=policies,
                sinks=self._sinks,
                store=store(),
                authenticator=authenticator,
                ready_checks=self._ready_checks,
                withheld=self._contents.withheld,
                make_pipeline=self._make_pipeline,
                middleware=self._middleware,
                resources=[*resources, *(read for read in reads if isinstance(read, CompiledResource))],
                prompts=[*prompts, *(read for read in reads if isinstance(read, CompiledPrompt))],
                metrics=metrics,
                backend=self._backend,
                loop=loop,
            ) as engine:
                self._open.add(engine)
                try:
                    yield engine
                finally:
                    self._open.discard(engine)

    def asgi(self) -> AsgiApp:
        """This application for any ASGI server, such as uvicorn, granian or hypercorn, on asyncio or trio.

        ::

            api = App("shop").add(search).asgi()             # uvicorn shop:api

            web = FastAPI(lifespan=api.lifespan)              # or below a path of another application
            web.mount("/agents", api)

        The engine is opened and closed by the ASGI lifespan, or by ``lifespan`` of the returned object. Where the server sends none, the
        first request opens it, and it is closed with the event loop. On asyncio, the engine runs under trio in a thread of its own.

        The rules for ``Host``, ``Origin``, bodies and callers are those of `carmy serve`. Time limits of connections, framing and TLS are
        the server's.

        Raises:
            ConfigurationError: The package for HTTP is missing.
        """
        return make_asgi(self)

    def run(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run the command line of this application and exit: ``serve`` (default), ``tools``, ``call``, ``check`` ...

        Args:
            argv: The words after the program's name. Default: the process's own.

        Raises:
            SystemExit: Always; 0 for success, 1 for failure, 2 for a wrong command line.
        """
        # The command is built on App, and needs the extra `cli`, which no other use of an App does.
        from ..cli import run_app  # noqa: PLC0415

        if is_worker():
            raise DeclarationError(
                f"{self._owner} is run by its module; a worker process loads that too, so put run() below:"
                ' if __name__ == "__main__":'
            )

        run_app(self, argv)

    def _build(
        self, settings: Settings
    ) -> tuple[list[CompiledTool], Callable[[], protocols.IdempotencyStore], list[AgentError | ConfigurationError]]:
        """The tools, the factory of the store, and all problems."""
        tools, found = self._contents.compile_tools(self._state.by_type, settings.limits.max_output_bytes)
        found += self._contents.compile_reads(self._state.by_type, settings.limits.max_output_bytes)[2]
        problems: list[AgentError | ConfigurationError] = [*found, *self._state.problems()]
        given = self._store
        if given is not None:
            ignored = self.deployment.without_effect(given, "store", ("store.",), self.name)
            return tools, lambda: given, [*problems, *ignored]
        try:
            return tools, find_store(settings.store), problems
        except ConfigurationError as problem:
            return tools, MemoryStore, [*problems, problem]  # never called

    def _find_authenticator(
        self, settings: Settings
    ) -> tuple[protocols.Authenticator | None, list[ConfigurationError]]:
        """The authenticator, and the problems of the settings about it."""
        given = self._authenticator
        if given is not None:
            ignored = self.deployment.without_effect(
                given, "authenticator", ("auth.tokens_file", "auth.jwt."), self.name
            )
            return given, [*ignored]
        try:
            return configured_authenticator(settings.auth), []
        except ConfigurationError as problem:
            return None, [problem]
