"""Every regular expression of ours that sees a stranger's bytes takes work in proportion to their length.

The work is counted, not timed (`steps`): texts of n and of 2n characters are made for each repetition in a pattern, and
end in what does not fit. The patterns are those that the modules of the packages hold, so that a new one is among them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.hostile.steps import MOST, Steps

PACKAGES = ("carmy_engine", "carmy_http", "carmy_mcp", "carmy_stdio", "carmy_websocket", "carmy_frames", "carmy_net")

TRUSTED = {
    "carmy_engine.cli": "words of the command line, files of the host",
    "carmy_engine._config.address": "the host's settings",
    "carmy_engine._config.sources": "the host's settings",
    "carmy_engine._schema.docstrings": "docstrings of the program",
    "carmy_engine._tools.declaration": "names of tools, at start",
    "carmy_engine._gateway.mount": "names of tools, at start",
    "carmy_engine.providers": "schemas of the program, answers of the host's own model",
    "carmy_engine._tools.tool_objects": "schemas of the program",
}
"""Modules whose patterns never see what a stranger sent, and what they see."""

SIZE = 40
ALLOWANCE = 300
"""Steps that do not depend on the length, and bounded repetitions that are not used up by the shorter text."""


def _modules() -> Iterator[ModuleType]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            # Only `make test-agents` installs the frameworks of the integrations, which read answers of the host's own model.
            if not found.name.endswith("__main__") and not found.name.startswith("carmy_engine.integrations."):
                yield importlib.import_module(found.name)


def _mode(source: str, name: str) -> str:
    """How a module uses one of its patterns: the use that takes the most."""
    used = set(re.findall(rf"\b{re.escape(name)}\.(\w+)\(", source))
    if used & {"finditer", "findall", "sub", "subn", "split"}:
        return "finditer"
    return next((mode for mode in ("search", "fullmatch", "match") if mode in used), "search")


def _patterns() -> Iterator[Any]:
    for module in _modules():
        if any(module.__name__ == name or module.__name__.startswith(f"{name}.") for name in TRUSTED):
            continue
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                mode = _mode(inspect.getsource(module), name)
                yield pytest.param(value, mode, id=f"{module.__name__}.{name}")


def is_linear(short: int, long: int) -> bool:
    """Whether these are the steps over a text and over one of twice its length."""
    return long <= min(2 * short + ALLOWANCE, MOST)


def worst(pattern: re.Pattern[Any], mode: str) -> tuple[int, int, str]:
    """The steps over a text of n and of 2n, for the text where the second is the largest."""
    steps = Steps(pattern, mode)
    pairs = zip(steps.texts(SIZE), steps.texts(2 * SIZE), strict=True)
    return max(((steps.over(short), steps.over(long), long) for short, long in pairs), key=lambda pair: pair[1])


@pytest.mark.parametrize(("pattern", "mode"), list(_patterns()))
def test_twice_the_text_takes_at_most_twice_the_steps(pattern: re.Pattern[Any], mode: str) -> None:
    """A pattern's work is linear in the length of the text, whatever the text."""
    short, long, text = worst(pattern, mode)
    assert is_linear(short, long), text


@pytest.mark.parametrize(
    ("pattern", "mode"),
    [
        (rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*(?:[^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?[ \t]*", "fullmatch"),
        (rb"([0-9A-Fa-f]{1,20})(?:[ \t]*;[^\n]*?)?[ \t]*\r\n", "match"),
        (rb"[a-z]+:[ \t]*([^\x00]*?)[ \t]*", "fullmatch"),
        (r"(a*)*b", "match"),
        (r"[ ]*=", "finditer"),
        (r'"(?:[^"\\]|\\.)*+"', "finditer"),
    ],
)
def test_the_count_finds_patterns_that_are_not_linear(pattern: Any, mode: str) -> None:
    """Patterns like those that once held the loop are found: the first were those of trailers and of chunk extensions."""
    short, long, _ = worst(re.compile(pattern), mode)
    assert not is_linear(short, long)
