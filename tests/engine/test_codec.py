"""What is refused before anything is parsed: decided without a parser, but never differently from one."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from carmy_engine import AgentError
from carmy_engine.codec import MAX_JSON_DEPTH, check_json, decode

TEXTS = (
    "", "e", "E+", "[[[", "]}", "{", '"', "\\", '\\"', '"]"[', "1e999", "e+0+0+0", "\n", "\u00e9", "\u2028",
    "tool", "9" * 400, "The end. ", "x" * 300, "[" * 200, '"' * 40, "\\" * 41, "x" * 5000, 'say "so" \\ or [1] ' * 300,
)  # fmt: skip
GOOD = (
    "0", "-1", "1e5", "1E+30", "1e-400", "0e999", "1.5e308", "1e0308", "0." + "0" * 400 + "1", "12345678901234567890",
    "9" * 209 + "e99", "9" * 210 + "e-99", "1" + "0" * 308, "9" * 4300,
)  # fmt: skip
NUMBERS = (
    *GOOD, "1e0309", "1E309", "-1e+999", "9" * 210 + "e99", "9" * 210 + "E+99", "9" * 300 + ".5e20", "9" * 309 + ".0",
    "-" + "9" * 4301,
)  # fmt: skip


def depth_of(value: Any) -> int:
    """Levels of arrays and objects."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def numbers_in(value: Any) -> Iterator[float]:
    """All numbers."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(item)
    elif isinstance(value, float):
        yield value


def whole(digits: str) -> float:
    """What an integer counts as: they are exact, up to as many digits as Python converts."""
    return math.inf if len(digits.lstrip("-")) > 4300 else 0.0


def must_refuse(data: bytes) -> str:
    """What is wrong with this valid JSON, by what a full parse finds in it; empty for nothing."""
    value = json.loads(data, parse_int=whole)
    if depth_of(value) > MAX_JSON_DEPTH:
        return "nested"
    return "" if all(map(math.isfinite, numbers_in(value))) else "range"


def refused(data: bytes) -> str:
    """What `check_json` says against it; empty for nothing."""
    try:
        check_json(data)
    except AgentError as error:
        return f"{error.code}: {error.message}"
    return ""


def some_json(rng: random.Random, left: int) -> str:
    """JSON of the kinds that the checks could take for one another."""
    kind = rng.randrange(5) if left else rng.randrange(3)
    if kind == 0:
        return json.dumps("".join(rng.choices(TEXTS, k=rng.randrange(4))), ensure_ascii=rng.random() < 0.5)
    if kind == 1:
        return rng.choice(NUMBERS if rng.random() < 0.2 else GOOD)
    if kind == 2:
        levels = rng.choice((1, 2, 100, 120, 124, 125, 126, 127))
        return "[" * levels + json.dumps(rng.choice(TEXTS)) + "]" * levels
    items = [some_json(rng, left - 1) for _ in range(rng.randrange(5))]
    if kind == 3:
        return f"[{', '.join(items)}]"
    return "{" + ",".join(f"{json.dumps(rng.choice(TEXTS) + str(n))}: {item}" for n, item in enumerate(items)) + "}"


def some_documents(seed: int, count: int) -> Iterator[bytes]:
    """Documents of all sizes, one in four of many times the same."""
    rng = random.Random(seed)
    for _ in range(count):
        text = some_json(rng, 4)
        if rng.random() < 0.25:
            text = f"[{','.join([text] * rng.randrange(2, 60))}]"
        yield text.encode()


@pytest.mark.parametrize("seed", range(4))
def test_only_depth_and_numbers_are_refused(seed: int) -> None:
    """Of valid JSON exactly that is refused which a parser finds too deep or beyond the floats, whatever is in strings."""
    seen = {"": 0, "nested": 0, "range": 0}
    for data in some_documents(seed, 400):
        wrong = must_refuse(data)
        said = refused(data)
        assert wrong in said, data
        assert bool(wrong) == bool(said), data
        seen[wrong] += 1
    assert min(seen.values()) > 5


AT_A_CUT = (
    '"\\\\"', '"\\"["', '"\\\\\\"]]"', '"\\\\[[["', '"\u00e9\U0001f600"', '"1e999"', "1e999", "9" * 400, '"' + "9" * 400 + '"',
    "[" * 127 + "]" * 127, "[" * 128 + "]" * 128, '"' + "[" * 200 + '"', '["",""," "]',
)  # fmt: skip
CUT_BYTES = 64 * 1024
"""Long messages are checked in pieces of this size."""


@pytest.mark.parametrize("token", AT_A_CUT, ids=range(len(AT_A_CUT)))
def test_long_messages_are_checked_as_short_ones(token: str) -> None:
    """Wherever a piece ends, in an escape, a character, a string, a number or between brackets, the decision is the same."""
    data = token.encode()
    for offset in range(min(len(data), 12) + 2):
        pulses: list[None] = []
        whole = b"[" + b" " * (CUT_BYTES - 1 - offset) + data + b',"' + b"x" * CUT_BYTES + b'",' + data + b"]"
        wrong = must_refuse(whole)
        assert wrong in refused(whole), offset
        assert bool(wrong) == bool(refused(whole)), offset
        if not wrong:
            check_json(whole, pulse=lambda to=pulses: to.append(None))  # type: ignore[misc]
            assert len(pulses) >= len(whole) // CUT_BYTES


@pytest.mark.parametrize("at", [1, CUT_BYTES - 1, CUT_BYTES, CUT_BYTES + 1, 3 * CUT_BYTES])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\x80\x80\x80\x80", b"\xed\xa0\x80"])
def test_bytes_of_long_messages_that_are_no_text(at: int, bad: bytes) -> None:
    """Bytes that are not UTF-8 are found in each piece, and where one ends."""
    assert refused(b'"' + b"x" * at + bad + b"x" * CUT_BYTES + b'"').endswith("is not valid UTF-8")


def test_what_a_pulse_raises_ends_the_check() -> None:
    """A message whose client has left is not read to its end."""

    def leave() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        check_json(b'["%b"]' % (b"x" * CUT_BYTES), pulse=leave)


@pytest.mark.parametrize("seed", range(4))
def test_damage_hides_nothing(seed: int) -> None:
    """What passes both the checks and the parser is valid, however the bytes were changed on the way."""
    rng = random.Random(seed)
    passed = 0
    for data in some_documents(seed, 400):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(damaged) + 1)
            damaged[at : at + rng.randrange(2)] = rng.choice((b'"', b"\\", b"[", b"]", b"e", b"000", b"", b" "))
        try:
            check_json(bytes(damaged))
            decode(bytes(damaged))
        except AgentError:
            continue
        assert must_refuse(bytes(damaged)) == ""
        passed += 1
    assert passed


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("beside", ["", "x" * 10_000, 'say "so" ' * 2000], ids=["short", "long", "quoted"])
def test_numbers_beyond_floats(number: str, beside: str) -> None:
    """A number that no float holds is refused wherever it is, and one that just fits is not."""
    data = f"[{json.dumps(beside)}, {number}]".encode()
    wrong = must_refuse(data)
    assert wrong in refused(data)
    assert bool(wrong) == bool(refused(data))
    assert refused(json.dumps([beside, number]).encode()) == ""


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize(
    "inner",
    ['"]]]"', json.dumps("]" * 10_000), json.dumps('\\"]' * 2000), ",".join(['"]"', '"\\\\"', '"\\"]"'] * 500)],
    ids=["short", "long", "escaped", "many"],
)
def test_depth_is_exact(inner: str, extra: int) -> None:
    """As many levels as are allowed pass and one more does not, whatever closing brackets strings hold."""
    levels = MAX_JSON_DEPTH + extra
    opening, closing = '{"a":[' * (levels // 2) + "[" * (levels % 2), "]" * (levels % 2) + "]}" * (levels // 2)
    assert ("nested" in refused((opening + inner + closing).encode())) == bool(extra)


@pytest.mark.parametrize("extra", [0, 1])
def test_depth_is_exact_up_and_down(extra: int) -> None:
    """Arrays close to the limit can be as many as there is room for."""
    levels = MAX_JSON_DEPTH - 2 + extra
    data = b"[" * levels + b",".join([b"[[],{}]"] * 500) + b"]" * levels
    assert ("nested" in refused(data)) == bool(extra)


def calls_for(data: bytes) -> int:
    """How many functions, of Python or C, are called to check this."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        refused(data)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "piece",
    [
        b"[",
        b"]",
        b'"',
        b"\\",
        b'["',
        b'\\"',
        b"\\\\",
        b'"\\',
        b"e",
        b"e0",
        b"9",
        b"9" * 209 + b"x",
        b'"[]",',
        b"[[]],",
        b"{}",
    ],
    ids=repr,
)
def test_nothing_makes_it_look_closely(piece: bytes) -> None:
    """However a message is made, one look of Python's own is for many bytes."""
    data = (b'{"a":' + b"[" * 100 + piece * 300_000)[:300_000]
    assert calls_for(data) < len(data) / 20
