"""Negotiation: Accept, Content-Type, If-None-Match."""

from __future__ import annotations

import pytest

from carmy_http.api.content_negotiation import content_type_problem, matches_etag, wants_events


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([], False),
        ([b"text/event-stream"], True),
        ([b"Text/Event-Stream"], True),
        ([b"application/json", b"text/event-stream"], True),
        ([b"application/json, text/event-stream"], True),
        ([b"text/event-stream;q=0"], False),
        ([b"text/event-stream; q=0.000"], False),
        ([b"text/event-stream;q=0.5, application/json"], False),
        ([b"text/event-stream, application/json;q=0.9"], True),
        ([b"*/*"], False),
        ([b"text/*"], False),
        ([b"application/json"], False),
        ([b"text/event-stream-x"], False),
        ([b'application/json;note="text/event-stream"'], False),
        ([b'text/html;a="x,y", text/event-stream'], True),
        ([b"text/event-stream;q=nonsense"], False),
        ([b'"' * 5000], False),
        ([b"\xff\xfe"], False),
    ],
)
def test_wants_events(lines: list[bytes], wanted: bool) -> None:
    """A stream is sent to clients that ask for it, by weight, in any case, on any line."""
    assert wants_events(lines) is wanted


@pytest.mark.parametrize(
    ("value", "fine"),
    [
        (None, False),
        (b"application/json", True),
        (b"application/json;charset=utf-8", True),
        (b"APPLICATION/JSON ; Charset=UTF-8", True),
        (b"application/problem+json", True),
        (b"application/json;charset=utf-16", False),
        (b"application/jsonx", False),
        (b"text/json", False),
        (b"+json", False),
    ],
)
def test_content_type(value: bytes | None, fine: bool) -> None:
    """JSON in UTF-8 is accepted under its names, and nothing else."""
    assert (content_type_problem(value) is None) is fine


@pytest.mark.parametrize(
    ("lines", "matches"),
    [
        ([], False),
        ([b'"a"'], True),
        ([b'W/"a"'], True),
        ([b'"b", W/"a"'], True),
        ([b'"b"', b'"a"'], True),
        ([b"*"], True),
        ([b"a"], False),
        ([b'"A"'], False),
        ([b'w/"a"'], False),
    ],
)
def test_if_none_match(lines: list[bytes], matches: bool) -> None:
    """Entity tags match exactly, in lists and on several lines, weak or not; the star matches all."""
    assert matches_etag(lines, b'"a"') is matches
