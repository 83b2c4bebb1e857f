"""What listings and answers of other servers mean here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from carmy_engine import Catalog, Confirmation, Effect, PublicSpec
from carmy_mcp.client.catalog import FarTool, ListedTool, catalog_of, far_tool
from carmy_mcp.client.results import MAX_ERROR_BYTES, CallResult, answered
from carmy_mcp.protocol.listing import page_of

ERROR = {"code": "NO_STOCK", "message": "", "category": "conflict", "recoverable": False, "retryable": True}


def listed(**fields: Any) -> ListedTool:
    return msgspec.convert({"name": "t", "inputSchema": {"type": "object"}, **fields}, ListedTool)


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        (None, "external_write"),
        ({}, "external_write"),
        ({"readOnlyHint": True}, "read"),
        ({"readOnlyHint": True, "destructiveHint": True}, "destructive"),
        ({"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}, "destructive"),
        ({"destructiveHint": False}, "external_write"),
        ({"openWorldHint": False}, "external_write"),
        ({"destructiveHint": False, "openWorldHint": False}, "write"),
    ],
)
def test_effects(hints: dict[str, bool] | None, effect: str) -> None:
    """Where hints leave a doubt, the worse is assumed; only what is declared outright counts as repeatable."""
    spec = far_tool(listed(annotations=hints), {}, trusted=False).spec
    assert spec.effect == effect
    assert not spec.idempotent
    repeatable = far_tool(listed(annotations={**(hints or {}), "idempotentHint": True}), {}, trusted=False).spec
    assert repeatable.idempotent


@pytest.mark.parametrize("output", [{"type": "integer"}, {"$ref": "#/$defs/N", "$defs": {"N": {"type": "null"}}}])
def test_a_tool_of_ours(output: dict[str, Any]) -> None:
    """A tool of this package comes back as it was declared, if its server is trusted; else as its hints declare."""
    spec = PublicSpec(
        name="t",
        description="d",
        input_schema={"type": "object"},
        output_schema=output,
        effect=Effect.NONE,
        idempotent=True,
        parallel_safe=False,
        confirmation=Confirmation.REQUIRED,
    )
    (entry,), _ = page_of(Catalog(tools=(spec,), document=b"", version="v"), None)
    found = far_tool(listed(**entry), {}, trusted=True)
    assert found.spec == spec
    assert found.ours
    assert found.wrapped
    hinted = far_tool(listed(**entry), {}, trusted=False).spec
    assert (hinted.effect, hinted.parallel_safe, hinted.confirmation) == ("read", True, "none")
    overridden = far_tool(listed(**entry), {"effect": Effect.WRITE}, trusted=True).spec
    assert overridden.effect == "write"
    assert catalog_of([found]).tools == (spec,)


@pytest.mark.parametrize(
    "meta", [{"carmy/effect": {}}, {"carmy/effect": "wild", "carmy/confirmation": 1, "carmy/parallel_safe": "no"}]
)
def test_nonsense_in_a_listing(meta: dict[str, Any]) -> None:
    """What is not well-formed in what a server sends about a tool is left out."""
    found = far_tool(listed(_meta={**meta, "carmy/wrapped": True}, outputSchema={"type": "object"}), {}, trusted=True)
    assert found.spec == far_tool(listed(outputSchema={"type": "object"}), {}, trusted=True).spec
    assert not found.wrapped


def outcome(tool: FarTool | None = None, **answer: Any) -> Any:
    return answered(msgspec.convert({"content": [], **answer}, CallResult), tool, "exec_here", 5.0)


def test_errors_of_ours() -> None:
    """An error of this package arrives as it is; one that is too large, or none, leaves the server's words."""
    result = outcome(isError=True, _meta={"carmy/error": ERROR}).result
    assert (result.error.code, result.error.retryable, result.error.recoverable) == ("NO_STOCK", True, True)
    for bad in ({**ERROR, "details": {"x": "x" * MAX_ERROR_BYTES}}, {**ERROR, "category": "wild"}, "NO_STOCK", None):
        text = [{"type": "text", "text": "its words"}]
        result = outcome(isError=True, content=text, _meta={"carmy/error": bad}).result
        assert result.error.code == "TOOL_ERROR"
        assert result.error.details == {"text": "its words"}


def test_whether_it_has_run() -> None:
    """A server of ours reports whether the tool has begun; of others it is assumed."""
    assert outcome().ran
    assert outcome(isError=True).ran
    assert outcome(_meta={"carmy/duration_ms": 0.1}).ran
    assert not outcome(_meta={"carmy/duration_ms": 0, "carmy/replayed": True}).ran
    waiting = {**ERROR, "code": "TIMEOUT", "category": "timeout", "details": {"phase": "waiting"}}
    assert not outcome(isError=True, _meta={"carmy/duration_ms": 100, "carmy/error": waiting}).ran


def test_numbers_that_are_none() -> None:
    """A value that JSON does not have is ``INVALID_OUTPUT``, at its path; large numbers and null are values like others."""
    result = outcome(structuredContent={"a": [1, float("inf")]}).result
    assert result.error.code == "INVALID_OUTPUT"
    assert result.error.details["problems"][0]["path"] == "a[1]"
    assert (
        outcome(structuredContent={"a": 2**70, "b": None}).result.data_json == b'{"a":1180591620717411303424,"b":null}'
    )
