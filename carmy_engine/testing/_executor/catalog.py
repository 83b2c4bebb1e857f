"""What a caller can learn about the tools."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..._model.spec import ToolSpec
from ..._tools.declaration import declaration_of, spec_of
from .._probe import Probe
from ..tools import SCRIPTED_TOOLS
from .suite import suite

_FIELDS = [
    "name",
    "description",
    "input_schema",
    "output_schema",
    "effect",
    "idempotent",
    "parallel_safe",
    "confirmation",
]


def _declared() -> dict[str, ToolSpec]:
    found = [spec_of(declaration_of(function)) for function in SCRIPTED_TOOLS]
    return {spec.name: spec for spec in found}


@suite.check("E-801")
async def complete(probe: Probe) -> None:
    """The catalog has every tool, sorted by name, with the properties that were declared."""
    catalog = await probe.executor.catalog()
    declared = _declared()
    assert [tool.name for tool in catalog.tools] == sorted(declared)
    for tool in catalog.tools:
        entry = declared[tool.name]
        assert tool.description == entry.description
        assert tool.effect == entry.effect
        assert tool.idempotent == entry.idempotent
        assert tool.parallel_safe == entry.parallel_safe
        assert tool.confirmation == entry.confirmation


@suite.check("E-802")
async def document(probe: Probe) -> None:
    """The catalog's document is the JSON of its tools, with exactly the published fields, in their order."""
    catalog = await probe.executor.catalog()
    decoded: dict[str, Any] = json.loads(catalog.document)
    assert list(decoded) == ["tools"]
    assert [list(tool) for tool in decoded["tools"]] == [_FIELDS] * len(catalog.tools)
    for written, tool in zip(decoded["tools"], catalog.tools, strict=True):
        assert written["name"] == tool.name
        assert written["input_schema"] == tool.input_schema
        assert written["output_schema"] == tool.output_schema
        assert written["effect"] == tool.effect.value
        assert written["confirmation"] == tool.confirmation.value


@suite.check("E-803")
async def version(probe: Probe) -> None:
    """The version is the SHA-256 of the document, and both stay the same."""
    first = await probe.executor.catalog()
    second = await probe.executor.catalog()
    assert first.version == hashlib.sha256(first.document).hexdigest()
    assert first.document == second.document
    assert first.version == second.version


@suite.check("E-804")
async def schemas(probe: Probe) -> None:
    """Every input schema is an object's that allows no other members, and shows real defaults and nothing that the host injects."""
    tools = {tool.name: tool for tool in (await probe.executor.catalog()).tools}
    for tool in tools.values():
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert {"ctx", "stage"}.isdisjoint(tool.input_schema.get("properties", {}))
    echo = tools["echo"].input_schema
    assert set(echo["properties"]) == {"text", "times"}
    assert echo["required"] == ["text"]
    assert echo["properties"]["times"]["default"] == 1
    assert echo["properties"]["times"]["type"] == "integer"


@suite.check("E-805")
async def callable_(probe: Probe) -> None:
    """A tool that is listed is found when it is called."""
    for tool in (await probe.executor.catalog()).tools:
        result = await probe.call(tool.name, {"no such argument": 1})
        assert result.error is not None
        assert result.error.code in ("INVALID_ARGUMENTS", "CONFIRMATION_REQUIRED")
