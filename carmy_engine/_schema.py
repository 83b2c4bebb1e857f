"""Types into pydantic core schemas, as strict as the engine's table of types. The only importer of pydantic's depths."""

from __future__ import annotations

from typing import Any

import typing_extensions
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError


class UnusableType(Exception):  # noqa: N818 - caught and reworded, never seen by people
    """A type that has no schema.

    Attributes:
        what: What is wrong, without a full stop.
        instead: What to write, a whole sentence.
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what}. {instead}")
        self.what = what
        self.instead = instead


def core_schemas(annotations: dict[str, Any]) -> dict[str, Any]:
    """The typed-dict core schema of named annotations, as pydantic builds it, untouched."""
    holder = typing_extensions.TypedDict("Arguments", annotations)  # type: ignore[operator]  # made at run time
    holder.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    try:
        return TypeAdapter(holder).core_schema
    except (PydanticUserError, PydanticUndefinedAnnotation) as problem:
        text = str(problem).split("\n", 1)[0]
        raise UnusableType(f"a type has no schema ({text})", "Use types that JSON can carry.") from None
