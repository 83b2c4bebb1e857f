"""What an `AgentError` may say is checked or bounded when it is made."""

import enum
import math
from typing import Any

import msgspec
import pytest

from carmy_engine import AgentError, ErrorInfo
from carmy_engine._model.error_info import MAX_CODE_CHARS, MAX_DETAILS_BYTES, MAX_RETRY_AFTER_SECONDS
from carmy_engine._model.text import MAX_MESSAGE_CHARS
from carmy_engine.codec import answer_body
from tests.engine.kit import bench, code, read, told


def error(**fields: Any) -> AgentError:
    return AgentError("BUSY", fields.pop("message", "m"), "capacity", retryable=True, **fields)


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, -5, -0.001, True, "5"], ids=repr)
def test_a_wait_is_a_finite_number(seconds):
    """Anything but a finite number of seconds >= 0 is refused where the error is made."""
    with pytest.raises(ValueError, match="retry_after is a finite number of seconds"):
        error(retry_after=seconds)


@pytest.mark.parametrize("seconds", [0, 0.5, 60, MAX_RETRY_AFTER_SECONDS])
def test_a_wait_is_kept(seconds):
    """A wait in range is passed on as it is."""
    assert error(retry_after=seconds).retry_after == seconds


@pytest.mark.parametrize("seconds", [MAX_RETRY_AFTER_SECONDS + 1, 1e300, 10**400], ids=["more", "float", "integer"])
def test_a_long_wait_is_cut(seconds):
    """A wait that outlives every caller counts as the longest one."""
    assert error(retry_after=seconds).retry_after == MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize("made", ["", "x" * (MAX_CODE_CHARS + 1), "A\ud800", "A\nB", 5, None], ids=ascii)
def test_a_code_is_short(made):
    """A code is a text that programs can compare and records can hold."""
    with pytest.raises(ValueError, match="the code of an AgentError"):
        AgentError(made, "m", "internal")


def test_texts_are_cut():
    """Message and advice have a bound; what is left out is marked."""
    made = error(message="x" * 20_000_000, suggested_action="y" * 20_000_000)
    for text in (made.message, made.suggested_action or ""):
        assert len(text) == MAX_MESSAGE_CHARS
        assert text.endswith("…")
    assert error(message="x" * MAX_MESSAGE_CHARS).message == "x" * MAX_MESSAGE_CHARS


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(math.inf, MAX_RETRY_AFTER_SECONDS), (-5.0, None), (math.nan, None), (2.0, 2.0), (None, None)],
)
def test_an_error_from_elsewhere_is_bounded(seconds, expected):
    """Data of another executor or a store is brought into range, not refused."""
    info = ErrorInfo(
        code="X", message="x" * 20_000, category=error().category, recoverable=True, retryable=True, retry_after=seconds
    )
    made = AgentError.of(info)
    assert made.retry_after == expected
    assert len(made.message) == MAX_MESSAGE_CHARS


class Text(str):
    """Such as markup and lazy translations."""

    __slots__ = ()


class Seconds(float):
    """Such as a number of numpy."""

    __slots__ = ()


class Codes(enum.StrEnum):
    """Codes of an application."""

    BUSY = "BUSY"


async def test_an_error_of_subclasses_and_surrogates_is_sent():
    """Texts and numbers of a subclass are sent as the plain value, and a lone surrogate as a question mark."""

    @read
    async def odd() -> None:
        raise AgentError(
            Codes.BUSY, Text("m\ud800"), "capacity", retry_after=Seconds(1.5), suggested_action=Text("wait")
        )

    @read
    async def coded() -> None:
        raise AgentError(Text("BUSY"), "m", "capacity")

    async with bench(odd, coded) as b:
        sent = msgspec.json.decode(answer_body(await b.call("odd")))["error"]
        assert (sent["code"], sent["message"], sent["retry_after"]) == ("BUSY", "m?", 1.5)
        assert msgspec.json.decode(answer_body(await b.call("coded")))["error"]["code"] == "BUSY"


@pytest.mark.parametrize("message", [5, None, ValueError("m")], ids=repr)
def test_a_message_is_a_text(message):
    """Anything but a text is refused where the error is made."""
    with pytest.raises(TypeError, match="a text is needed, not"):
        AgentError("X", message, "internal")


async def test_large_details_are_left_out(caplog):
    """Details over the limit do not reach the caller; the log states how large they were."""

    @read
    async def large(size: int) -> None:
        raise error(details={"text": "x" * size})

    async with bench(large) as b:
        assert told(await b.call("large", {"size": MAX_DETAILS_BYTES + 1})) is None
        assert told(await b.call("large", {"size": 1000})) == {"text": "x" * 1000}
    assert "are left out" in caplog.text


class Odd(AgentError):
    """Overrides what the engine reads."""

    @property
    def code(self) -> str:
        raise SystemExit

    @property
    def details(self) -> Any:
        raise SystemExit

    def __str__(self) -> str:
        raise SystemExit


class Broken(AgentError):
    """Was never made by `AgentError`."""

    def __init__(self) -> None:
        pass


async def test_subclasses_of_agent_error_cannot_mislead_the_engine(caplog):
    """What a subclass overrides is not asked; one that holds no error is a fault."""

    @read
    async def odd() -> None:
        raise Odd("ODD", "m", "conflict")

    @read
    async def broken() -> None:
        raise Broken

    async with bench(odd, broken) as b:
        result = await b.call("odd")
        assert code(result) == "ODD"
        assert msgspec.json.decode(answer_body(result))["error"]["message"] == "m"
        assert await b.code("broken") == "TOOL_PANIC"
        assert await b.code("echo", {"text": "alive"}) == "ok"
