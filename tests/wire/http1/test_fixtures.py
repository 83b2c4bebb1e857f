"""The verdicts of other HTTP projects on the requests of their own tests."""

from __future__ import annotations

import pytest

from tests.support.http_fixtures import DEPARTURES, FIXTURES, is_refused


@pytest.mark.parametrize("name", [name for name in FIXTURES if name not in DEPARTURES])
def test_the_verdict_is_the_same(name: str) -> None:
    """What they take for a request is one, and what they refuse is refused."""
    assert is_refused(FIXTURES[name].data) is not FIXTURES[name].valid


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures_are_listed_for_a_reason(name: str) -> None:
    """A fixture is listed as a departure only as long as the verdicts differ."""
    assert is_refused(FIXTURES[name].data) is FIXTURES[name].valid
