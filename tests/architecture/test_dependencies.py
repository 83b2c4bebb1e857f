"""The dependencies of each package: what it imports is what `pyproject.toml` declares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

EXTRAS = {
    "carmy_engine/_app/app.py": ["otel"],
    "carmy_engine/_auth/jose.py": ["auth"],
    "carmy_engine/_engine/spans.py": ["otel"],
    "carmy_engine/_telemetry/meter.py": ["otel"],
    "carmy_engine/cli": ["cli"],
    "carmy_engine/integrations/langchain.py": ["langchain", "langgraph"],
    "carmy_engine/integrations/llama_index.py": ["llama-index"],
    "carmy_engine/integrations/openai_agents.py": ["openai-agents"],
    "carmy_engine/integrations/pydantic_ai.py": ["pydantic-ai"],
    "carmy_engine/stores/postgres": ["postgres"],
    "carmy_engine/stores/sqlite": ["sqlite"],
    "transports/carmy_command": ["cli"],
    "transports/carmy_http": ["http"],
    "transports/carmy_http/client": ["http-client"],
    "transports/carmy_mcp": ["mcp"],
    "transports/carmy_openapi": ["openapi"],
    "transports/carmy_websocket": ["websocket"],
}
"""The extras that a file or folder may rely on, beside the dependencies of the project."""

FRAMEWORKS = {
    "agents": ["openai-agents"],
    "llama_index": ["llama-index-core"],
    "pydantic_ai": ["pydantic-ai-slim"],
}
"""Distributions of agent frameworks by the names that they are imported by. They are not installed here."""

OPTIONAL = {"langchain", "langgraph", "llama-index", "openai-agents", "pydantic-ai"}
"""Extras for one agent framework each: `all` leaves them out, since a program uses one."""

USES_INTERNALS = ["trio", "pydantic", "hypercorn", "trio-websocket"]
"""Libraries whose internals are used: a new minor version may change them."""


def normal(name: str) -> str:
    """A name of a distribution, as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(*extras: str) -> dict[str, str]:
    """Name and version specifier of the dependencies, and of the named extras."""
    listed = [*PROJECT["dependencies"]]
    for extra in extras:
        listed += PROJECT["optional-dependencies"][extra]
    found = (re.fullmatch(r"([A-Za-z0-9._-]+)(.*)", line) for line in listed if not line.startswith("carmy-engine["))
    return {normal(match[1]): match[2] for match in found if match is not None}


def imports() -> Iterator[tuple[Path, str]]:
    """Every top-level name that a source file imports, but for the standard library and the project's own packages."""
    folders = [ROOT / "carmy_engine", *(ROOT / "transports").glob("carmy_*")]
    own = {folder.name for folder in folders}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                for name in {name.partition(".")[0] for name in names} - own - sys.stdlib_module_names:
                    yield path.relative_to(ROOT), name


def declared_for(path: Path) -> dict[str, str]:
    """What the dependencies of the project and the extras of a file declare."""
    extras = [extra for place, names in EXTRAS.items() if path.is_relative_to(place) for extra in names]
    return requirements(*extras)


def test_every_import_is_declared() -> None:
    """Each imported library is a dependency, or in the extra of the package that imports it."""
    distributions = {**packages_distributions(), **FRAMEWORKS}
    missing = {
        f"{path}: {name}"
        for path, name in imports()
        if declared_for(path).keys().isdisjoint(map(normal, distributions.get(name, [name])))
    }
    assert sorted(missing) == []


@pytest.mark.parametrize("library", USES_INTERNALS)
def test_internals_are_bounded_above(library: str) -> None:
    """A library whose internals are used has an upper bound: below the next minor version."""
    specifier = requirements(*PROJECT["optional-dependencies"])[library]
    assert re.search(r"==[0-9.]+\.\*|<[0-9]", specifier), specifier


def test_all_names_every_extra() -> None:
    """The extra `all` installs every other extra, but for those of agent frameworks."""
    (listed,) = PROJECT["optional-dependencies"]["all"]
    assert set(listed.removeprefix("carmy-engine[").removesuffix("]").split(",")) == (
        PROJECT["optional-dependencies"].keys() - {"all"} - OPTIONAL
    )
