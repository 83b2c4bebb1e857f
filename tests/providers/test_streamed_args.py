"""Gemini's arguments in pieces: what comes of them whole, cut off, out of order and malformed."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from carmy_engine import ModelCall, ToolRegistry, tool
from carmy_engine.providers import provider


@tool(effect="none", name="light.control", register=False)
async def control(brightness: int, colour: str) -> None:
    """Set a lamp."""


GEMINI = provider("gemini", ToolRegistry().register(control).specs.values())


def begin(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "willContinue": True, **more}


def piece(path: str, **value: Any) -> dict[str, Any]:
    """A part of a call with one piece. Each says that it continues, as those of Vertex AI do, whether it does or not."""
    return {"partialArgs": [{"jsonPath": path, **value, "willContinue": True}], "willContinue": True}


def streamed(*calls: dict[str, Any]) -> list[ModelCall]:
    """The calls of a stream with one of these in each response."""
    stream = GEMINI.stream()
    for call in calls:
        content = {"role": "model", "parts": [{"functionCall": call}]}
        stream.feed({"candidates": [{"content": content}], "responseId": "abc"})
    return stream.calls()


def arguments(*pieces: dict[str, Any]) -> Any:
    (call,) = streamed(begin("x"), *pieces, {})
    assert call.problem is None
    return json.loads(bytes(call.arguments))  # type: ignore[arg-type]


def test_a_call_is_put_together() -> None:
    """A name, values by path, texts in several pieces and an empty end are one call with one set of arguments."""
    calls = streamed(
        begin("light_control", id="call_7"),
        piece("$.brightness", numberValue=50),
        piece("$.colour", stringValue="warm"),
        piece("$.colour", stringValue=" "),
        piece("$.colour", stringValue=" "),
        piece("$.colour", stringValue="white"),
        {},
    )
    (call,) = calls
    assert (call.tool, call.call_id, call.generated, call.problem) == ("light.control", "call_7", False, None)
    assert json.loads(bytes(call.arguments)) == {"brightness": 50, "colour": "warm  white"}  # type: ignore[arg-type]


def test_calls_side_by_side_are_told_apart() -> None:
    """A name begins the next call, with or without an end before it; whole calls may stand between them."""
    calls = streamed(
        begin("a"),
        piece("$.n", numberValue=1),
        begin("b"),
        piece("$.n", numberValue=2),
        {},
        {"name": "c", "args": {"n": 3}},
        begin("d"),
        {"partialArgs": [{"jsonPath": "$.n", "numberValue": 4}]},
    )
    assert [(call.name, json.loads(bytes(call.arguments))["n"]) for call in calls] == [  # type: ignore[arg-type]
        ("a", 1),
        ("b", 2),
        ("c", 3),
        ("d", 4),
    ]
    assert len({call.call_id for call in calls}) == 4


def test_every_kind_of_value_and_path() -> None:
    """Numbers, texts, truth and null; members, items and names in quotes, as deep as they go."""
    assert arguments(
        piece("$.yes", boolValue=True),
        piece("$.no", boolValue=False),
        piece("$.none", nullValue="NULL_VALUE"),
        piece("$.empty", stringValue=""),
        piece("$.half", numberValue=0.5),
        piece("$.foo.bar[0].data", stringValue="a"),
        piece("$.foo.bar[0].data", stringValue="b"),
        piece("$.foo.bar[1].data", stringValue="c"),
        piece("$['two words'][\"it's\"]", numberValue=1),
        piece("$['a\\'b']", numberValue=2),
        piece("$.grid[0][0]", numberValue=1),
        piece("$.grid[0][1]", numberValue=2),
        piece("$.größe", numberValue=3),
        {"partialArgs": [{"jsonPath": "$.foo.bar[1].data"}], "willContinue": True},
    ) == {
        "yes": True,
        "no": False,
        "none": None,
        "empty": "",
        "half": 0.5,
        "foo": {"bar": [{"data": "ab"}, {"data": "c"}]},
        "two words": {"it's": 1},
        "a'b": 2,
        "grid": [[1, 2]],
        "größe": 3,
    }


def test_no_arguments_at_all() -> None:
    """A call whose pieces are none has none."""
    assert arguments() == {}


def test_a_call_that_is_cut_off_is_answered_as_such() -> None:
    """Without its end the arguments cannot be read, however complete they look, so that no tool runs on half of them."""
    (call,) = streamed(begin("light_control"), piece("$.brightness", numberValue=5))
    assert call.problem is not None
    assert call.problem.code == "INVALID_ARGUMENTS"
    assert call.problem.message.endswith("they may have been cut off")


@pytest.mark.parametrize(
    "pieces",
    [
        [("brightness", 1)],
        [("$", 1)],
        [("", 1)],
        [("$.", 1)],
        [("$.a b", 1)],
        [("$.a[", 1)],
        [("$.a[-1]", 1)],
        [("$.a[*]", 1)],
        [("$..a", 1)],
        [("$['a", 1)],
        [("$[0]", 1)],
        [("$.a[1]", 1)],
        [("$.a[999999999]", 1)],
        [("$.a[99999999999999999999]", 1)],
        [("$.a", 1), ("$.a.b", 1)],
        [("$.a.b", 1), ("$.a[0]", 1)],
        [("$.a[0]", 1), ("$.a.b", 1)],
        [("$.a", 1), ("$.a", 2)],
        [("$" + ".a" * 100_000, 1)],
    ],
)
def test_a_piece_without_a_place_is_refused(pieces: list[tuple[str, int]]) -> None:
    """Paths that are none, that leave gaps or that contradict those before are no response of Gemini; none costs memory."""
    with pytest.raises(ValueError, match="has no place in the pieces before it") as refusal:
        streamed(begin("x"), *[piece(path, numberValue=value) for path, value in pieces], {})
    assert len(str(refusal.value)) < 250


def test_the_librarys_own_objects_are_read() -> None:
    """Pieces as the ``google-genai`` library gives them are the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        google = pytest.importorskip("google.genai.types")
        parts = [
            google.FunctionCall(name="light_control", will_continue=True),
            google.FunctionCall(
                partial_args=[
                    google.PartialArg(json_path="$.brightness", number_value=50),
                    google.PartialArg(json_path="$.colour", string_value="wa", will_continue=True),
                ],
                will_continue=True,
            ),
            google.FunctionCall(partial_args=[google.PartialArg(json_path="$.colour", string_value="rm")]),
        ]
        stream = GEMINI.stream()
        for part in parts:
            content = google.Content(role="model", parts=[google.Part(function_call=part)])
            stream.feed(google.GenerateContentResponse(candidates=[google.Candidate(content=content)]))
    (call,) = stream.calls()
    assert json.loads(bytes(call.arguments)) == {"brightness": 50, "colour": "warm"}  # type: ignore[arg-type]
