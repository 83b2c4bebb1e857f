"""Tool names within a provider's alphabet and length, mapped one to one and back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

_DIGEST = 8
"""Hexadecimal digits that keep two names apart which would otherwise become one."""


class NameRule(NamedTuple):
    """What a provider takes as a name.

    Attributes:
        first: The first character, as the inside of a character class of a regular expression.
        rest: All others.
        limit: Most characters.
    """

    first: str
    rest: str
    limit: int

    def fits(self, name: str) -> bool:
        """True when the name can be used as it is."""
        return len(name) <= self.limit and re.fullmatch(f"[{self.first}][{self.rest}]*", name) is not None


def wire_names(names: Iterable[str], rule: NameRule) -> dict[str, str]:
    """A name for the provider by tool name. No two are equal; what fits the rule stays as it is."""
    known = list(names)
    found = {name: name for name in known if rule.fits(name)}
    taken = set(found)
    for name in known:
        if name in found:
            continue
        plain = re.sub(f"[^{rule.rest}]", "_", name)
        if re.match(f"[{rule.first}]", plain) is None:
            plain = f"_{plain}"
        # The end is never just cut off: that makes twins of two long names.
        digest = hashlib.sha256(name.encode()).hexdigest()
        chosen, digits = plain, _DIGEST
        while len(chosen) > rule.limit or chosen in taken:
            chosen = f"{plain[: rule.limit - digits - 1]}_{digest[:digits]}"
            digits += 1
        taken.add(chosen)
        found[name] = chosen
    return {name: found[name] for name in known}
