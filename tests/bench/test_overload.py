"""The bench of overload, in short: what it measures is what it should be."""

from __future__ import annotations

import trio

from bench import overload


async def test_a_server_under_ten_times_its_load_works_refuses_and_stays_in_reach() -> None:
    """Calls are done or refused as OVERLOADED, for both principals, and every health check is answered."""
    with trio.fail_after(50):
        peak, calls, health = await overload.measure(2, 0.5)
    assert peak > 0
    assert calls.total(200) > 0
    assert set(calls.codes) == {"OVERLOADED"}
    assert {status for _, status in calls.counts} == {200, 503}
    assert {status for _, status in health.counts} == {200}
