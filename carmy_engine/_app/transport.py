"""A transport as the command serves it: the function that serves, and what its command offers and checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeAlias, cast

from .._config.settings import Settings
from .._engine.engine import Engine
from .._model.errors import ConfigurationError

P = ParamSpec("P")

Option: TypeAlias = Literal["address", "http.server", "http.processes"]
"""A setting that a transport's command has an option for."""


class Listening(Protocol):
    """A socket that listens."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Listen(Protocol):
    """Opens the listening sockets that several processes share."""

    def __call__(self, settings: Settings, *, authenticated: bool) -> Awaitable[Sequence[Listening]]:
        """Listen at the address of the settings."""
        ...


class Problems(Protocol):
    """Finds reasons why a transport cannot serve."""

    def __call__(self, settings: Settings, *, authenticated: bool) -> Awaitable[list[ConfigurationError]]:
        """Return all of them; change nothing."""
        ...


@dataclasses.dataclass(frozen=True)
class Transport(Generic[P]):
    """A transport: called, it serves an engine. Entry points of the group ``carmy.transports`` name one each.

    Attributes:
        serve: ``async def serve(engine, *, task_status)``. It serves until ``engine.stopped`` or until cancelled, and calls
            ``task_status.started`` with one line that ends in the address, once it accepts calls.
        help: One sentence for ``--help``.
        options: The settings that the command has an option for.
        has_local_callers: Callers have started the process. The command then has ``--principal`` and ``--permission``,
            and `serve` takes the keyword arguments `principal` and `permissions`.
        claims_stdout: The protocol uses standard output. Otherwise everything printed there goes to standard error.
        prepare: Called before the application is loaded. It imports packages, and with `claims_stdout` takes standard input
            and output for the protocol. Raises `ConfigurationError` if a package is missing.
        require: Imports the packages that serving with the given settings needs. Raises `ConfigurationError` if one is
            missing.
        problems: Checks settings and network. ``carmy check`` and the start report what it returns.
        listen: Opens the sockets for several processes (``--processes``). None: one process serves.
        over_http: The same protocol over HTTP. The command then has the option ``--http``.
    """

    serve: Callable[Concatenate[Engine, P], Awaitable[None]]
    help: str = ""
    options: tuple[Option, ...] = ("address",)
    has_local_callers: bool = False
    claims_stdout: bool = False
    prepare: Callable[[], object] | None = None
    require: Callable[[Settings], object] | None = None
    problems: Problems | None = None
    listen: Listen | None = None
    over_http: Transport[...] | None = None

    def __call__(self, engine: Engine, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[None]:
        """Serve an engine; see `serve`."""
        return self.serve(engine, *args, **kwargs)


def as_transport(offered: Any, name: str) -> Transport[...]:
    """The transport that an entry point names; a plain function becomes one with the defaults.

    Raises:
        ConfigurationError: It cannot be called.
    """
    if isinstance(offered, Transport):
        return offered
    if not callable(offered):
        raise ConfigurationError(f"the transport {name!r} is a {type(offered).__name__} object, and cannot be called")
    return Transport(cast("Callable[..., Awaitable[None]]", offered), help=f"Serve over {name}.")
