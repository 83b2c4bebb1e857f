"""The words in which wrong arguments are reported: all of them at once, stable, without the values."""

from __future__ import annotations

import ipaddress
import sys
import types
from typing import Annotated, Any, Literal, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, Field, Json, field_validator, model_validator
from pydantic_core import core_schema

from carmy_engine import Effect, ToolSpec, tool
from carmy_engine._model.suggestions import closest_names
from carmy_engine._schema import table
from carmy_engine._schema.messages import MAX_SUGGESTIONS
from carmy_engine.errors import AgentError
from carmy_engine.testing import compile_tool

from .conftest import Taker, taking_tool


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    lines: list[Line]
    note: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


Tagged = Annotated[Cat | Dog, Field(discriminator="kind")]


def test_every_problem_is_listed(take: Taker) -> None:
    """Missing, wrong and unknown arguments are reported together, with their paths and codes."""

    @tool(effect="none", register=False)
    def search(query: str, count: int, limit: int = 10) -> None: ...

    with pytest.raises(AgentError) as caught:
        compile_tool(search, {}).parse(b'{"count":"many","limt":3}')
    assert caught.value.details is not None
    assert caught.value.details["problems"] == [
        {"path": "query", "code": "missing", "message": "argument 'query' is missing"},
        {"path": "count", "code": "wrong_type", "message": "argument 'count' must be an integer"},
        {
            "path": "limt",
            "code": "unknown",
            "message": "argument 'limt' is not known; did you mean 'limit'?",
            "valid": ["query", "count", "limit"],
        },
    ]
    assert caught.value.message == (
        "argument 'query' is missing; argument 'count' must be an integer; "
        "argument 'limt' is not known; did you mean 'limit'?"
    )


def test_paths_into_the_input(take: Taker) -> None:
    """A problem inside lists and objects has the whole path."""
    message = take.refused(Order, '{"lines":[{"sku":"a"},{"sku":1},{"skuu":"a"}]}', whole=True)
    assert message == (
        "argument 'lines[1].sku' must be a string; argument 'lines[2].sku' is missing; "
        "argument 'lines[2].skuu' is not known; did you mean 'sku'?"
    )


def test_names_of_a_dict(take: Taker) -> None:
    """A wrong name in a dict is distinguished from a wrong value; odd names are quoted."""
    assert take.refused(dict[int, str], '{"q":"a"}') == "the name 'q' in argument 'x' must be an integer"
    assert take.refused(dict[str, int], '{"a b":"a"}') == "argument 'x['a b']' must be an integer"


def test_without_a_near_name_all_names_are_given(take: Taker) -> None:
    """A name like no other is answered with the names there are."""
    assert take.refused(Order, '{"lines":[],"zzz":1}', whole=True) == (
        "argument 'zzz' is not known; the arguments are 'lines', 'note'"
    )


@pytest.mark.parametrize(
    ("annotation", "json", "words"),
    [
        # discriminated: the tag decides, and the tag is what is wrong
        (Tagged, '{"kind":"emu"}', "argument 'x.kind' must be one of 'cat', 'dog'"),
        (Tagged, '{"kind":["emu"]}', "argument 'x.kind' must be one of 'cat', 'dog'"),
        (Tagged, "{}", "argument 'x.kind' is missing"),
        (Tagged, "3", "argument 'x' must be an object"),
        (Tagged, '{"kind":"cat","nam":1}', "'x.name' is missing; argument 'x.nam' is not known; did you mean 'name'?"),
        (list[Tagged], '[{"kind":"dog","age":"a"}]', "argument 'x[0].age' must be an integer"),
        (Tagged | None, '{"kind":"emu"}', "argument 'x.kind' must be one of 'cat', 'dog'"),
        # plain, but told apart by a constant
        (Cat | Dog, '{"kind":"emu"}', "argument 'x.kind' must be one of 'cat', 'dog'"),
        (Cat | Dog, '{"kind":"cat","name":3}', "argument 'x.name' must be a string"),
        # plain, told apart by the kind of value
        (list[Cat] | str, '[{"kind":"cat","name":3}]', "argument 'x[0].name' must be a string"),
        (int | str | None, "[]", "argument 'x' must be an integer or a string"),
        (Cat | int, "true", "argument 'x' must be an object or an integer"),
        # unions inside unions keep the whole path
        (
            dict[str, list[Cat | Dog] | int],
            '{"k":[{"kind":"cat","name":1}]}',
            "argument 'x.k[0].name' must be a string",
        ),
        (list[list[int | str] | int], "[[1.5]]", "argument 'x[0][0]' must be an integer or a string"),
        # not told apart at all
        (Line | Order, "{}", "argument 'x' fits none of its 2 forms"),
    ],
)
def test_unions_are_one_line(take: Taker, annotation: Any, json: str, words: str) -> None:
    """A union names the bad tag, or the arm that was meant; never every arm's complaints."""
    assert words in take.refused(annotation, json)


class Picky(BaseModel):
    a: int = 0
    b: int = 0

    @field_validator("a")
    @classmethod
    def _small(cls, value: int) -> int:
        if value > 3:
            raise ValueError("more than the warehouse has")
        return value

    @model_validator(mode="after")
    def _together(self) -> Picky:
        if self.b == 13:
            raise ValueError("b brings bad luck")
        return self


def test_an_authors_own_words_pass(take: Taker) -> None:
    """The text of a user's validator is for the caller and is passed on."""
    assert take.refused(Picky, '{"a":5}', whole=True) == "argument 'a': more than the warehouse has"
    assert take.refused(Picky, '{"b":13}', whole=True) == "the arguments: b brings bad luck"


@pytest.mark.parametrize(
    ("annotation", "json"),
    [
        (ipaddress.IPv4Address, '"s3cret"'),
        (AnyUrl, '"s3cret"'),
        (Json[int], '"s3cret"'),
        (int, '"s3cret"'),
        (bool, '"s3cret"'),
        (Literal["a"], '"s3cret"'),
        (Tagged, '{"kind":"s3cret"}'),
        (Cat | Dog, '"s3cret"'),
        (list[int], '["s3cret"]'),
        (Annotated[str, Field(pattern="^a$")], '"s3cret"'),
        (Annotated[str, Field(max_length=2)], '"s3cret"'),
    ],
)
def test_values_are_never_repeated(take: Taker, annotation: Any, json: str) -> None:
    """No refusal contains what was sent, in its message or in its details (Y4)."""
    with pytest.raises(AgentError) as caught:
        take(annotation, json)
    assert "s3cret" not in caught.value.message
    assert "s3cret" not in str(caught.value.details)


def test_a_flood_of_problems_is_cut(take: Taker) -> None:
    """The answer to a million wrong items stays small."""
    with pytest.raises(AgentError) as caught:
        take(list[int], "[" + ",".join(['"a"'] * 10_000) + "]")
    assert caught.value.details is not None
    assert len(caught.value.details["problems"]) == 100


def test_every_error_of_pydantic_has_words() -> None:
    """Each error type that JSON can bring about is put into our own words; the rest are generic."""
    not_from_json = {
        "no_such_attribute",
        "json_invalid",
        "needs_python_object",
        "frozen_field",
        "frozen_instance",
        "extra_forbidden",  # in words of its own, with the valid names
        "invalid_key",
        "get_attribute_error",
        "is_subclass_of",
        "callable_type",
        "none_required",
        "value_error",
        "assertion_error",
        "default_factory_not_called",
        "missing_sentinel_error",
        "not_a_frozendict",
        "frozen_dict_type",
        "ellipsis_error",
        "missing_argument",
        "unexpected_keyword_argument",
        "missing_keyword_only_argument",
        "unexpected_positional_argument",
        "missing_positional_only_argument",
        "multiple_argument_values",
        "fraction_type",
        "fraction_parsing",
        "mapping_proxy_type",
        "ellipsis_type",
        "counter_type",
        "complex_type",
        "complex_str_parsing",
        "recursion_depth_exceeded",
    }
    types = set(get_args(core_schema.ErrorType))
    assert types - not_from_json - set(table.ERRORS) == set()


@given(st.text(), st.text())
def test_any_names_and_values_are_refused_cleanly(name: str, value: str) -> None:
    """Whatever an unknown argument is called, the refusal is a refusal."""
    if name == "x" or not (name + value).isprintable():
        return
    with pytest.raises(AgentError) as caught:
        INT.parse(msgspec.json.encode({name: value}))
    assert caught.value.code == "INVALID_ARGUMENTS"


INT = taking_tool(int)


def test_only_the_first_unknown_names_are_answered_with_the_valid_ones() -> None:
    """An answer does not list all valid names for each of a hundred unknown ones, so it stays short beside its request."""

    @tool(effect="none", register=False)
    def search(query: str = "") -> None: ...

    class ByHand:
        spec = ToolSpec(
            name="by_hand",
            description="",
            input_schema=compile_tool(search, {}).spec.input_schema,
            output_schema={},
            effect=Effect.NONE,
        )

        async def execute(self, ctx: object, input: object) -> None: ...  # noqa: A002

    text = b"{" + b",".join(b'"querry%d":1' % number for number in range(MAX_SUGGESTIONS + 5)) + b"}"
    for declared in (search, ByHand()):
        with pytest.raises(AgentError) as caught:
            compile_tool(declared, {}).parse(text)
        assert caught.value.details is not None
        problems = caught.value.details["problems"]
        assert [problem.get("valid") for problem in problems] == [["query"]] * MAX_SUGGESTIONS + [None] * 5
        assert "did you mean 'query'?" in problems[MAX_SUGGESTIONS - 1]["message"]
        assert problems[MAX_SUGGESTIONS]["message"] == f"argument 'querry{MAX_SUGGESTIONS}' is not known"


def test_the_work_of_a_suggestion_is_bounded() -> None:
    """With ten times as many valid names, all much alike, a suggestion compares no more of them letter by letter."""
    counts: list[int] = []
    for valid in (30, 300):
        calls = 0

        def profile(frame: types.FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call" and frame.f_code.co_name == "find_longest_match"

        known = [f"property_number_{number}" for number in range(valid)]
        sys.setprofile(profile)
        try:
            assert closest_names("property_numbre_7", known) == ["property_number_7"]
        finally:
            sys.setprofile(None)
        counts.append(calls)
    assert counts[1] <= counts[0] * 1.5
