"""Long outputs: checked in steps, with the same outcome as at once."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import typing_extensions
from annotated_types import MaxLen
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from carmy_engine._model.compiled_tool import TakesLong
from carmy_engine._schema.work import Abandoned, Work
from carmy_engine._tools import output
from carmy_engine.errors import AgentError
from carmy_engine.testing import CompiledTool
from tests.support.recursive import Add, Multiply, Sum

from .conftest import giving_tool, rendered
from .test_agreement import ANNOTATIONS, VALUES


class Line(BaseModel):
    sku: str
    note: str | None = None


Nested = typing_extensions.TypeAliasType("Nested", "int | list[Nested] | None")


@pytest.fixture
def in_steps() -> Iterator[None]:
    """All outputs whose JSON is checked count as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "SHORT_BYTES", -1)
        patch.setattr(output, "MAX_VALUES_AT_ONCE", -1)
        yield


def outcome(tool: CompiledTool, value: Any) -> Any:
    """The JSON, or the code of the refusal and the paths of its problems."""
    try:
        return rendered(tool, value)
    except AgentError as error:
        return error.code, {problem["path"] for problem in (error.details or {})["problems"]}


@given(ANNOTATIONS, st.lists(VALUES, min_size=1, max_size=10))
def test_steps_do_not_change_the_outcome(annotation: Any, values: list[Any]) -> None:
    """What is written at once is written in steps, and what is refused at once is refused in steps."""
    tool = giving_tool(annotation)
    at_once = [outcome(tool, value) for value in values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "SHORT_BYTES", -1)
        patch.setattr(output, "MAX_VALUES_AT_ONCE", -1)
        assert [outcome(tool, value) for value in values] == at_once


LONG: list[tuple[Any, Any]] = [
    (list[Line], [Line(sku="a")] * 5_000),
    (list[Line], [{"sku": "a"}] * 5_000),
    (Annotated[list[int | None], MaxLen(9_000)], [None] * 9_000),
    (dict[str, str | None], {str(number): None for number in range(9_000)}),
    (Nested, [[None] * 100] * 100),
]


@pytest.mark.parametrize(("annotation", "value"), LONG)
def test_a_long_output_is_checked_in_a_thread(annotation: Any, value: Any) -> None:
    """An output of many values whose JSON has to be checked takes long; the check returns the JSON."""
    with pytest.raises(TakesLong):
        giving_tool(annotation).render(value)
    assert len(json.loads(rendered(giving_tool(annotation), value))) == len(value)


def test_a_long_text_is_checked_at_once() -> None:
    """The check of few values is short, whatever their length."""
    value = [Line(sku="a" * 100_000)]
    assert json.loads(giving_tool(list[Line]).render(value)) == [{"sku": "a" * 100_000, "note": None}]


def test_a_long_output_over_the_limit_is_too_large() -> None:
    """The limit of the size holds for outputs that are checked in a thread."""
    with pytest.raises(AgentError) as caught:
        rendered(giving_tool(list[Line], max_output_bytes=100_000), [Line(sku="a")] * 5_000)
    assert caught.value.code == "OUTPUT_TOO_LARGE"


@pytest.mark.usefixtures("in_steps")
def test_outputs_may_need_more_than_arguments() -> None:
    """The bounds of memory and of equal hashes are for strangers' arguments, not for values that a tool has made."""
    prime = (1 << 61) - 1
    colliding = {number * prime: None for number in range(1, 300)}
    assert len(json.loads(rendered(giving_tool(dict[int, None]), colliding))) == 299


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize(("annotation", "value"), LONG)
def test_an_abandoned_check_ends(annotation: Any, value: Any) -> None:
    """The check of an output that has lost its call ends at its next step."""
    with pytest.raises(TakesLong) as taken:
        giving_tool(annotation).render(value)
    work = Work(is_output=True)
    work.abandoned = True
    with pytest.raises(Abandoned):
        taken.value.check(work)


def test_recursive_unions_are_not_tried_at_length_on_the_event_loop() -> None:
    """Two arms that contain the union again take a time that doubles with each level: such a check goes to a thread."""
    value: Any = Add.model_construct(left=1, right=None)
    for _ in range(60):
        value = Multiply.model_construct(left=1, right=value, factor=1)
    with pytest.raises(TakesLong):
        giving_tool(Sum).render(typing.cast("Any", value))
