"""The required cases of the JSON Schema Test Suite for draft 2020-12, judged by the arguments and outputs of tools made by hand.

The cases in `suite.json` are those of https://github.com/json-schema-org/JSON-Schema-Test-Suite (commit 44401e0, directory
`tests/draft2020-12` without `optional`), one group a line: file, description, schema, and for each test its description, its data and
whether the data is valid. Copyright (c) 2012 Julian Berman, MIT licence: see `suite-LICENSE.txt`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carmy_engine import AgentContext, AgentError, Effect, ToolSpec
from carmy_engine.testing import compile_tool

Test = tuple[str, Any, bool]
GROUPS: list[tuple[str, str, Any, list[Test]]] = json.loads(
    (Path(__file__).parent / "suite.json").read_text(encoding="utf-8")
)

FETCHES = "The schema refers to a document elsewhere: nothing is fetched, so it is INVALID_SCHEMA."
VOCABULARY = "A meta-schema elsewhere says that keywords mean nothing: nothing is fetched, and all keywords count."

DEPARTURES: dict[tuple[str, str], str] = {
    ("defs", "validate definition against metaschema"): FETCHES,
    ("dynamicRef", "strict-tree schema, guards against misspelled properties"): FETCHES,
    ("dynamicRef", "tests for implementation dynamic anchor and reference link"): FETCHES,
    ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $defs first"): FETCHES,
    ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $ref first"): FETCHES,
    ("dynamicRef", "$ref to $dynamicRef finds detached $dynamicAnchor"): FETCHES,
    ("ref", "remote ref, containing refs itself"): FETCHES,
    ("refRemote", "remote ref"): FETCHES,
    ("refRemote", "fragment within remote ref"): FETCHES,
    ("refRemote", "anchor within remote ref"): FETCHES,
    ("refRemote", "ref within remote ref"): FETCHES,
    ("refRemote", "base URI change"): FETCHES,
    ("refRemote", "base URI change - change folder"): FETCHES,
    ("refRemote", "base URI change - change folder in subschema"): FETCHES,
    ("refRemote", "root ref in remote ref"): FETCHES,
    ("refRemote", "remote ref with ref to defs"): FETCHES,
    ("refRemote", "Location-independent identifier in remote ref"): FETCHES,
    ("refRemote", "retrieved nested refs resolve relative to their URI not $id"): FETCHES,
    ("refRemote", "remote HTTP ref with different $id"): FETCHES,
    ("refRemote", "remote HTTP ref with different URN $id"): FETCHES,
    ("refRemote", "remote HTTP ref with nested absolute ref"): FETCHES,
    ("refRemote", "$ref to $ref finds detached $anchor"): FETCHES,
    ("vocabulary", "schema that uses custom metaschema with with no validation vocabulary"): VOCABULARY,
}
"""Groups that do not hold here, each with the reason."""


class ByHand:
    """A tool whose argument ``value``, and the same field of its output, have the schema of a group."""

    def __init__(self, schema: Any) -> None:
        # As a resource of its own, so that "#" in it means itself.
        inner = schema if isinstance(schema, bool) else {"$id": "https://example.com/case", **schema}
        whole = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
        self.spec = ToolSpec(
            name="by_hand", description="", input_schema=whole, output_schema=whole, effect=Effect.NONE
        )

    async def execute(self, ctx: AgentContext, input: Any) -> Any:  # noqa: A002 - the protocol's name
        return input


def _code_of(action: Callable[[Any], object], value: Any) -> str | None:
    try:
        action(value)
    except AgentError as error:
        return error.code
    return None


def _is_judged(schema: Any, data: Any, *, valid: bool) -> bool:
    """Whether the data passes both as an argument and as an output, if it is valid, and neither way if it is not."""
    tool = compile_tool(ByHand(schema), {})
    codes = _code_of(tool.parse, json.dumps({"value": data}).encode()), _code_of(tool.render, {"value": data})
    return codes == ((None, None) if valid else ("INVALID_ARGUMENTS", "INVALID_OUTPUT"))


@pytest.mark.parametrize(
    ("file", "group", "schema", "tests"),
    [pytest.param(*group, id=f"{group[0]}: {group[1]}") for group in GROUPS if (group[0], group[1]) not in DEPARTURES],
)
def test_values_are_judged_as_the_standard_says(file: str, group: str, schema: Any, tests: list[Test]) -> None:
    """Arguments and outputs pass exactly if the official suite calls them valid."""
    wrong = [description for description, data, valid in tests if not _is_judged(schema, data, valid=valid)]
    assert wrong == []


@pytest.mark.parametrize("group", DEPARTURES)
def test_each_departure_from_the_standard_is_as_listed(group: tuple[str, str]) -> None:
    """A schema that needs a document from elsewhere is INVALID_SCHEMA; a foreign vocabulary changes nothing."""
    (schema, tests) = next((schema, tests) for file, name, schema, tests in GROUPS if (file, name) == group)
    if DEPARTURES[group] == FETCHES:
        with pytest.raises(AgentError, match="does not point into the schema itself") as caught:
            compile_tool(ByHand(schema), {})
        assert caught.value.code == "INVALID_SCHEMA"
    else:
        verdicts = {description: _is_judged(schema, data, valid=valid) for description, data, valid in tests}
        assert [description for description, holds in verdicts.items() if not holds] == [
            "no validation: invalid number, but it still validates"
        ]


def test_the_whole_suite_is_there() -> None:
    """The suite has every file of the required cases, and every departure names one of its groups."""
    assert len({file for file, *_ in GROUPS}) == 46
    assert sum(len(tests) for *_, tests in GROUPS) == 1299
    assert DEPARTURES.keys() <= {(file, name) for file, name, *_ in GROUPS}
