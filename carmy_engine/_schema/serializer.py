"""Values written as JSON by pydantic, at its best speed: anything that is not as it should be is somebody else's business."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

from pydantic_core import SchemaSerializer

from ..errors import AgentError

# pydantic tells of a value that does not fit its type by a warning. Asked for an error instead (``warnings="error"``), it
# takes longer to understand that word than to write a short output: half of what rendering cost. So it may warn, and the
# warning becomes an error on its way: CPython refuses one that comes from a module whose registry of warnings is no dict,
# and does so before it looks at any filter. Nothing that a host sets can let a wrong output pass. Serialisers that wrap
# another one are left out: what that one finds is told in their frame, not in ours. A property that warns its reader, such
# as a deprecated one, fails here as well; `convert` reads it again, and there its warning is one.
__warningregistry__ = ()


def _are_warnings_errors() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            SchemaSerializer({"type": "int"}).to_json("")
        except TypeError:
            return True
    return False


_WARNINGS: Literal[True, "error"] = True if _are_warnings_errors() else "error"


def make_serializer(
    serializer: SchemaSerializer,
    convert: Callable[[Any], bytes],
    prove: Callable[[Any, bytes], bytes] | None,
    limit: int,
    *,
    is_wrapped: bool,
) -> Callable[[Any], bytes]:
    """A function that writes a value as JSON.

    Args:
        serializer: Writes it.
        convert: Gets every value that does not fit its type: it writes it, or raises.
        prove: Gets what was written, and the value: it raises if something else is wrong. None when nothing can be.
        limit: Most bytes; more raise ``OUTPUT_TOO_LARGE``.
        is_wrapped: A function in Python wraps the serialiser, or one of its parts.
    """
    to_json = serializer.to_json
    told: Literal[True, "error"] = "error" if is_wrapped else _WARNINGS

    def write(value: Any) -> bytes:
        try:
            data = to_json(value, by_alias=True, warnings=told)
        except Exception:  # noqa: BLE001 - serialisers and properties of the tool's author run in there
            data = None
        if data is None:
            data = convert(value)
        elif prove is not None:
            data = prove(value, data)
        if len(data) > limit:
            raise too_large(len(data), limit)
        return data

    return write


def too_large(size: int, limit: int) -> AgentError:
    """``OUTPUT_TOO_LARGE``."""
    message = f"the tool ran, but its output of {size} bytes is over the limit of {limit} bytes"
    return AgentError.standard("OUTPUT_TOO_LARGE", message, details={"size_bytes": size, "limit_bytes": limit})
