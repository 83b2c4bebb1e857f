"""The commands that serve: one for each transport."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from .._app import plugins, serve
from .._app.app import App
from .._config.settings import LogFormat, LogLevel, Settings
from .._config.sources import checked_option
from .._model.errors import ConfigurationError, StartupError
from . import _worker
from ._identity import Identity, Permission, Principal, local_identity, refuse_identity
from ._loop import run_loop
from ._notices import say
from ._outcome import SUCCESS, Failure, UsageError
from ._problems import forgets, outside_problems
from ._stdout import claimed_stdout
from ._supervisor import supervise
from ._target import Target, load_target

Address = Annotated[
    str | None, Parameter(help="Where to listen: HOST:PORT (port 0 picks a free one), unix:PATH or fd://N.")
]
Server = Annotated[Literal["hypercorn", "native"] | None, Parameter(help="The HTTP front end.")]
Http = Annotated[bool, Parameter(negative="", help="Over HTTP, at /mcp, instead of standard input and output.")]
Processes = Annotated[int | None, Parameter(help="How many processes serve; each has an engine of its own.")]
Dev = Annotated[bool, Parameter(negative="", help="Development: tell callers what a tool's unexpected errors were.")]
Level = Annotated[LogLevel | None, Parameter(name="--log-level", help="The least severe level that is logged.")]
Format = Annotated[LogFormat | None, Parameter(name="--log-format", help="text, or json: one object on each line.")]

KNOWN_TRANSPORTS = {
    "stdio": "Serve the process that started it, over standard input and output.",
    "ws": "Serve over WebSocket.",
    "mcp": "Serve clients of MCP, over standard input and output or, with --http, over HTTP.",
}
"""Ours, and what their commands do; they are named even where their packages are missing."""

_LEAVE_STDOUT_ALONE = frozenset({"http", "ws", "mcp+http"})
"""Transports that write nothing to standard output. Any other one claims it for itself."""


class Servers:
    """The commands, over one application, or over the one that each command line names."""

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
            found = either if f"{name}+http" in entry_points(group=plugins.TRANSPORTS).names else command
        found.__doc__ = KNOWN_TRANSPORTS.get(name, f"Serve over {name}.")
        return found

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
            transport = plugins.find(plugins.TRANSPORTS, name)
            if (prepare := getattr(transport, "prepare", None)) is not None:
                prepare()  # takes standard input and output for itself, before anything of the application's uses them
            else:
                claimed.enter_context(claimed_stdout(is_needed=False))
            app = load_target(self._app, target, options, None if worker is None else os.getpid())
            settings = app.settings
            if identity != Identity():
                transport = functools.partial(transport, principal=identity.principal, permissions=identity.permissions)
            if name not in _LEAVE_STDOUT_ALONE:
                claimed.close()
            if worker is None and name == "http" and settings.http.processes > 1:
                return _supervise(transport, app, settings)
            return _serve(name, transport, app, settings, worker)


def _serve(name: str, transport: serve.Transport, app: App, settings: Settings, worker: _worker.Worker | None) -> int:
    said: list[str] = []
    tell: Callable[[str], None] = say
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
            await serve.serve(engine, transport, announce=announce, patient=worker is not None)

    try:
        run_loop(main)
    except OSError as error:
        if said:
            raise  # it was listening, so this is something else
        raise Failure(f"cannot serve {name} on {settings.address}: {error.strerror or error}") from None
    serve.limit_exit()
    return SUCCESS


def _supervise(transport: serve.Transport, app: App, settings: Settings) -> int:
    """Serve with several processes, each of which runs this very command line."""
    if forgets(app):
        say(
            "the store memory: is one for each process, so a retry that meets another one runs again:"
            " set store.url to one that they share, such as sqlite:PATH"
        )
    command = [sys.executable, *sys.orig_argv[1:]]
    authenticated = app.authenticator is not None

    async def main() -> int:
        if problems := [*app.check(), *await outside_problems(app, transport, settings)]:
            raise StartupError(problems)
        return await supervise(command, transport, settings, authenticated=authenticated, say=say)

    return run_loop(main)


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
