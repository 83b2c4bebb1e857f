"""Long JSON in pieces: the pieces together are the document, and none is longer than it has to be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carmy_engine._model import json_outline
from carmy_engine._model.fingerprint import fingerprint
from carmy_engine._model.json_outline import PIECE_BYTES, Container, outline
from carmy_engine._model.json_pieces import decode_in_pieces
from carmy_engine.codec import decode

TEXTS = st.text(st.sampled_from('ab"\\[]{},: é\n\u2028😀'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


def nothing() -> None:
    """No pulse."""


@given(VALUES, st.sampled_from([None, 1]), st.sampled_from([0, 8, 40]))
@example([[{}, [{}]], {}, None], None, 0)
def test_the_pieces_together_are_the_document(value: Any, indent: int | None, piece_bytes: int) -> None:
    """Whatever a document holds, and wherever it is cut."""
    data = json.dumps(value, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_outline, "PIECE_BYTES", piece_bytes)
        assert decode_in_pieces(data, decode, nothing) == value


@given(st.dictionaries(TEXTS, VALUES, max_size=5), st.sampled_from([0, 8, 40]))
def test_a_fingerprint_does_not_depend_on_the_pieces(arguments: dict[str, Any], piece_bytes: int) -> None:
    """An answer that was stored under a fingerprint is found again by the same request."""
    data = json.dumps(arguments, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_outline, "PIECE_BYTES", piece_bytes)
        assert fingerprint("a", data, {"b": 1}, nothing) == fingerprint("a", data, {"b": 1})


def test_the_last_of_two_equal_names_counts_in_pieces() -> None:
    """As in one step."""
    data = b'{"a":[1],"b":2,"a":3,"c":4,"b":[[5]]}'
    for piece_bytes in (0, 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_outline, "PIECE_BYTES", piece_bytes)
            assert decode_in_pieces(data, decode, nothing) == {"a": 3, "b": [[5]], "c": 4}
            assert fingerprint("t", data, None, nothing) == fingerprint("t", data, None)


def _runs(container: Container) -> Iterator[int]:
    for part in container.parts:
        if part.inner is None:
            yield part.end - part.start
        else:
            yield from _runs(part.inner)


@pytest.mark.parametrize(
    "item",
    ["[]", "{}", '""', "1", '{"a":1}', "[" * 90 + "]" * 90, '[[1,"\\""]]', '{"a":{"b":[{"c":"d"}]}}', '"\\u00e9"'],
)
def test_no_piece_is_much_longer_than_wanted(item: str) -> None:
    """A quarter of a mebibyte of anything small is cut into short pieces."""
    data = ('{"x":[' + ",".join([item] * (2**18 // (len(item) + 1))) + "]}").encode()
    pulses: list[None] = []
    found = outline(data, lambda: pulses.append(None))
    assert found is not None
    assert max(_runs(found)) < PIECE_BYTES * 5 // 4
    assert len(pulses) >= 15


@pytest.mark.parametrize("text", ["[", '["', '{"a":[1]', "[[1]", '["a\\"]', "[1,"])
def test_what_is_not_balanced_is_refused(text: str) -> None:
    """The reader finds the end of the bytes."""
    with pytest.raises(ValueError, match="JSON"):
        outline(text.encode(), nothing, 0)


def test_what_is_nested_too_deep_is_not_cut() -> None:
    """Readers of outlines call themselves once for each level."""
    assert outline(b"[" * 129 + b"]" * 129, nothing, 0) is None
    assert outline(b"[" * 128 + b"]" * 128, nothing, 0) is not None
