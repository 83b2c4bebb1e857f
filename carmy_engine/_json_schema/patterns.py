"""Regular expressions of schemas, matched in time that is linear in the text wherever they allow it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic_core import SchemaError

MAX_BACKTRACKING_CHARACTERS = 4_096
"""Length of a text that is matched by backtracking, whose time can grow with the square of the length or faster."""


def searcher(pattern: str) -> Callable[[str], bool]:
    """A function that searches a text for `pattern`.

    Patterns with lookaround or back-references need Python's `re`. A text of more than `MAX_BACKTRACKING_CHARACTERS` never
    matches one of those.

    Raises:
        re.error: It is not a regular expression.
    """
    try:
        # The engine of pydantic, which never backtracks.
        adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except SchemaError:
        search = re.compile(pattern).search
        return lambda text: len(text) <= MAX_BACKTRACKING_CHARACTERS and search(text) is not None
    return adapter.validator.isinstance_python
