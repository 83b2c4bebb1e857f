"""The public door."""

from __future__ import annotations

import inspect
import tomllib
import types
from pathlib import Path

import carmy_engine

ROOT = Path(__file__).parents[2]


def test_all_is_exactly_what_is_public() -> None:
    """Every public name of the package is in __all__, sorted, and nothing else is."""
    # Submodules that something has imported are attributes too; only those that are offered count.
    public = {
        name
        for name, value in vars(carmy_engine).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert public | {"__version__", "abc", "codec"} == set(carmy_engine.__all__)
    # Constants first, as ruff sorts them.
    assert list(carmy_engine.__all__) == sorted(carmy_engine.__all__, key=lambda name: (not name.isupper(), name))


def test_every_public_name_is_documented() -> None:
    """Classes, functions and modules at the door have a docstring of their own."""
    undocumented = [
        name
        for name in carmy_engine.__all__
        if isinstance(value := getattr(carmy_engine, name), type | types.FunctionType | types.ModuleType)
        and not inspect.getdoc(value)
    ]
    assert undocumented == []


def test_the_map_names_what_exists() -> None:
    """Every module that the package's map mentions is there."""
    assert carmy_engine.__doc__ is not None
    for line in carmy_engine.__doc__.splitlines():
        for word in line.split("`")[1::2]:
            if word.startswith("_") or word in ("abc", "codec", "errors"):
                assert hasattr(carmy_engine, word), word


def test_every_package_is_typed() -> None:
    """Each package of the distribution has the mark by which type checkers use its annotations."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert [name for name in packages if not (ROOT / name / "py.typed").is_file()] == []
