"""Which files and which lines somebody is looking for. Everything here takes time in proportion to its input."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from carmy_engine import AgentError, ErrorCategory


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """A test for paths.

    ``*`` and ``?`` stay within one name, ``**`` means any number of directories, ``[abc]`` is one of these characters.
    A pattern without a slash is about the last name only: ``*.py`` finds Python files anywhere.
    """
    names = pattern.split("/") if "/" in pattern else ["**", pattern]
    tests = [None if name == "**" else re.compile(fnmatch.translate(name)).match for name in names if name]

    def matches(path: str) -> bool:
        # The positions in the pattern that the names so far can have led to: no backtracking, however many stars.
        reached = _skip_stars({0})
        for name in path.split("/"):
            reached = _skip_stars(
                {
                    at if test is None else at + 1
                    for at in reached
                    if at < len(tests) and ((test := tests[at]) is None or test(name))
                }
            )
        return len(tests) in reached

    def _skip_stars(positions: set[int]) -> set[int]:
        """Also the positions after stars, since these may stand for no directory at all."""
        found: set[int] = set()
        for position in positions:
            after = position
            while after < len(tests) and tests[after] is None:
                found.add(after)
                after += 1
            found.add(after)
        return found

    return matches


def line_matcher(pattern: str, *, regex: bool, ignore_case: bool) -> Callable[[str], bool]:
    """A test for lines.

    Regular expressions run in the engine that comes with pydantic, which has no look-around and no back-references and in
    return needs linear time. Python's own could be made to compute for years, and nothing can interrupt it.

    Raises:
        AgentError: ``INVALID_PATTERN``.
    """
    if not regex:
        if not ignore_case:
            return lambda line: pattern in line
        folded = pattern.casefold()
        return lambda line: folded in line.casefold()
    flags = "(?i)" if ignore_case else ""
    try:
        schema = core_schema.str_schema(pattern=f"{flags}(?:{pattern})", regex_engine="rust-regex", strict=True)
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        reason = str(error).strip().rpartition("\n")[2].removeprefix("error: ")
        raise AgentError(
            "INVALID_PATTERN",
            f"the regular expression cannot be used: {reason}",
            ErrorCategory.VALIDATION,
            recoverable=True,
            suggested_action="Correct it (look-around and back-references are not available), or leave out regex.",
        ) from None
