"""``carmy install``: an application in the configuration of a client of MCP."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from .._app.app import App
from .._config.sources import DEFAULT_FILE, FILE_VARIABLE
from ._client_files import Client, ClientFile, client_file, read_text, replace_file, with_entry
from ._notices import say
from ._outcome import SUCCESS, Failure, UsageError
from ._stdout import claimed_stdout
from ._target import Target, absolute_target, load_target

ClientName = Annotated[Client, Parameter(help="The client.")]
Name = Annotated[str | None, Parameter(help="The name of the server in the client. Default: that of the application.")]
Env = Annotated[
    list[str] | None,
    Parameter(negative="", help="A variable of the environment of the server, KEY=VALUE; may be repeated."),
]
Print = Annotated[bool, Parameter(name="--print", negative="", help="Print the difference and write nothing.")]
Remove = Annotated[bool, Parameter(negative="", help="Remove the server from the configuration.")]
Project = Annotated[
    bool, Parameter(negative="", help="In the configuration of the working directory, instead of the user's.")
]

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class Install:
    """The command, over one application, or over the one that each command line names."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    @property
    def command(self) -> Callable[..., int]:
        """The command as the parser should see it: over one application, it has no target."""
        return self.install if self._app is None else self.install_own

    def install(
        self,
        client: ClientName,
        target: Target = None,
        /,
        *,
        name: Name = None,
        env: Env = None,
        print_only: Print = False,
        remove: Remove = False,
        project: Project = False,
    ) -> int:
        """Add the application to the configuration of a client of MCP, after printing the difference."""
        return self._install(client, target, name, env, print_only=print_only, remove=remove, project=project)

    def install_own(
        self,
        client: ClientName,
        /,
        *,
        name: Name = None,
        env: Env = None,
        print_only: Print = False,
        remove: Remove = False,
        project: Project = False,
    ) -> int:
        """Add this application to the configuration of a client of MCP, after printing the difference."""
        return self._install(client, None, name, env, print_only=print_only, remove=remove, project=project)

    def _install(
        self,
        client: Client,
        target: str | None,
        name: str | None,
        env: list[str] | None,
        *,
        print_only: bool,
        remove: bool,
        project: bool,
    ) -> int:
        file = client_file(
            client,
            project=project,
            platform=sys.platform,
            environ=os.environ,
            home=Path.home(),
            directory=Path.cwd(),
        )
        given = _variables(env or [])
        with claimed_stdout() as out:
            entry: dict[str, Any] | None = None
            if not remove or name is None:
                app = load_target(self._app, target)
                name = _UNSAFE.sub("-", app.name).strip("-") if name is None else name
                if not remove:
                    entry = _entry(self._command(target, app), given, file)
            if not name or not name.isprintable():
                raise UsageError("--name needs a name that is not empty")
            try:
                before = read_text(file.path)
            except Failure as problem:
                if entry is None:
                    raise
                raise Failure(f"{problem}. Add this to {file.section!r} by hand:\n{_shown(name, entry)}") from None
            after = with_entry(before, file.section, name, entry, file.path)
            out(_difference(file.path, before, after).encode())
            if after == before:
                say(f"{file.path} needs no change")
            elif not print_only:
                backup = replace_file(file.path, before, after)
                kept = "" if backup is None else f"; the former text is in {backup}"
                say(f"{file.path} is written{kept}. Restart {client} to use it")
        return SUCCESS

    def _command(self, target: str | None, app: App) -> tuple[list[str], dict[str, str]]:
        """The command line that serves the application from any directory, and the variables that it needs.

        Raises:
            Failure: The interpreter, or the program, has no path.
        """
        if not sys.executable:
            raise Failure("the path of the interpreter is not known")
        interpreter = os.path.abspath(sys.executable)  # links stay: a virtual environment is one
        if self._app is not None:
            program = os.path.abspath(sys.argv[0])
            if not os.path.isfile(program):
                raise Failure("the program that calls run() is no file; use: carmy install CLIENT TARGET")
            return [interpreter, program, "mcp"], _settings()
        wanted = app.deployment.values.get("app") if target is None else target
        found, directory = absolute_target(str(wanted))
        variables = _settings()
        if directory is not None:
            variables["PYTHONPATH"] = directory
        return [interpreter, "-m", "carmy_command", "mcp", found], variables


def _settings() -> dict[str, str]:
    """The variable that names the settings file in use, which another working directory has not."""
    path = Path(os.environ.get(FILE_VARIABLE) or DEFAULT_FILE)
    return {FILE_VARIABLE: str(path.absolute())} if path.is_file() else {}


def _variables(given: list[str]) -> dict[str, str]:
    """The options ``--env``.

    Raises:
        UsageError: One of them is no KEY=VALUE.
    """
    found: dict[str, str] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--env needs KEY=VALUE, not {key!r}")
        found[key] = value
    return found


def _entry(command: tuple[list[str], dict[str, str]], given: Mapping[str, str], file: ClientFile) -> dict[str, Any]:
    words, variables = command
    made: dict[str, Any] = {"type": "stdio"} if file.has_type else {}
    made |= {"command": words[0], "args": words[1:]}
    variables = {**variables, **given}
    return {**made, "env": variables} if variables else made


def _shown(name: str, entry: Mapping[str, Any]) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(entry, ensure_ascii=False, indent=2)}"


def _difference(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{path} (now)", f"{path} (then)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
