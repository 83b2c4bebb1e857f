"""The commands that serve: one for each installed transport."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import trio
from cyclopts import Parameter

from .._app import plugins, serve
from .._app.app import App
from .._app.transport import Listen, Transport
from .._config.settings import LogFormat, LogLevel, Settings
from .._config.sources import checked_option
from .._engine.engine import Engine
from .._model.error_boundary import raise_single
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

DEFAULT = "http"
"""The transport of the command ``serve``."""

Address = Annotated[
    str | None, Parameter(help="Where to listen: HOST:PORT (port 0 picks a free one), unix:PATH or fd://N.")
]
Server = Annotated[
    Literal["auto", "hypercorn", "native"] | None,
    Parameter(help="The HTTP front end; auto: hypercorn with TLS or HTTP/2, else native."),
]
Http = Annotated[bool, Parameter(negative="", help="Over HTTP instead of standard input and output.")]
Processes = Annotated[int | None, Parameter(help="How many processes serve; each has an engine of its own.")]
Dev = Annotated[bool, Parameter(negative="", help="Development: send callers the unexpected errors of tools.")]
Level = Annotated[LogLevel | None, Parameter(name="--log-level", help="The least severe level that is logged.")]
Format = Annotated[LogFormat | None, Parameter(name="--log-format", help="text, or json: one object on each line.")]

_OPTIONS: Mapping[str, tuple[str, Any]] = {
    "address": ("address", Address),
    "http.server": ("server", Server),
    "http.processes": ("processes", Processes),
}
"""The parameter of a command for each setting that a transport may have as an option."""

_COMMON: Mapping[str, tuple[str, Any]] = {
    "expose_errors": ("dev", Dev),
    "log.level": ("level", Level),
    "log.format": ("format", Format),
}
"""The same for settings that every command has as an option."""


class ServeCommands:
    """The commands, over one application, or over the one that each command line names."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    def command(self, name: str) -> Callable[..., int]:
        """The command that serves through a transport, with the options that the transport describes.

        Raises:
            ConfigurationError: The transport cannot be loaded.
        """
        transport = plugins.find_transport(name)
        word = "serve" if name == DEFAULT else name

        def command(target: str | None = None, /, *, http: bool = False, **given: Any) -> int:
            chosen = transport.over_http if http and transport.over_http is not None else transport
            foreign = [_OPTIONS[setting][0] for setting in _options_of(transport) if setting not in chosen.options]
            if any(given.get(option) is not None for option in foreign):
                names = " and ".join(f"--{option}" for option in foreign)
                raise UsageError(f"{names} of {word} {'goes' if len(foreign) == 1 else 'go'} with --http")
            identity = local_identity(given.pop("principal", None), given.pop("permission", None))
            if not chosen.has_local_callers:
                refuse_identity(identity, f"{word} --http" if http else word)
            return self._serve(f"{name} over HTTP" if http else name, chosen, target, _settings(given), identity)

        parameters = list(_parameters(transport, has_target=self._app is None))
        command.__doc__ = transport.help
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what `inspect` looks for
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    def _serve(
        self, name: str, transport: Transport[...], target: str | None, options: Mapping[str, Any], identity: Identity
    ) -> int:
        worker = _worker.inherited()
        with contextlib.ExitStack() as claimed:
            if transport.prepare is not None:
                transport.prepare()
            if transport.prepare is None or not transport.claims_stdout:
                claimed.enter_context(claimed_stdout(is_needed=False))
            app = load_target(self._app, target, options, None if worker is None else os.getpid())
            settings = app.settings
            if transport.claims_stdout:
                claimed.close()
            if worker is None and transport.listen is not None and settings.http.processes > 1:
                return _supervise(transport, transport.listen, app, settings)
            return _serve(name, transport, app, settings, worker, identity)


def _options_of(transport: Transport[...]) -> Sequence[str]:
    """The settings that the command has options for, in the order of `_OPTIONS`."""
    over_http = () if transport.over_http is None else transport.over_http.options
    return [setting for setting in _OPTIONS if setting in (*transport.options, *over_http)]


def _parameters(transport: Transport[...], *, has_target: bool) -> Iterator[inspect.Parameter]:
    """The parameters of the command of a transport."""
    if has_target:
        yield inspect.Parameter("target", inspect.Parameter.POSITIONAL_ONLY, default=None, annotation=Target)
    named: list[tuple[str, Any]] = []
    if transport.over_http is not None:
        named.append(("http", Http))
    named += [_OPTIONS[setting] for setting in _options_of(transport)]
    if transport.has_local_callers:
        named += [("principal", Principal), ("permission", Permission)]
    for name, annotation in [*named, *_COMMON.values()]:
        default = False if annotation in (Http, Dev) else None
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _serve(
    name: str,
    transport: Transport[...],
    app: App,
    settings: Settings,
    worker: _worker.Worker | None,
    identity: Identity,
) -> int:
    said: list[str] = []
    tell: Callable[[str], None] = say
    if worker is not None:
        settings = worker.adapted(settings)
        tell = worker.announce

    def announce(line: str) -> None:
        said.append(line)
        tell(line)

    serving: serve.Serve = transport
    if transport.has_local_callers:
        serving = functools.partial(transport, principal=identity.principal, permissions=identity.permissions)

    async def main() -> None:
        problems = await outside_problems(app, transport, settings)
        async with app.open(settings=settings, problems=problems) as engine, _serving_metrics(engine, worker):
            # A terminal or a service manager may signal a worker, and its supervisor does as well: that is one signal.
            await serve.serve(engine, serving, announce=announce, patient=worker is not None)

    try:
        run_loop(main)
    except OSError as error:
        if said:
            raise  # it was listening, so this is something else
        raise Failure(f"cannot serve {name} on {settings.address}: {error.strerror or error}") from None
    serve.limit_exit(settings)
    return SUCCESS


@contextlib.asynccontextmanager
async def _serving_metrics(engine: Engine, worker: _worker.Worker | None) -> AsyncIterator[None]:
    """Serve the metrics for the length of a block, if the settings have an address for them."""
    if engine.settings.metrics.address is None:
        yield
        return
    service = functools.partial(plugins.find_metrics_service(), engine)
    try:
        async with trio.open_nursery() as nursery:
            line: str = await nursery.start(service)
            if worker is None:
                say(line)
            yield
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


def _supervise(transport: Transport[...], listen: Listen, app: App, settings: Settings) -> int:
    """Serve with several processes, each of which runs this very command line."""
    if forgets(app):
        say(
            "the store memory: is one for each process, so a retry that meets another one runs again:"
            " set store.url to one that they share, such as sqlite:PATH"
        )
    command = [sys.executable, *sys.orig_argv[1:]]
    authenticated = app.has_authenticator

    async def main() -> int:
        if problems := [*app.check(), *await outside_problems(app, transport, settings)]:
            raise StartupError(problems)
        return await supervise(command, listen, settings, authenticated=authenticated, say=say)

    return run_loop(main)


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that options of a command give, by dotted name.

    Raises:
        UsageError: A value does not fit.
    """
    values = {setting: given.get(option) for setting, (option, _) in {**_OPTIONS, **_COMMON}.items()}
    values["expose_errors"] = given.get("dev") or None  # without the option, other sources decide
    try:
        return {name: checked_option(name, value) for name, value in values.items() if value is not None}
    except ConfigurationError as error:
        raise UsageError(str(error)) from None
