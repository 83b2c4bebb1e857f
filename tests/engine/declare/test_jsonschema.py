"""Tools made by hand: an object with a spec and an execute, checked against its own schemas."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from carmy_engine._context import AgentContext
from carmy_engine._declare import compile_tool
from carmy_engine._model.effect import Effect
from carmy_engine._model.spec import ToolSpec
from carmy_engine.errors import AgentError, DeclarationError

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2},
        "limit": {"type": "integer", "minimum": 1},
        "kind": {"enum": ["a", 1]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["query"],
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}},
}


class Made:
    def __init__(self, **fields: Any) -> None:
        given: dict[str, Any] = {
            "name": "made",
            "description": "Made by hand",
            "input_schema": INPUT,
            "output_schema": {"type": "array", "items": {"type": "number"}},
            "effect": Effect.NONE,
        }
        self.spec = ToolSpec(**{**given, **fields})

    async def execute(self, ctx: AgentContext, input: Any) -> Any:  # noqa: A002
        return [input]


async def test_a_made_tool_runs() -> None:
    """The tool gets its context and the decoded arguments by name."""
    compiled = compile_tool(Made(), {})
    assert compiled.is_async
    assert compiled.context_parameter == "ctx"
    arguments = compiled.parse(b'{"query":"ab","lines":[{"sku":"a"}]}')
    assert arguments == {"input": {"query": "ab", "lines": [{"sku": "a"}]}}
    assert await compiled.function(ctx=AgentContext(), **arguments) == [arguments["input"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "argument 'query' is missing"),
        ("null", "argument 'query' is missing"),
        ("[]", "the arguments must be a JSON object"),
        ('{"query":"a"}', "argument 'query' must have at least 2 characters"),
        ('{"query":1}', "argument 'query' must be a string"),
        ('{"query":"ab","limt":1}', "argument 'limt' is not known; did you mean 'limit'?"),
        ('{"query":"ab","limit":true}', "argument 'limit' must be an integer"),
        ('{"query":"ab","limit":0}', "argument 'limit' must be at least 1"),
        ('{"query":"ab","kind":"b"}', "argument 'kind' must be one of 'a', 1"),
        ('{"query":"ab","kind":true}', "argument 'kind' must be one of 'a', 1"),
        ('{"query":"ab","lines":[{}]}', "argument 'lines[0].sku' is missing"),
        ('{"query":"ab","either":[]}', "argument 'either' fits none of its forms"),
    ],
)
def test_arguments_are_checked_in_the_same_words(text: str, words: str) -> None:
    """The words of a made tool's refusals are those of declared ones."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(), {}).parse(text.encode())
    assert caught.value.code == "INVALID_ARGUMENTS"
    assert caught.value.message == words


def test_deep_arguments_do_not_crash() -> None:
    """Arguments at the limit of nesting are taken or refused, never a RecursionError."""
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/list"}},
        "$defs": {"list": {"items": {"$ref": "#/$defs/list"}}},
    }
    compiled = compile_tool(Made(input_schema=schema), {})
    text = b'{"x":' + b"[" * 127 + b"]" * 127 + b"}"
    limit = sys.getrecursionlimit()
    try:
        compiled.parse(text)
    except AgentError as error:
        assert error.code == "INVALID_REQUEST"  # noqa: PT017 - either outcome is right
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a", "the output must be a list"),
        ([1, "a"], "'[1]' in the output must be a number"),
        ([float("nan")], "'[0]' in the output must be a finite number"),
        ([object()], "'[0]' in the output is of type object"),
    ],
)
def test_outputs_are_checked(value: Any, words: str) -> None:
    """A result that breaks the output schema is INVALID_OUTPUT."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(), {}).render(value)
    assert caught.value.code == "INVALID_OUTPUT"
    assert words in caught.value.message


def test_outputs_are_rendered_and_limited() -> None:
    """A right result becomes JSON, within the tool's limit of bytes."""
    compiled = compile_tool(Made(max_output_bytes=9), {})
    assert json.loads(compiled.render((1, 2.5))) == [1, 2.5]
    with pytest.raises(AgentError) as caught:
        compiled.render([1111111111])
    assert caught.value.code == "OUTPUT_TOO_LARGE"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input_schema": {"type": "array"}}, "input_schema: its root must have 'type': 'object'"),
        ({"input_schema": {}}, "input_schema: its root must have 'type': 'object'"),
        ({"input_schema": {"type": "object", "properties": 3}}, "input_schema: it is not JSON Schema"),
        ({"output_schema": {"type": "number or so"}}, "output_schema: it is not JSON Schema"),
        ({"output_schema": {"$ref": "#/$defs/none"}}, "'#/$defs/none' does not point into the schema itself"),
        ({"output_schema": {"$ref": "http://127.0.0.1:9/x"}}, "does not point into the schema itself"),
        ({"output_schema": {"const": object()}}, "output_schema: it is not JSON"),
    ],
)
def test_unusable_schemas(fields: dict[str, Any], words: str) -> None:
    """A schema that cannot be compiled is INVALID_SCHEMA; a reference is never fetched."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(**fields), {})
    assert caught.value.code == "INVALID_SCHEMA"
    assert words in caught.value.message
    assert "'made'" in caught.value.message


def test_a_bad_name() -> None:
    """A made tool's name follows the same rule."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(name="a b"), {})
    assert caught.value.code == "INVALID_TOOL_NAME"


def test_the_class_is_not_the_tool() -> None:
    """Passing the class instead of an object is refused."""
    with pytest.raises(DeclarationError):
        compile_tool(Made, {})


def test_a_spec_in_plain_words() -> None:
    """Words are understood in place of enums; wrong ones are refused with the field."""
    assert compile_tool(Made(effect="read"), {}).spec.effect is Effect.READ
    with pytest.raises(DeclarationError, match=r"the spec of a Made object is wrong: .*effect"):
        compile_tool(Made(effect="red"), {})


def test_a_spec_of_another_type() -> None:
    """A spec that is no ToolSpec is refused."""
    made = Made()
    made.spec = {"name": "made"}  # type: ignore[assignment]
    with pytest.raises(DeclarationError, match="is no ToolSpec"):
        compile_tool(made, {})
