"""Names that are there twice, found without reading the arguments."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import tracemalloc

import msgspec
import pytest

from carmy_engine import AgentError
from carmy_engine.codec import LONG_MESSAGE_BYTES, duplicate_key
from carmy_http.api.execute import parse

NAMES = ("tool", "arguments", "request_id", "timeout_ms", "on_running")
TEXTS = ("echo", "tool", "arguments", '"arguments":', '"tool":', "\u00e9", "\u2028", "\\", '"', "x" * 300, "x" * 5000)
BLANKS = ("", "", " ", "\n\t ")


def some_value(rng: random.Random, levels: int) -> object:
    """A value in which names of fields are names and texts."""
    if levels == 0 or rng.random() < 0.2:
        return rng.choice((*TEXTS, 1, None, 12, 1.5))
    if rng.random() < 0.5:
        return [some_value(rng, levels - 1) for _ in range(rng.randrange(3))]
    return {name: some_value(rng, levels - 1) for name in rng.sample(NAMES + TEXTS, rng.randrange(4))}


def spelled(rng: random.Random, name: str) -> str:
    """A name in JSON, now and then with an escape."""
    if rng.random() < 0.9:
        return f'"{name}"'
    at = rng.randrange(len(name))
    return f'"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}"'


def some_body(rng: random.Random) -> bytes:
    """An object with fields that are right by themselves, in any order and spelling, and some of them twice."""
    names = ["tool", *rng.choices(NAMES, weights=(1, 6, 1, 1, 1), k=rng.randrange(4))]
    rng.shuffle(names)
    common = some_value(rng, 3)
    values = {
        "tool": lambda: rng.choice(TEXTS),
        "arguments": lambda: common if rng.random() < 0.3 else some_value(rng, 3),
        "request_id": lambda: rng.choice((*TEXTS, None)),
        "timeout_ms": lambda: rng.choice((1, 2.5, None)),
        "on_running": lambda: "wait",
    }
    members = [
        rng.choice(BLANKS)
        + spelled(rng, name)
        + rng.choice(BLANKS)
        + ":"
        + rng.choice(BLANKS)
        + json.dumps(values[name](), ensure_ascii=rng.random() < 0.5)
        for name in names
    ]
    return "{{{}{}}}".format(",".join(members), rng.choice(BLANKS)).encode()


@pytest.mark.parametrize("seed", range(4))
def test_a_name_is_there_twice(seed: int) -> None:
    """A body is refused exactly when a full parse finds a name of the outermost object twice; else its arguments arrive."""
    rng = random.Random(seed)
    twice = 0
    for _ in range(1000):
        body = some_body(rng)
        name = duplicate_key(body)
        if name is None:
            arguments = parse(body, ()).arguments
            assert isinstance(arguments, msgspec.Raw)
            assert json.loads(bytes(arguments)) == json.loads(body).get("arguments"), body
            continue
        twice += 1
        with pytest.raises(AgentError, match=f"the field '{name}' is there twice"):
            parse(body, ())
    assert 200 < twice < 800


@pytest.mark.parametrize(
    "body",
    [
        b'{"tool":"a","arguments":%b,"arguments":%b}',
        b'{"arguments":%b,"tool":"a","arguments": %b}',
        b'{"tool":"a","\\u0061rguments":{"arguments":%b},"arguments":%b}',
        b'{"arguments":%b,"tool":"a","\\u0061rguments":{"arguments":%b}}',
        b'{"tool":"a","arguments":%b,"t\\u006fol":%b}',
        b'{"tool":"a","request_id":null,"arguments":{"request_id":%b},"request_id":%b}',
        b'{"tool":"a","arguments":1,"request_id":%b,"arguments":12,"request_id":%b}',
    ],
)
@pytest.mark.parametrize("size", [0, 1000, 100_000])
def test_the_same_bytes_twice(body: bytes, size: int) -> None:
    """A name that is there twice is found also when both have the same value, and however long that is."""
    value = b'"%b"' % (b"x" * size)
    with pytest.raises(AgentError, match="is there twice"):
        parse(body % (value, value), ())


@pytest.mark.parametrize("twice", [b"", b',"t\\u006fol":"b"'], ids=["once", "twice"])
def test_names_of_a_long_body_are_compared_in_pieces(twice: bytes) -> None:
    """A name with an escape makes the body be read once more. Its values are not kept then, and others run in between."""
    body = b'{"\\u0074ool":"a","arguments":[%b0]%b}' % (b"[]," * 350_000, twice)
    pulses: list[None] = []
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(AgentError, match="is there twice") if twice else contextlib.nullcontext():
            parse(body, (), lambda: pulses.append(None))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(pulses) > 2 * len(body) // LONG_MESSAGE_BYTES
    assert most < 3 * len(body)  # all lists at once would take twenty times the length
