"""Lines that strangers can cause are limited in rate."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from carmy_engine.transport import RateLimitedLogger

log = logging.getLogger("tests.rate_limited")


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limited(clock: Clock, caplog: pytest.LogCaptureFixture) -> RateLimitedLogger:
    caplog.set_level(logging.INFO, logger=log.name)
    return RateLimitedLogger(log, burst=3, seconds=10.0, clock=clock)


def test_the_first_lines_of_an_interval_are_written_and_later_ones_are_not(
    limited: RateLimitedLogger, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of one message writes its first lines and nothing more while the interval lasts."""
    for number in range(1000):
        limited.warning("reset by %d", number)
    assert caplog.messages == ["reset by 0", "reset by 1", "reset by 2"]


def test_one_line_has_the_number_of_the_omitted_ones(
    limited: RateLimitedLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """After the interval one line counts what was omitted, and a new burst begins."""
    for number in range(10):
        limited.warning("reset by %d", number)
    clock.now = 10.0
    caplog.clear()
    limited.warning("reset by %d", 10)
    assert caplog.messages == ["7 more lines omitted: reset by %d", "reset by 10"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_any_later_message_brings_the_number_of_the_omitted_ones(
    limited: RateLimitedLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The count of a flood that has ended appears with the next line, whatever that is about."""
    for _ in range(5):
        limited.error("full")
    clock.now = 100.0
    caplog.clear()
    limited.info("other")
    assert caplog.messages == ["2 more lines omitted: full", "other"]


def test_an_interval_without_omissions_adds_no_line(
    limited: RateLimitedLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages below the limit appear as they are."""
    for second in range(100):
        clock.now = second * 5.0
        limited.warning("rare")
    assert caplog.messages == ["rare"] * 100


def test_each_message_and_level_has_its_own_limit(limited: RateLimitedLogger, caplog: pytest.LogCaptureFixture) -> None:
    """A flood of one message hides no other one."""
    for _ in range(10):
        limited.warning("one")
    limited.warning("two")
    limited.error("one")
    assert caplog.messages == ["one"] * 3 + ["two", "one"]


def test_lines_below_the_level_count_for_nothing(
    limited: RateLimitedLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """What would not be written anyway is not reported as omitted."""
    for _ in range(10):
        limited.debug("quiet")
    clock.now = 10.0
    limited.warning("loud")
    assert caplog.messages == ["loud"]


def test_a_line_names_its_caller(limited: RateLimitedLogger, caplog: pytest.LogCaptureFixture) -> None:
    """File and line of a record are those of the call, and an exception is kept."""
    try:
        raise ValueError("x")
    except ValueError:
        limited.exception("failed")
    (record,) = caplog.records
    assert record.pathname == str(Path(__file__))
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
