"""Permissions that grant tools: by name, by a pattern of names, and by effect."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

from .._model.spec import ToolSpec

_TOOL, _EFFECT = "tool:", "effect:"


def grants_tool(permissions: frozenset[str], spec: ToolSpec) -> bool:
    """True if the permissions include ``tool:NAME``, a ``tool:PATTERN`` that fits the name, or ``effect:EFFECT`` of the tool.

    In a pattern, ``*`` stands for any characters.
    """
    if _TOOL + spec.name in permissions or _EFFECT + spec.effect.value in permissions:
        return True
    pattern = _pattern(permissions)
    return pattern is not None and pattern.match(spec.name) is not None


@lru_cache(1024)
def _pattern(permissions: frozenset[str]) -> re.Pattern[str] | None:
    """All patterns of the permissions in one; None if there are none."""
    patterns = [name.removeprefix(_TOOL) for name in permissions if name.startswith(_TOOL) and "*" in name]
    if not patterns:
        return None
    # `fnmatch` makes expressions that take linear time. Its other special characters are none here.
    escaped = (pattern.replace("[", "[[]").replace("?", "[?]") for pattern in sorted(patterns))
    return re.compile("|".join(map(fnmatch.translate, escaped)))
