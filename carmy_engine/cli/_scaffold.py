"""``carmy new`` and ``carmy add tool``: a project that runs, and a tool in it."""

from __future__ import annotations

import keyword
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from .._version import __version__
from ._notices import say
from ._outcome import SUCCESS, Failure, UsageError

TEMPLATES = Path(__file__).with_name("templates")
"""The files of new projects. ``common`` is in all of them. ``{{name}}`` in a file, and the folder ``PACKAGE``, are replaced."""

Template = Literal["minimal", "service", "mcp", "graph"]

ProjectName = Annotated[str, Parameter(help="The name of the project, and of the folder that is made for it.")]
ToolName = Annotated[str, Parameter(help="The name of the tool: a name of Python, such as ship_order.")]
TemplateName = Annotated[
    Template,
    Parameter(
        help="minimal: one tool. service: state, a durable store, retries and a confirmation. mcp: with a resource and a prompt."
        " graph: a graph that waits for a person."
    ),
]

_PROJECT = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
_SUFFIX = ".tmpl"
"""Of the files of templates: tools for Python do not read them as code of this package."""

_EXTRAS = {"minimal": "http,cli", "service": "http,cli,sqlite", "mcp": "http,cli,mcp", "graph": "http,cli,sqlite"}
_TITLES = {
    "minimal": "A tool for agents.",
    "service": "Notes for agents, with retries that survive a restart.",
    "mcp": "A server for clients of MCP.",
    "graph": "A graph that calls tools and waits for a person.",
}
_MORE = {
    "minimal": "",
    "service": "\nMetrics are at <http://127.0.0.1:9464/metrics>.\n",
    "mcp": "\n`carmy install claude-desktop` adds the server to a client; other clients start `carmy mcp`.\n",
    "graph": '\n`carmy graph run {{package}}:graph letter-1 \'{"name": "Ana"}\'` runs the graph, and `carmy graph resume` goes on with an answer.\n',
}


def new(name: ProjectName, /, *, template: TemplateName = "minimal") -> int:
    """Make a project: an application with a tool, tests, settings, a Dockerfile and a README."""
    if not _PROJECT.fullmatch(name) or keyword.iskeyword(_package(name)):
        raise UsageError(f"{name!r} is no name for a project: use letters, digits and hyphens, such as my-shop")
    folder = Path(name)
    if folder.exists():
        raise Failure(f"{folder} exists already; choose another name, or remove it")
    values = {
        "name": name,
        "package": _package(name),
        "title": _TITLES[template],
        "extras": _EXTRAS[template],
        "version": __version__,
        "more": _MORE[template],
        "try": """greet '{"name": "Ana"}'""",
    }
    files = {
        path.relative_to(part): path for part in (TEMPLATES / "common", TEMPLATES / template) for path in _files(part)
    }
    for relative, source in files.items():
        target = folder / Path(*(_name(part, values) for part in relative.parts))
        _write(target, _filled(source, values))
    say(f"made {folder}: {len(files)} files")
    say(f"next: cd {folder}, then carmy call {values['try']}, or carmy serve")
    return SUCCESS


def add_tool(name: ToolName, /) -> int:
    """Add a tool to the project in this folder: a module, its test, and its line in the list of tools."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise UsageError(f"{name!r} is no name for a tool: use a name of Python, such as ship_order")
    package = _package_here()
    listing = Path(package, "tools", "__init__.py")
    module, test = listing.with_name(f"{name}.py"), Path("tests", f"test_{name}.py")
    for path in (module, test):
        if path.exists():
            raise Failure(f"{path} exists already; choose another name")
    listed = _with_tool(listing.read_text(encoding="utf-8"), package, name) if listing.is_file() else None
    if listed is None:
        raise Failure(
            f"{listing} has no list TOOLS = [...] with a line for each tool, as `carmy new` makes it; add the tool by hand"
        )
    values = {"tool": name, "package": package}
    _write(module, _filled(TEMPLATES / "tool.py.tmpl", values))
    _write(test, _filled(TEMPLATES / "test_tool.py.tmpl", values))
    listing.write_text(listed, encoding="utf-8")
    say(f"made {module} and {test}, and listed the tool in {listing}")
    return SUCCESS


def _package(name: str) -> str:
    return name.replace("-", "_").lower()


def _package_here() -> str:
    """The package of the application that the settings of this folder name.

    Raises:
        Failure: There is none.
    """
    try:
        target = tomllib.loads(Path("carmy.toml").read_text(encoding="utf-8")).get("app", "")
    except (OSError, ValueError) as error:
        raise Failure(
            f"carmy.toml of this folder cannot be read ({error}); run this in a project of `carmy new`"
        ) from None
    package = str(target).partition(":")[0]
    if not package.isidentifier() or not Path(package).is_dir():
        raise Failure(f'carmy.toml names app = "{target}", which is no package in this folder; add the tool by hand')
    return package


def _with_tool(listing: str, package: str, name: str) -> str | None:
    """The text of the list of tools with one more; None if it has another form."""
    lines = listing.splitlines()
    starts = f"from {package}.tools."
    imports = [number for number, line in enumerate(lines) if line.startswith(starts)]
    try:
        first = lines.index("TOOLS = [")
        last = lines.index("]", first)
    except ValueError:
        return None
    tools = sorted([*lines[first + 1 : last], f"    {name},"])
    line = f"{starts}{name} import {name}"
    head = [line for number, line in enumerate(lines[:first]) if number not in imports]
    at = imports[0] if imports else first
    imported = sorted([*(lines[number] for number in imports), line])
    return "\n".join([*head[:at], *imported, *head[at:], "TOOLS = [", *tools, *lines[last:]]) + "\n"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"*{_SUFFIX}"))


def _name(part: str, values: Mapping[str, str]) -> str:
    return values["package"] if part == "PACKAGE" else part.removesuffix(_SUFFIX)


def _filled(source: Path, values: Mapping[str, str]) -> str:
    text = source.read_text(encoding="utf-8")
    for _ in range(2):  # a value may name another one
        for key, value in values.items():
            text = text.replace("{{" + key + "}}", value)
    return text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
