"""The commands themselves, and how they end."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import cyclopts

from .._app import plugins
from .._app.app import App
from .._app.transport import Transport
from .._config.settings import Settings
from .._model.errors import CarmyError, ConfigurationError
from .._model.suggestions import closest_names
from .._version import __version__
from . import _scaffold as scaffold
from ._calls import Calls
from ._confirmations import ConfirmationCommands
from ._executions import Executions
from ._graphs import Graphs
from ._install import Install
from ._loop import run_loop
from ._notices import say
from ._outcome import FAILURE, INTERRUPTED, SUCCESS, USAGE, Failure, ReaderGone, UsageError
from ._problems import outside_problems
from ._serving import DEFAULT, ServeCommands
from ._stdout import claimed_stdout, help_console
from ._store_commands import StoreCommands
from ._target import NoTargetError, Target, load_target, one_word_too_many, refuse_nested_run
from ._tokens import Tokens


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
        if list(argv) == ["--version"]:
            return _print_version()
        parser = _parser(app, argv)
    except ReaderGone:
        return FAILURE
    except (CarmyError, Failure) as error:
        say(str(error))
        return FAILURE
    try:
        code: int | None = parser(list(argv), exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.UnusedCliTokensError as error:
        told = one_word_too_many(argv, (error.unused_tokens or ["?"])[0], [*parser], targets=app is None)
        say(f"{told} (--help lists the commands)")
        return USAGE
    except NoTargetError as error:
        near = closest_names(error.word, [*parser])
        say(f"{error}; did you mean the command {near[0]}?" if near else f"{error} (--help explains the commands)")
        return USAGE
    except (cyclopts.CycloptsError, UsageError) as error:
        say(f"{error} (--help explains the commands)")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except ReaderGone:
        return FAILURE
    except (CarmyError, Failure) as error:
        say(str(error))
        return FAILURE
    return SUCCESS if code is None else code  # None: it was --help or --version


def _print_version() -> int:
    """Print the version without cyclopts, whose way loads rich: that takes as long as everything else here."""
    with claimed_stdout() as out:
        out(f"{__version__}\n".encode())
    return SUCCESS


def _parser(app: App | None, argv: Sequence[str]) -> cyclopts.App:
    """The parser. Of the transports it loads the one that the command line names, or all to print their help.

    Raises:
        ConfigurationError: The transport that the command line names cannot be loaded.
    """
    prints_help = not {"--help", "-h", "--version"}.isdisjoint(argv)
    name = "carmy" if app is None else app.name
    target = "" if app is not None else "[TARGET] "
    parser = cyclopts.App(
        name=name,
        usage=f"Usage: {name} COMMAND {target}[OPTIONS]",
        help="Serve the tools of an application, look at them, call them. Without a command: serve.",
        version=__version__,
        console=help_console() if prints_help else None,
        help_format="plaintext",
    )
    commands = _Commands(app)
    transports = {"serve": DEFAULT, **{other: other for other in plugins.transport_names() if other != DEFAULT}}
    word = argv[0] if argv else ""
    parser.command(commands.fitting(commands.tools), name="tools")
    parser.command(Calls(app).call, name="call", usage=f"Usage: {name} call {target}TOOL [JSON] [OPTIONS]")
    parser.command(commands.fitting(commands.check), name="check")
    install = Install(app)
    parser.command(install.command, name="install", usage=f"Usage: {name} install CLIENT {target}[OPTIONS]")
    store_commands = StoreCommands(app)
    parser.command(commands.fitting(store_commands.audit), name="audit")
    executions = Executions(store_commands)
    group = cyclopts.App(name="executions", help="Look at executions that are in doubt, and settle them.")
    group.command(commands.fitting(executions.list), name="list")
    group.command(executions.show, name="show", usage=f"Usage: {name} executions show {target}EXECUTION [OPTIONS]")
    group.command(
        executions.settle, name="settle", usage=f"Usage: {name} executions settle {target}EXECUTION [OPTIONS]"
    )
    parser.command(group)
    graphs = Graphs(app)
    group = cyclopts.App(name="graph", help="Draw a graph, run it on a thread, resume it, list its checkpoints.")
    of_graph = "GRAPH" if app is not None else "TARGET:GRAPH"
    group.command(graphs.show, name="show")
    group.command(graphs.run, name="run", usage=f"Usage: {name} graph run {of_graph} THREAD [JSON] [OPTIONS]")
    group.command(graphs.resume, name="resume", usage=f"Usage: {name} graph resume {of_graph} THREAD [OPTIONS]")
    group.command(graphs.history, name="history", usage=f"Usage: {name} graph history {of_graph} THREAD [OPTIONS]")
    parser.command(group)
    confirmations = ConfirmationCommands(store_commands)
    group = cyclopts.App(name="confirmations", help="Look at calls that wait for a person, approve or deny them.")
    group.command(commands.fitting(confirmations.list), name="list")
    for answer in (confirmations.approve, confirmations.deny):
        word_and_id = f"{answer.__name__} {target}CONFIRMATION"
        group.command(answer, usage=f"Usage: {name} confirmations {word_and_id} [OPTIONS]")
    parser.command(group)
    tokens = Tokens(app)
    group = cyclopts.App(
        name="token", help="Make, list and revoke the tokens of callers, in the file auth.tokens_file."
    )
    group.command(tokens.new, name="new")
    group.command(tokens.list, name="list")
    group.command(tokens.revoke, name="revoke", usage=f"Usage: {name} token revoke ID... [OPTIONS]")
    parser.command(group)
    if app is None:
        parser.command(scaffold.new, name="new", usage=f"Usage: {name} new NAME [OPTIONS]")
        group = cyclopts.App(name="add", help="Add a part to the project in this folder.")
        group.command(scaffold.add_tool, name="tool", usage=f"Usage: {name} add tool NAME")
        parser.command(group)
    is_serve = word.startswith("-") or word not in [*parser, *transports]
    for command, transport in transports.items():
        is_wanted = command == word or (is_serve and command == "serve")
        parser.command(_serving(app, transport, is_wanted=is_wanted, is_shown=is_serve and prints_help), name=command)
    parser.default(parser["serve"].default_command)
    return parser


def _serving(app: App | None, transport: str, *, is_wanted: bool, is_shown: bool) -> Callable[..., int]:
    """The command of a transport; if it is neither wanted nor shown, a stand-in that holds its name.

    Raises:
        ConfigurationError: The transport is wanted and cannot be loaded.
    """

    def stand_in() -> int:
        return FAILURE

    if not (is_wanted or is_shown):
        return stand_in
    try:
        return ServeCommands(app).command(transport)
    except ConfigurationError as problem:
        if is_wanted:
            raise
        stand_in.__doc__ = str(problem)
        return stand_in


class _Commands:
    """The commands over one application, or over the one that each command line names."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    def tools(self, target: Target = None, /) -> int:
        """Print the catalog as JSON."""
        with claimed_stdout() as out:
            app = load_target(self._app, target)

            async def catalog() -> bytes:
                async with app.open() as engine:
                    return (await engine.catalog()).document

            out(run_loop(catalog) + b"\n")
        return SUCCESS

    def check(self, target: Target = None, /) -> int:
        """Build the application and report everything that keeps it from starting."""
        with claimed_stdout() as out:
            try:
                app = load_target(self._app, target)
            except CarmyError as error:  # a tool or a setting so wrong that there is no application to check
                out(f"{error}\n".encode())
                return FAILURE
            for name, value, source in app.deployment.differences(app.settings):
                say(f"{name} = {value} ({source})")
            problems = [*app.check(), *run_loop(lambda: outside_problems(app, _served(app.settings), app.settings))]
            for problem in problems:
                out(f"{problem}\n".encode())
            if problems:
                return FAILURE
            say("no problems found")
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


def _served(settings: Settings) -> Transport[...] | None:
    """The transport of ``serve``; None, and a line for people, if one of its packages is missing."""
    try:
        transport = plugins.find_transport(DEFAULT)
        if transport.require is not None:
            transport.require(settings)
        return transport
    except ConfigurationError as missing:
        say(f"whether the application could be served over HTTP was not checked: {missing}")
        return None
