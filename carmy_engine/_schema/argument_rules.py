"""Core schemas of arguments: what validates them in JSON, by the table of types.

pydantic's own strict mode is the start; what it lets through or refuses against the table is changed node by node. Every
leaf says for itself how strict it is, because models carry configurations of their own and because a field that its
author marked ``strict`` (either way) stays as it was marked.
"""

from __future__ import annotations

from .kind import Walk
from .nodes import Types
from .table import TABLE


def argument_types(types: Types) -> Types:
    """The same types, as validators of arguments."""
    return Walk(TABLE, types, "accept").all()
