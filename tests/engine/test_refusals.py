"""Records of requests that never became executions."""

from __future__ import annotations

import logging

import pytest

from carmy_engine import AgentContext, AgentError, MemorySink
from carmy_engine._execution.completion import Sinks
from carmy_engine._execution.refusals import MAX_RECORDS, Refusals

ERROR = AgentError.standard("UNAUTHENTICATED", "no")
OTHER = AgentError.standard("INVALID_REQUEST", "no")
CALLER = AgentContext(principal="ana", session="s", transport="http")


def test_records_are_limited_by_code_and_transport_and_interval(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of one kind leaves so many records a minute and hides no other kind; the rest is counted in one line."""
    sink, now = MemorySink(), 0.0
    refusals = Refusals(Sinks([sink]), clock=lambda: now)
    for _ in range(MAX_RECORDS + 10):
        refusals.record(ERROR, CALLER, None)
    refusals.record(OTHER, CALLER, None)
    refusals.record(ERROR, AgentContext(transport="websocket"), None)
    assert len(sink.newest()) == MAX_RECORDS + 2
    now = 60.0
    caplog.clear()
    refusals.record(ERROR, CALLER, None)
    assert len(sink.newest()) == MAX_RECORDS + 3
    assert "10 more refusals over http with UNAUTHENTICATED left no record" in caplog.messages


def test_a_record_says_who_and_what_code(caplog: pytest.LogCaptureFixture) -> None:
    """A record has the caller as far as it is known, and the line has its address; neither has words of the request."""
    caplog.set_level(logging.INFO, logger="carmy.engine")
    sink = MemorySink()
    Refusals(Sinks([sink])).record(ERROR, CALLER, "10.0.0.1")
    (record,) = sink.newest()
    assert (record.principal, record.session, record.transport) == ("ana", "s", "http")
    assert (record.tool, record.error_code, record.request_id) == ("", "UNAUTHENTICATED", None)
    assert caplog.messages == ["refused a request over http from 10.0.0.1: UNAUTHENTICATED"]
