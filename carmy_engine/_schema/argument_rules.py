"""Core schemas that validate arguments in JSON, by the table of types.

They start from pydantic's strict mode, and each row changes what that accepts or refuses against the table. Strictness is set
on each leaf, because models carry configurations of their own. A field marked ``strict`` by its author keeps that mark.
"""

from __future__ import annotations

from .kind import Walk
from .nodes import Types
from .table import TABLE


def argument_types(types: Types) -> Types:
    """The same types, as validators of arguments."""
    return Walk(TABLE, types, "accept").all()
