"""Arguments that are checked in steps get the same answers as those that are checked at once, within bounds.

The documents are short here; `tests/hostile` sends long ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from carmy_engine._model import json_outline
from carmy_engine._model.compiled_tool import TakesLong
from carmy_engine._schema import bounded_validator, work
from carmy_engine._schema.bounded_rules import Bounded
from carmy_engine._schema.work import Abandoned, Work
from carmy_engine._tools import arguments as _arguments
from carmy_engine.errors import AgentError
from carmy_engine.testing import CompiledTool
from tests.support.recursive import Add, Sum

from .conftest import parsed, taking_tool
from .test_agreement import ANNOTATIONS, VALUES


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int
    name: str = "none"


class Aliased(BaseModel):
    numbers: list[int] = Field(default=[], validation_alias="list")
    texts: set[str] = Field(default=set(), max_length=3)


class Ignoring(BaseModel):
    model_config = ConfigDict(extra="ignore")
    number: list[int]


@dataclasses.dataclass
class Data:
    numbers: list[int] | None
    more: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    count: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int


class Checked(BaseModel):
    numbers: list[int]

    @model_validator(mode="after")
    def _is_short(self) -> Checked:
        if len(self.numbers) > 3:
            raise ValueError("at most three")
        return self


class Point(msgspec.Struct):
    x: int
    tags: list[str] = []


class Options(typing_extensions.TypedDict, total=False):
    depth: int


Nested = typing_extensions.TypeAliasType("Nested", "int | list[Nested] | dict[str, Nested]")


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All arguments count as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_arguments, "SHORT_BYTES", -1)
        patch.setattr(_arguments, "MAX_VALUES_AT_ONCE", -1)
        yield


def answer(taken: CompiledTool, data: bytes) -> Any:
    """The value with its type, or the problems."""
    try:
        value = parsed(taken, data)["x"]
    except AgentError as error:
        return error.code, error.message, error.details
    return value, repr(value)


def arguments(annotation: Any, value: Any) -> bytes:
    """The arguments of a tool with one parameter; if it is of an object type, its fields are the arguments."""
    return json.dumps(value if annotation in (Closed, Options, Data, Aliased, Ignoring) else {"x": value}).encode()


PIECES = (json_outline.PIECE_BYTES, 20, 0)
"""Sizes of pieces: of all bytes, of a few values, of each value."""


def both(annotation: Any, value: Any, piece_bytes: int = json_outline.PIECE_BYTES) -> tuple[Any, Any]:
    """The answers at once and in steps."""
    taken = taking_tool(annotation)
    data = arguments(annotation, value)
    at_once = answer(taken, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_arguments, "SHORT_BYTES", -1)
        patch.setattr(_arguments, "MAX_VALUES_AT_ONCE", -1)
        patch.setattr(json_outline, "PIECE_BYTES", piece_bytes)
        return at_once, answer(taken, data)


@given(ANNOTATIONS, st.lists(VALUES, min_size=10, max_size=30))
def test_any_type_accepts_the_same_values_in_steps(annotation: Any, values: list[Any]) -> None:
    """Whether and as what a value is accepted does not depend on the length of the arguments around it."""
    for value, piece_bytes in itertools.product(values, PIECES):
        at_once, in_steps = both(annotation, value, piece_bytes)
        if at_once[0] == "INVALID_ARGUMENTS":
            assert in_steps[0] == "INVALID_ARGUMENTS"
        else:
            assert in_steps == at_once


@pytest.mark.parametrize("piece_bytes", PIECES)
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], [1, "a", 2, None]),
        (list[int], "12"),
        (list[str], "ab"),
        (list[str], {"a": 1}),
        (list[str], 5),
        (set[str], "ab"),
        (frozenset[str], {"a": 1}),
        (tuple[str, ...], "ab"),
        (Annotated[list[int], Field(min_length=2)], [1]),
        (Annotated[list[int], Field(max_length=2)], [1, 2, 3]),
        (Annotated[set[int], Field(min_length=2)], [1, 1]),
        (Annotated[tuple[int, ...], Field(max_length=2)], [1, 2, 3]),
        (set[Any], [1, [], {}]),
        (tuple[int, str], [1, 2]),
        (tuple[int, *tuple[str, ...]], [1, "a", 2]),
        (deque[int], [1, "a"]),
        (dict[str, int], {"a": 1, "b": "c", "d": "e"}),
        (dict[str, list[int]], {"a": [1, "b"], "c": ["d"]}),
        (dict[int, int], {"1": 2, "a": 3}),
        (list[Closed], [{"number": 1}, {"number": 2, "nmae": 3}, {}]),
        (list[Open], [{"number": 1, "more": [2]}, {}]),
        (list[Checked], [{"numbers": [1, 2, 3, 4]}, {"numbers": ["a"]}]),
        (list[Point], [{"x": 1, "tags": ["a"]}, {"y": 1}]),
        (Options, {"deep": 1}),
        (list[Options], [{"depth": 1}, {"deep": 1}]),
        (list[list[Closed]], [[{"number": 1}], [{"number": "a", "b": 1}]]),
        (Annotated[list[int], BeforeValidator(tuple)], [1, 2]),
        (list[int] | dict[str, int], {"a": 1}),
        (list[int] | list[str], ["a", "b"]),
        (list[int] | list[float], [1.0, 2.0]),
        (list[Closed | Open], [{"number": 1}, {"number": 1, "more": 2}, {"name": "a"}]),
        (Sum, {"left": 1, "right": {"left": 1, "right": 2, "factor": 3}}),
        (Nested, {"a": [1, {"b": [2]}]}),
        (Any, {"a": [1, {"b": [2.5, None]}], "": [], "b": "b"}),
        (list[Any], [[[1]], {"a": {"b": []}}, True, 10**30]),
        (dict[str, Any], {"a": [[1, 2], [3]], "b": {"c": [4]}}),
        (int, [1, 2, [3]]),
        (str, {"a": [1, 2]}),
        (list[int] | None, [1, [2]]),
        (list[int] | int | None, [1, "a"]),
        (int | list[Closed] | dict[str, Closed], [{"number": "a"}, {"number": 1}]),
        (Annotated[dict[str, int], Field(max_length=2)], {"a": 1, "b": 2, "c": 3}),
        (Annotated[dict[str, int], Field(min_length=2)], {"a": 1}),
        (dict[int, list[int]], {"1": [1, 2], "b": [1], "3": ["c"]}),
        (Data, {"numbers": [1, 2], "more": {"a": ["b"]}}),
        (Data, {"numbers": ["a", 2], "more": {"a": [1]}, "nmbers": [[1]], "count": [1]}),
        (Data, {"more": {}}),
        (Data, {"numbers": None, "more": {"a": [1, 2, 3]}}),
        (list[Data], [{"numbers": [1, 2]}, {"numbers": [3, "a"]}, {"numbers": {}}]),
        (Aliased, {"list": [1, 2], "numbers": [3]}),
        (Aliased, {"list": [1, "a"], "texts": [1, 2]}),
        (Aliased, {"texts": ["a", "b"]}),
        (Ignoring, {"number": [1, 2], "more": [[1], [2]], "a": 1}),
    ],
)
def test_what_is_accepted_and_refused_is_the_same_in_steps(annotation: Any, value: Any, piece_bytes: int) -> None:
    """Values, and the problems of short documents, are equal: words, paths and order."""
    at_once, in_steps = both(annotation, value, piece_bytes)
    assert in_steps == at_once


def test_a_model_without_extras_has_none_in_steps() -> None:
    """Models that refuse unknown fields are equal to those made at once."""
    (at_once, _), (in_steps, _) = both(Closed, {"number": 1})
    assert at_once == in_steps == Closed(number=1)
    assert in_steps.model_extra is None


COUNT = 30_000


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], [1] * COUNT),
        (set[int], list(range(COUNT))),
        (tuple[int, ...], [1] * COUNT),
        (list[list[int]] | None, [[]] * COUNT),
        (list[Closed], [{"number": 1}] * COUNT),
        (list[Closed], [{}] * COUNT),
        (list[Closed | Point], [{}] * COUNT),
        (dict[str, int], {f"a{number}": 1 for number in range(COUNT)}),
        (dict[str, list[Any]], {f"a{number}": [[]] for number in range(COUNT)}),
        (Any, [{}] * COUNT),
        (dict[str, Any], {"a": [{"b": [[]] * COUNT}]}),
        (Nested, [[[1, {"a": [[]] * COUNT}]]]),
        (int | list[int] | dict[str, Closed], [""] * COUNT),
        (Closed, {f"a{number}": 1 for number in range(COUNT)}),
        (Data, {"numbers": [1] * COUNT, "more": {"a": [1] * COUNT}}),
        (Data, {"count": [[]] * COUNT}),
        (int, [[]] * COUNT),
    ],
)
def test_no_call_of_the_parser_gets_more_than_a_piece(
    annotation: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of the parser holds the event loop, so it gets a piece of the arguments, accepted or refused."""
    sizes: list[int] = []
    made = Bounded.validator

    def counting(self: Bounded, *args: Any) -> Callable[[bytes], Any]:
        validate = made(self, *args)

        def counted(data: bytes) -> Any:
            sizes.append(len(data))
            return validate(data)

        return counted

    monkeypatch.setattr(Bounded, "validator", counting)
    data = arguments(annotation, value)
    answer(taking_tool(annotation), data)
    assert len(data) > 4 * json_outline.PIECE_BYTES
    assert 0 < max(sizes) < json_outline.PIECE_BYTES * 5 // 4


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], ["a"] * 5000),
        (tuple[int, ...], [[]] * 5000),
        (set[int], ["a"] * 5000),
        (dict[str, int], {f"a{number}": "b" for number in range(5000)}),
        (list[Closed], [{}] * 5000),
        (Closed, {f"a{number}": 1 for number in range(5000)}),
        (Options, {f"a{number}": 1 for number in range(5000)}),
        (list[list[int]], [["a"] * 50] * 100),
        (dict[str, list[int | bool | UUID]], {f"a{number}": ["b"] * 50 for number in range(100)}),
        (list[dict[str, int]], [{f"a{number}": "b" for number in range(50)}] * 100),
    ],
)
def test_problems_stop_at_the_limit(annotation: Any, value: Any) -> None:
    """A document with thousands of problems is answered with the first hundred, and no more are collected."""
    taken = taking_tool(annotation)
    with pytest.raises(TakesLong) as long:
        taken.parse(arguments(annotation, value))
    used = Work()
    with pytest.raises(AgentError) as refused:
        long.value.check(used)
    assert refused.value.details is not None
    assert len(refused.value.details["problems"]) == 100
    assert used.failures < 2 * work.MAX_FAILURES


@pytest.mark.usefixtures("in_steps")
def test_more_problems_than_are_told_apart_are_one() -> None:
    """What a union refuses with thousands of errors is refused in one sentence."""
    _, message, _ = answer(taking_tool(Closed | Add), json.dumps({"x": {f"a{n}": 1 for n in range(9000)}}).encode())
    assert message == "argument 'x' must be valid: more than 5000 problems were found"


def _deep(levels: int, innermost: Any) -> Any:
    for _ in range(levels):
        innermost = {"left": 1, "right": innermost, "factor": 1}
    return innermost


def test_recursive_unions_stop_at_a_bound_of_attempts() -> None:
    """Two arms of a union that contain the union again would take a time that doubles with each level."""
    taken = taking_tool(Sum)
    code, message, _ = answer(taken, json.dumps({"x": _deep(60, "a")}).encode())
    assert code == "INVALID_ARGUMENTS"
    assert message == "the arguments could fit the types in too many ways: nest them less"


def test_recursive_unions_that_take_longer_are_finished_in_steps() -> None:
    """What takes more attempts than the event loop gives is checked in a thread."""
    taken = taking_tool(Sum)
    data = json.dumps({"x": _deep(10, 1)}).encode()
    with pytest.raises(TakesLong) as long:
        taken.parse(data)
    assert long.value.check(Work()) == {"x": parsed(taken, data)["x"]}


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize(
    ("annotation", "make"),
    [
        (set[int], lambda prime: [number * prime for number in range(200)]),
        (frozenset[UUID], lambda prime: [str(UUID(int=number * prime)) for number in range(200)]),
        (dict[int, int], lambda prime: {str(number * prime): 1 for number in range(200)}),
        (list[set[int] | None], lambda prime: [[number * prime for number in range(200)]]),
    ],
)
def test_numbers_chosen_to_have_one_hash_are_refused(annotation: Any, make: Callable[[int], Any]) -> None:
    """A set of numbers with equal hashes takes quadratic time, so it is refused after a hundred."""
    value = make(sys.hash_info.modulus)
    code, message, _ = answer(taking_tool(annotation), json.dumps({"x": value}).encode())
    assert code == "INVALID_ARGUMENTS"
    assert "the same hash" in message


@pytest.mark.usefixtures("in_steps")
def test_equal_items_of_a_set_are_no_collision() -> None:
    """Repeating one item is no attack."""
    assert answer(taking_tool(set[int]), json.dumps({"x": [7] * 5000}).encode())[0] == {7}


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [(list[Closed], [{"number": 1}] * 3000), (dict[str, Closed], {f"a{n}": {"number": 1} for n in range(3000)})],
)
def test_memory_is_bounded(annotation: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that need more memory than one request may have are not all made."""
    monkeypatch.setattr(work, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(bounded_validator, "_bytes_parsed", lambda data, _: len(data))
    code, message, _ = answer(taking_tool(annotation), json.dumps({"x": value}).encode())
    assert code == "INVALID_ARGUMENTS"
    assert message.endswith("MiB of memory")


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], [1] * 3000),
        (list[Closed], [{"number": 1}] * 3000),
        (dict[str, int], {f"a{number}": 1 for number in range(3000)}),
        (list[int] | dict[str, Closed], {f"a{number}": {"number": 1} for number in range(3000)}),
        (Nested, [[1] * 10] * 300),
        (Closed, {f"a{number}": 1 for number in range(3000)}),
    ],
)
def test_an_abandoned_check_ends_at_its_next_step(annotation: Any, value: Any) -> None:
    """Where a check would go on, it looks whether its call is still there."""
    with pytest.raises(TakesLong) as long:
        taking_tool(annotation).parse(arguments(annotation, value))
    used = _Leaving(10)
    with pytest.raises(Abandoned):
        long.value.check(used)
    assert used.steps < 20


class _Leaving(Work):
    """Work that is abandoned after some steps."""

    __slots__ = ("_left", "steps")

    def __init__(self, left: int) -> None:
        super().__init__()
        self._left = left
        self.steps = 0

    def _count(self) -> None:
        self.steps += 1
        self.abandoned = self.steps >= self._left

    def step(self, size: int) -> None:
        self._count()
        super().step(size)

    def attempt(self) -> None:
        self._count()
        super().attempt()


LONG: Sequence[tuple[str, bool]] = [
    ("[" + ",".join(["1"] * 5000) + "]", True),
    ('["' + "a" * 100_000 + '"]', False),
    ("[1]", False),
]


@pytest.mark.parametrize(("text", "is_long"), LONG)
def test_what_counts_as_long_is_the_number_of_values(text: str, is_long: bool) -> None:
    """A long text is validated at once; many values are not."""
    taken = taking_tool(list[Any])
    data = b'{"x":%s}' % text.encode()
    if is_long:
        with pytest.raises(TakesLong):
            taken.parse(data)
    else:
        assert taken.parse(data)["x"] == json.loads(text)


def test_marks_in_strings_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text is not taken for a long list, whatever is in it."""
    monkeypatch.setattr(work, "MAX_BYTES", 100_000)
    monkeypatch.setattr(bounded_validator, "MAX_BYTES", 100_000)
    taken = taking_tool(list[Any])
    text = ',[{:\\"' * 2000
    assert parsed(taken, json.dumps({"x": [text, "", text]}).encode()) == {"x": [text, "", text]}
    with pytest.raises(AgentError, match="memory"):
        parsed(taken, json.dumps({"x": [0] * 5000}).encode())
