"""What docstrings say about a tool: its description and the text of each argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import docstring_parser

_ARGS = re.compile(r"(Args|Arguments|Parameters|Params):\s*")


def description_of(function: Callable[..., Any]) -> str:
    """The docstring without its ``Args:`` section; empty when there is none."""
    kept: list[str] = []
    inside = False
    for line in _docstring(function).splitlines():
        if _ARGS.fullmatch(line):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
        if not inside:
            kept.append(line)
    return "\n".join(kept).strip()


def arguments_of(documented: object) -> dict[str, str]:
    """The texts of the ``Args:`` section (``Attributes:`` for a class), by name."""
    text = _docstring(documented)
    if not text:
        return {}
    parsed = docstring_parser.parse(text, style=docstring_parser.DocstringStyle.GOOGLE)
    return {item.arg_name: " ".join(item.description.split()) for item in parsed.params if item.description}


def _docstring(documented: object) -> str:
    return inspect.getdoc(documented) or ""
