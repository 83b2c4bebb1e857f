"""Tools made by hand: an object with ``spec`` and ``execute``, its schemas checked with the library jsonschema."""

from __future__ import annotations

from typing import Any

import msgspec

from . import abc
from ._compiled import CompiledTool
from ._model.spec import ToolSpec


def compile_object(made: abc.Tool, spec: ToolSpec) -> CompiledTool:
    """Build the checks of a tool that was made by hand."""

    def parse(data: bytes) -> dict[str, Any]:
        return {"input": msgspec.json.decode(data)}

    return CompiledTool(
        spec=spec, function=made.execute, is_async=True, context_parameter="ctx", parse=parse, render=msgspec.json.encode
    )
