"""Labels that validators put into the locations of errors, so that messages can distinguish them from names in the data."""

from __future__ import annotations

from typing import Any

from .nodes import Node

VALUE = "\0value"
"""Labels the way of a defaulted field that carries a value."""
NULL = "\0null"
"""Labels a way whose errors are not reported, because the other way's are."""
TAG = "\0tag"
"""Labels the arm of a tagged union; the tag itself stands before it."""
ARM = "\0arm"
"""Begins the label of an arm of a plain union: ``\\0arm<index>:<noun>``."""


def named(node: Any, kind: str, **context: Any) -> Node:
    """Any failure of `node` becomes the one error ``carmy_<kind>``."""
    made: Node = {
        "type": "custom-error",
        "schema": node,
        "custom_error_type": f"carmy_{kind}",
        "custom_error_message": "not valid",
    }
    return {**made, "custom_error_context": context} if context else made


def first_of(*ways: Any) -> Node:
    """The first of some nodes that takes a value; errors are those of the first."""
    labelled = [(way, NULL if index else VALUE) for index, way in enumerate(ways)]
    return {"type": "union", "mode": "left_to_right", "choices": labelled}
