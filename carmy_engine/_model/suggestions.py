"""Suggestions ("Did you mean …?") for unknown names."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Sequence

from .errors import AgentError

MAX_NAME = 100
"""Characters of an unknown name that are compared and repeated. All known names are shorter."""

_MOST_LOOKED_AT = 2000
_MOST_COMPARED = 20
"""Known names scanned, and compared letter by letter, for one suggestion. They bound its cost to a few milliseconds, since any
caller can send unknown names."""


def shortened(name: str) -> str:
    """An unknown name, cut to a length that a message can repeat."""
    return name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"


def closest_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are most similar to an unknown one, the nearest first; often there is none."""
    return difflib.get_close_matches(name[:MAX_NAME], nearby(name, known), most)


def nearby(name: str, known: Iterable[str]) -> list[str]:
    """The few known names that share most letter pairs with an unknown one: a cheap filter before the full comparison."""
    name, known = name[:MAX_NAME], [*known]
    if len(known) > _MOST_LOOKED_AT:
        known = [one for one in known if one[:1] == name[:1] and abs(len(one) - len(name)) < 4][:_MOST_LOOKED_AT]
    if len(known) <= _MOST_COMPARED:
        return known
    pairs = {name[at : at + 2] for at in range(len(name) - 1)}
    return heapq.nlargest(_MOST_COMPARED, known, key=lambda one: sum(map(one.__contains__, pairs)))


def unknown_name_message(what: str, name: str, known: Sequence[str], kind: str) -> str:
    """Return the message for an unknown name, with the nearest known name or the list of all.

    Args:
        what: The unknown item, as the start of the sentence.
        name: Its name.
        known: The known names.
        kind: The noun of these, such as ``fields``; they are listed when none is near.
    """
    near = closest_names(name, known)
    if near:
        return f"{what} is not known; did you mean '{near[0]}'?"
    listed = ", ".join(f"'{one}'" for one in known)
    return f"{what} is not known; " + (f"the {kind} are {listed}" if listed else f"there are no {kind}")


def unknown_tool(name: str, known: Sequence[str]) -> AgentError:
    """``TOOL_NOT_FOUND``, with suggestions.

    Args:
        name: The requested name.
        known: The tools visible to the caller, all or those of `nearby`.
    """
    near = closest_names(name, known, 3)
    if near:
        told = f"there is no tool of that name; did you mean {' or '.join(near)}?"
        return AgentError.standard("TOOL_NOT_FOUND", told, details={"near": near})
    advice = "Look in the catalog, which has the names of all tools."
    return AgentError.standard("TOOL_NOT_FOUND", "there is no tool of that name", suggested_action=advice)
