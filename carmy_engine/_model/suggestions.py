"""A name that is not known: which one may have been meant."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Sequence

from .errors import AgentError

MAX_NAME = 100
"""Characters of a name that a caller made up which are compared and repeated. No name of ours is as long."""

_MOST_LOOKED_AT = 2000
_MOST_COMPARED = 20
"""Known names looked at, and compared letter by letter, for a suggestion: a misspelt name costs a few milliseconds at most with
thousands of them, since no permission is needed to send one."""


def shortened(name: str) -> str:
    """A name that a caller made up, short enough to repeat."""
    return name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"


def closest_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are most like one that is not, the nearest first; often none is."""
    return difflib.get_close_matches(name[:MAX_NAME], nearby(name, known), most)


def nearby(name: str, known: Iterable[str]) -> list[str]:
    """The few known names that share most pairs of letters with one that is not: comparing letter by letter takes longer."""
    name, known = name[:MAX_NAME], [*known]
    if len(known) > _MOST_LOOKED_AT:
        known = [one for one in known if one[:1] == name[:1] and abs(len(one) - len(name)) < 4][:_MOST_LOOKED_AT]
    if len(known) <= _MOST_COMPARED:
        return known
    pairs = {name[at : at + 2] for at in range(len(name) - 1)}
    return heapq.nlargest(_MOST_COMPARED, known, key=lambda one: sum(map(one.__contains__, pairs)))


def unknown_name_message(what: str, name: str, known: Sequence[str], kind: str) -> str:
    """Say that a name is not known, and which one may have been meant, or which ones there are.

    Args:
        what: What is not known, as the sentence begins.
        name: Its name.
        known: The names that it could have.
        kind: What these are, such as ``fields``; they are listed when none is near.
    """
    near = closest_names(name, known)
    if near:
        return f"{what} is not known; did you mean '{near[0]}'?"
    listed = ", ".join(f"'{one}'" for one in known)
    return f"{what} is not known; " + (f"the {kind} are {listed}" if listed else f"there are no {kind}")


def unknown_tool(name: str, known: Sequence[str]) -> AgentError:
    """``TOOL_NOT_FOUND``, suggesting near names.

    Args:
        name: What was asked for.
        known: The names of the tools that the caller can see, all or those of `nearby`.
    """
    near = closest_names(name, known, 3)
    if near:
        told = f"there is no tool of that name; did you mean {' or '.join(near)}?"
        return AgentError.standard("TOOL_NOT_FOUND", told, details={"near": near})
    advice = "Look in the catalog, which has the names of all tools."
    return AgentError.standard("TOOL_NOT_FOUND", "there is no tool of that name", suggested_action=advice)
