"""Outputs: what a tool returned into JSON bytes that fit its schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from ._signature import SignaturePlan
from .errors import AgentError


@dataclasses.dataclass(frozen=True, slots=True)
class OutputRenderer:
    """The serialiser of one tool's output, and its schema."""

    schema: Mapping[str, Any]
    render: Callable[[Any], bytes]

    def limited(self, limit: int) -> Callable[[Any], bytes]:
        """A renderer that refuses more than `limit` bytes."""
        plain = self.render

        def render(value: Any) -> bytes:
            data = plain(value)
            if len(data) > limit:
                message = f"the tool ran, but its output of {len(data)} bytes is over the limit of {limit}"
                raise AgentError.standard(
                    "OUTPUT_TOO_LARGE", message, details={"size_bytes": len(data), "limit_bytes": limit}
                )
            return data

        return render


def output_renderer(function: Callable[..., Any], plan: SignaturePlan) -> OutputRenderer:
    """Build the serialiser and the schema of a tool's output."""
    adapter: TypeAdapter[Any] = TypeAdapter(plan.returns)

    def render(value: Any) -> bytes:
        try:
            return adapter.dump_json(value, warnings="error")
        except PydanticSerializationError:
            raise AgentError.standard("INVALID_OUTPUT", "the tool ran, but its output does not fit its schema") from None

    return OutputRenderer(adapter.json_schema(mode="serialization"), render)
