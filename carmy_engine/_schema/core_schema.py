"""Annotations into core schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .expander import Expander, undefined
from .nodes import Types
from .table import TABLE


def types_of(annotations: Mapping[str, Any]) -> Types:
    """Build the core schemas of annotations.

    Raises:
        UnusableType: One of them has no JSON form.
        UnresolvedType: One of them names something that is not defined yet.
    """
    expander = Expander(TABLE)
    try:
        return Types(expander.fields(annotations), expander.definitions)
    except NameError as problem:
        raise undefined(str(problem.name)) from None
