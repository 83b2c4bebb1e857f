"""The commands themselves, and how they end."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, TypeVar

import cyclopts
import msgspec
import trio
from cyclopts import Parameter

from .. import _life, _plugins
from .._app import App
from .._config import checked_option
from .._crash import leaves
from .._model.request import ExecutionRequest, OnRunning
from .._model.result import ExecutionStatus
from .._settings import LogFormat, LogLevel, Settings
from .._version import __version__
from ..codec import answer_body, check_json, decode
from ..errors import AgentError, CarmyError, ConfigurationError, StartupError
from ..stores.memory import MemoryStore
from . import _remote, _worker
from ._books import Books
from ._executions import Executions
from ._identity import Identity, Permission, Principal, local_identity, refuse_identity
from ._logs import configure_logging
from ._outcome import FAILURE, INTERRUPTED, SUCCESS, USAGE, Failure, ReaderGone, UsageError
from ._problems import outside_problems
from ._stdout import claimed_stdout
from ._supervisor import supervise
from ._target import is_target, load_target, one_word_too_many, refuse_nested_run

T = TypeVar("T")

Target = Annotated[str | None, Parameter(help="file.py, file.py:app or module:app. Default: 'app' of carmy.toml.")]
Address = Annotated[
    str | None, Parameter(help="Where to listen: HOST:PORT (port 0 picks a free one), unix:PATH or fd://N.")
]
Server = Annotated[Literal["hypercorn", "native"] | None, Parameter(help="The HTTP front end.")]
Http = Annotated[bool, Parameter(negative="", help="Over HTTP, at /mcp, instead of standard input and output.")]
Processes = Annotated[int | None, Parameter(help="How many processes serve; each has an engine of its own.")]
Dev = Annotated[bool, Parameter(negative="", help="Development: tell callers what a tool's unexpected errors were.")]
Level = Annotated[LogLevel | None, Parameter(name="--log-level", help="The least severe level that is logged.")]
Format = Annotated[LogFormat | None, Parameter(name="--log-format", help="text, or json: one object on each line.")]
Words = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,  # for the '-'
        help="The target (unless --url is given), the tool's name, and its arguments as JSON ('-': from standard input).",
    ),
]
RequestId = Annotated[str | None, Parameter(help="The idempotency identity: the same id gives the same answer.")]
Timeout = Annotated[float | None, Parameter(help="Seconds that the call may take; can only shorten the usual limit.")]
OnRunningOption = Annotated[
    OnRunning, Parameter(name="on-running", help="If the same request is running: be refused, or wait for its answer.")
]
Url = Annotated[str | None, Parameter(help="Call a running server instead, such as http://127.0.0.1:3000.")]
Token = Annotated[str | None, Parameter(help="For a server that wants credentials: sent as Authorization: Bearer.")]

_KNOWN_TRANSPORTS = {
    "stdio": "Serve the process that started it, over standard input and output.",
    "ws": "Serve over WebSocket.",
    "mcp": "Serve clients of MCP, over standard input and output or, with --http, over HTTP.",
}
"""Ours, and what their commands do; they are named even where their packages are missing."""
_LEAVE_STDOUT_ALONE = frozenset({"http", "ws", "mcp+http"})
"""Transports that write nothing to standard output. Any other one claims it for itself."""


def run(app: App | None, argv: Sequence[str]) -> int:
    """Run one command line.

    Args:
        app: What to run the commands on; None: the command line names it.
        argv: The words after the program's name.

    Returns:
        The exit code.
    """
    try:
        refuse_nested_run()
        parser = _parser(app)
        code: int | None = parser(list(argv), exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.UnusedCliTokensError as error:
        told = one_word_too_many(argv, (error.unused_tokens or ["?"])[0], [*_parser(app)], targets=app is None)
        _say(f"{told} (--help lists the commands)")
        return USAGE
    except (cyclopts.CycloptsError, UsageError) as error:
        _say(f"{error} (--help explains the commands)")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except ReaderGone:
        return FAILURE
    except (CarmyError, Failure) as error:
        _say(str(error))
        return FAILURE
    return SUCCESS if code is None else code  # None: it was --help or --version


def _parser(app: App | None) -> cyclopts.App:
    name = "carmy" if app is None else app.name
    target = "" if app is not None else "[TARGET] "
    parser = cyclopts.App(
        name=name,
        usage=f"Usage: {name} COMMAND {target}[OPTIONS]",
        help="Serve the tools of an application, look at them, call them. Without a command: serve.",
        version=__version__,
        help_format="plaintext",
    )
    commands = _Commands(app)
    serve = commands.fitting(commands.serve)
    parser.default(serve)
    parser.command(serve, name="serve")
    for transport in dict.fromkeys([*_KNOWN_TRANSPORTS, *entry_points(group=_plugins.TRANSPORTS).names]):
        if transport != "http" and "+" not in transport:
            parser.command(commands.fitting(commands.transport(transport)), name=transport)
    parser.command(commands.fitting(commands.tools), name="tools")
    parser.command(commands.call, name="call", usage=f"Usage: {name} call {target}TOOL [JSON] [OPTIONS]")
    parser.command(commands.fitting(commands.check), name="check")
    books = Books(app)
    parser.command(commands.fitting(books.audit), name="audit")
    executions = Executions(books)
    group = cyclopts.App(name="executions", help="Look at executions that are in doubt, and settle them.")
    group.command(commands.fitting(executions.list), name="list")
    group.command(executions.show, name="show", usage=f"Usage: {name} executions show {target}EXECUTION [OPTIONS]")
    group.command(
        executions.settle, name="settle", usage=f"Usage: {name} executions settle {target}EXECUTION [OPTIONS]"
    )
    parser.command(group)
    return parser


class _Commands:
    """The commands over one application, or over the one that each command line names."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    def serve(
        self,
        target: Target = None,
        /,
        *,
        address: Address = None,
        server: Server = None,
        processes: Processes = None,
        dev: Dev = False,
        level: Level = None,
        format: Format = None,  # noqa: A002 - the option is --log-format
    ) -> int:
        """Serve over HTTP."""
        options = _options(address=address, server=server, processes=processes, dev=dev, level=level, format=format)
        return self._serve("http", target, options, refused="serve")

    def transport(self, name: str) -> Callable[..., int]:
        """The command that serves through another transport."""

        def command(
            target: Target = None,
            /,
            *,
            address: Address = None,
            dev: Dev = False,
            level: Level = None,
            format: Format = None,  # noqa: A002
        ) -> int:
            return self._serve(
                name, target, _options(address=address, dev=dev, level=level, format=format), refused=name
            )

        def child(
            target: Target = None,
            /,
            *,
            principal: Principal = None,
            permission: Permission = None,
            dev: Dev = False,
            level: Level = None,
            format: Format = None,  # noqa: A002
        ) -> int:
            identity = local_identity(principal, permission)
            return self._serve(name, target, _options(dev=dev, level=level, format=format), identity)

        def either(
            target: Target = None,
            /,
            *,
            http: Http = False,
            address: Address = None,
            server: Server = None,
            principal: Principal = None,
            permission: Permission = None,
            dev: Dev = False,
            level: Level = None,
            format: Format = None,  # noqa: A002
        ) -> int:
            if not http and (address is not None or server is not None):
                raise UsageError(f"--address and --server of {name} go with --http")
            options = _options(address=address, server=server, dev=dev, level=level, format=format)
            identity = local_identity(principal, permission)
            if http:
                return self._serve(f"{name}+http", target, options, identity, refused=f"{name} --http")
            return self._serve(name, target, options, identity)

        if name == "stdio":
            found: Callable[..., int] = child
        else:
            found = either if f"{name}+http" in entry_points(group=_plugins.TRANSPORTS).names else command
        found.__doc__ = _KNOWN_TRANSPORTS.get(name, f"Serve over {name}.")
        return found

    def tools(self, target: Target = None, /) -> int:
        """Print the catalog as JSON."""
        with claimed_stdout() as out:
            app = self._load(target)

            async def catalog() -> bytes:
                async with app.open() as engine:
                    return (await engine.catalog()).document

            out(_trio(catalog) + b"\n")
        return SUCCESS

    def call(
        self,
        *words: Words,
        request_id: RequestId = None,
        timeout: Timeout = None,
        on_running: OnRunningOption = "refuse",
        url: Url = None,
        token: Token = None,
        principal: Principal = None,
        permission: Permission = None,
    ) -> int:
        """Run one tool and print the answer; exit code 0 when it completed."""
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise UsageError("--timeout must be a number of seconds above 0")
        if token is not None and url is None:
            raise UsageError("--token is for a running server: give its --url as well")
        identity = local_identity(principal, permission)
        if url is not None:
            refuse_identity(identity, "call --url")
        with claimed_stdout() as out:
            target, tool, arguments = self._call_words(list(words), remote=url is not None)
            request = ExecutionRequest(
                tool=tool,
                arguments=None if arguments is None else msgspec.Raw(arguments),
                request_id=request_id,
                timeout_ms=None if timeout is None else timeout * 1000,
                on_running=on_running,
            )
            if url is None:
                body, completed = self._call_here(target, request, identity)
            else:
                body, completed = _remote.call(url, request, token)
            out(body + b"\n")
        return SUCCESS if completed else FAILURE

    def check(self, target: Target = None, /) -> int:
        """Build the application and report everything that keeps it from starting."""
        with claimed_stdout() as out:
            try:
                app = self._load(target)
            except CarmyError as error:  # a tool or a setting so wrong that there is no application to check
                out(f"{error}\n".encode())
                return FAILURE
            for name, value, source in app.deployment.differences(app.settings):
                _say(f"{name} = {value} ({source})")
            problems = [*app.check(), *_trio(lambda: outside_problems(app, _served(), app.settings))]
            for problem in problems:
                out(f"{problem}\n".encode())
            if problems:
                return FAILURE
            _say("no problems found")
        return SUCCESS

    def fitting(self, command: Callable[..., int]) -> Callable[..., int]:
        """The command as the parser should see it: over one application, it has no target."""
        if self._app is None:
            return command

        @functools.wraps(command)
        def without_target(**options: Any) -> int:
            return command(None, **options)

        _, *others = inspect.signature(command).parameters.values()
        without_target.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined] # what `inspect` looks for
        without_target.__annotations__ = {
            name: kind for name, kind in command.__annotations__.items() if name != "target"
        }
        return without_target

    def _load(self, target: str | None, options: Mapping[str, Any] | None = None, process: int | None = None) -> App:
        app = load_target(self._app, target, options)
        configure_logging(app.settings.log, process)
        return app

    def _serve(
        self,
        name: str,
        target: str | None,
        options: Mapping[str, Any],
        identity: Identity | None = None,
        *,
        refused: str | None = None,
    ) -> int:
        """Serve through one transport.

        Args:
            name: The transport's.
            target: As on the command line.
            options: Settings from the command line.
            identity: Of local callers; None: from the environment.
            refused: The command, if its callers are not local.
        """
        worker = _worker.inherited()
        if identity is None:
            identity = local_identity(None, None)
        if refused is not None:
            refuse_identity(identity, refused)
        with contextlib.ExitStack() as claimed:
            transport = _plugins.find(_plugins.TRANSPORTS, name)
            if (prepare := getattr(transport, "prepare", None)) is not None:
                prepare()  # takes standard input and output for itself, before anything of the application's uses them
            else:
                claimed.enter_context(claimed_stdout())
            app = self._load(target, options, None if worker is None else os.getpid())
            settings = app.settings
            if identity != Identity():
                transport = functools.partial(transport, principal=identity.principal, permissions=identity.permissions)
            if name not in _LEAVE_STDOUT_ALONE:
                claimed.close()
            if worker is None and name == "http" and settings.http.processes > 1:
                return _supervise(transport, app, settings)
            return _serve(name, transport, app, settings, worker)

    def _call_words(self, words: list[str], *, remote: bool) -> tuple[str | None, str, bytes | None]:
        """The target, the tool and the arguments; the last are None when there are none."""
        target = None
        if self._app is None and words and is_target(words[0]):
            target = words.pop(0)
            if remote:
                raise UsageError("--url calls a running server, so the command takes no target")
        for word in words:
            if word.startswith("--"):
                raise UsageError(f"call has no option {word}")
        if not 1 <= len(words) <= 2:
            raise UsageError("call needs the name of a tool, and at most one JSON text after it")
        if len(words) == 1:
            return target, words[0], None
        arguments = sys.stdin.buffer.read() if words[1] == "-" else words[1].encode("utf-8", "surrogateescape")
        try:
            check_json(arguments)
            decode(arguments)
        except AgentError as error:
            raise UsageError(f"the arguments are not valid JSON: {(error.details or {}).get('reason')}") from None
        return target, words[0], arguments

    def _call_here(self, target: str | None, request: ExecutionRequest, identity: Identity) -> tuple[bytes, bool]:
        app = self._load(target)
        if request.request_id is not None and _forgets(app):
            _say(
                "the store memory: ends with this command, so the same --request-id runs the tool again next time:"
                " set store.url to one that lasts, such as sqlite:PATH"
            )

        async def execute() -> tuple[bytes, bool]:
            async with app.open() as engine:
                with trio.CancelScope() as scope, _life.stop_signals(scope.cancel):
                    caller = engine.bind(principal=identity.principal, permissions=identity.permissions)
                    result = await caller.execute(request)
                    return answer_body(result), result.status is ExecutionStatus.COMPLETED
            raise KeyboardInterrupt

        return _trio(execute)


def _served() -> object:
    """What ``serve`` serves with; None where its packages are not installed, so that it is not checked."""
    try:
        return _plugins.find(_plugins.TRANSPORTS, "http")
    except ConfigurationError as missing:
        _say(f"whether the application could be served over HTTP was not checked: {missing}")
        return None


def _serve(name: str, transport: _life.Transport, app: App, settings: Settings, worker: _worker.Worker | None) -> int:
    said: list[str] = []
    tell: Callable[[str], None] = _say
    if worker is not None:
        settings = worker.adapted(settings)
        tell = worker.announce

    def announce(line: str) -> None:
        said.append(line)
        tell(line)

    async def main() -> None:
        problems = await outside_problems(app, transport, settings)
        async with app.open(settings=settings, problems=problems) as engine:
            # A terminal or a service manager may signal a worker, and its supervisor does as well: that is one signal.
            await _life.serve(engine, transport, announce=announce, patient=worker is not None)

    try:
        _trio(main)
    except OSError as error:
        if said:
            raise  # it was listening, so this is something else
        raise Failure(f"cannot serve {name} on {settings.address}: {error.strerror or error}") from None
    return SUCCESS


def _supervise(transport: _life.Transport, app: App, settings: Settings) -> int:
    """Serve with several processes, each of which runs this very command line."""
    if _forgets(app):
        _say(
            "the store memory: is one for each process, so a retry that meets another one runs again:"
            " set store.url to one that they share, such as sqlite:PATH"
        )
    command = [sys.executable, *sys.orig_argv[1:]]
    authenticated = app.authenticator is not None

    async def main() -> int:
        if problems := [*app.check(), *await outside_problems(app, transport, settings)]:
            raise StartupError(problems)
        return await supervise(command, transport, settings, authenticated=authenticated, say=_say)

    return _trio(main)


def _forgets(app: App) -> bool:
    """Whether the store of the application lives in this process alone."""
    return (
        app.settings.store.url.startswith("memory:")
        if app.given_store is None
        else isinstance(app.given_store, MemoryStore)
    )


def _options(
    *,
    address: str | None = None,
    server: str | None = None,
    processes: int | None = None,
    dev: bool = False,
    level: str | None = None,
    format: str | None = None,  # noqa: A002
) -> dict[str, Any]:
    """The settings that options of a command give, by dotted name.

    Raises:
        UsageError: A value does not fit.
    """
    given = {
        "address": address,
        "http.server": server,
        "http.processes": processes,
        "expose_errors": dev or None,
        "log.level": level,
        "log.format": format,
    }
    try:
        return {name: checked_option(name, value) for name, value in given.items() if value is not None}
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def _trio(main: Callable[[], Awaitable[T]]) -> T:
    """Run the loop; an error that nurseries have wrapped in groups, and that explains itself, comes out alone."""
    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        found = list(leaves(group))
        for leaf in found:
            if isinstance(leaf, KeyboardInterrupt):
                raise leaf from None
        if found and all(isinstance(leaf, OSError | CarmyError) for leaf in found):
            raise found[0] from None
        raise


def _say(text: str) -> None:
    if sys.stderr is None:  # it was closed when the process started
        return
    with contextlib.suppress(OSError):  # it has lost its reader
        sys.stderr.write(f"carmy: {text}\n")
        sys.stderr.flush()
