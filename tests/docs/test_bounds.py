"""The table of bounds: every bound is in it, with the default that the code has."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator

import msgspec
import pytest

from carmy_engine import Settings
from carmy_engine.stores.postgres import PostgresLimits
from carmy_engine.stores.sqlite import SqliteLimits
from carmy_http import HttpClientLimits
from carmy_mcp import McpClientLimits
from carmy_stdio import StdioClientLimits
from carmy_websocket import WebSocketClientLimits

from .pages import REPOSITORY

ROW = re.compile(r"^\| `([\w.]+)` \|([^|]*)\| (.+) \|$", re.MULTILINE)
UNIT = re.compile(r"_(secs|days|bytes)$")

LIMITS: list[type[msgspec.Struct]] = [
    HttpClientLimits,
    WebSocketClientLimits,
    StdioClientLimits,
    McpClientLimits,
    SqliteLimits,
    PostgresLimits,
]


def settings(struct: msgspec.Struct, path: str = "") -> Iterator[str]:
    """The dotted names of all settings."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from settings(value, f"{path}{name}.")
        else:
            yield path + name


def rows(heading: str) -> dict[str, str]:
    """The names and defaults in the table below a heading."""
    page = (REPOSITORY / "docs/configuration.md").read_text()
    section = re.split(r"\n##+ ", page.partition(f"# {heading}\n")[2])[0]
    found = ROW.findall(section)
    assert len({name for name, _, _ in found}) == len(found)
    return {name: default.strip("` ") for name, default, _ in found}


def test_every_setting_is_in_one_table() -> None:
    """A setting is a row of the table of keys, or, if it is a bound, of the table of bounds."""
    keys, bounds = rows("Keys"), rows("Bounds")
    own = {name for name in bounds if not name.startswith(tuple(kind.__name__ for kind in LIMITS))}
    assert keys.keys() & own == set()
    assert keys.keys() | own == set(settings(Settings()))
    assert {name for name in keys if UNIT.search(name) or ".max_" in name} == set()


@pytest.mark.parametrize("name", [name for name in rows("Bounds") if name[0].islower()])
def test_defaults_of_settings(name: str) -> None:
    """The default of a bound in the table is that of the settings; two depend on the store."""
    value, default = operator.attrgetter(name)(Settings()), rows("Bounds")[name]
    if name in {"store.max_entries", "store.max_bytes"}:
        assert value is None
        assert "in memory" in default
    else:
        assert default == ("none" if value is None else f"{value:.10g}")


@pytest.mark.parametrize("kind", LIMITS, ids=lambda kind: kind.__name__)
def test_every_limit_is_in_the_table(kind: type[msgspec.Struct]) -> None:
    """The table has every field of the limits that programs pass, with its default."""
    table = {name.partition(".")[2]: text for name, text in rows("Bounds").items() if name.startswith(kind.__name__)}
    assert table == {name: f"{getattr(kind(), name):.10g}" for name in kind.__struct_fields__}


@pytest.mark.parametrize("name", rows("Fixed bounds"))
def test_fixed_bounds(name: str) -> None:
    """A constant in the table of fixed bounds has that value wherever a module of the packages assigns it."""
    assigned = re.compile(rf"^{name} = (.+)$", re.MULTILINE)
    found = {
        float(eval(value, {}))  # of our own source
        for folder in ("carmy_engine", "transports")
        for path in (REPOSITORY / folder).rglob("*.py")
        for value in assigned.findall(path.read_text())
    }
    assert found == {float(rows("Fixed bounds")[name])}
