"""Regular expressions of schemas, matched in time that is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic_core import SchemaError


class UnusablePattern(Exception):  # noqa: N818 - a fault of a schema, which the compiler reports with its place
    """A regular expression that cannot be used. Its text continues a sentence that begins with the place."""


def searcher(pattern: str) -> Callable[[str], bool]:
    """A function that searches a text for `pattern`, with pydantic's engine, which never backtracks.

    Raises:
        UnusablePattern: It is not a regular expression, or needs lookaround or back-references. Matching those takes time
            that can double with each character, and nothing can interrupt it.
    """
    try:
        adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except SchemaError:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UnusablePattern(f"is not a regular expression: {error}") from None
        raise UnusablePattern(
            "needs lookaround or back-references, which take unbounded time to match; write it without, or check it in the tool"
        ) from None
    return adapter.validator.isinstance_python
