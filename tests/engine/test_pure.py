"""The pure parts: fingerprints, ids, the words of existing entries, the shape of errors and answers."""

from __future__ import annotations

import json
import pickle
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carmy_engine import AgentError, Cause, ErrorCategory, ExecutionResult, NextAction, codec
from carmy_engine._idempotency.decisions import judge
from carmy_engine._model.ids import check_request_id
from carmy_engine.abc import Identity, Outcome, Reservation, ReservationState
from carmy_engine.errors import CODES
from carmy_engine.transport import fingerprint, new_execution_id

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value):
    """The same JSON with every object's keys in reverse."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [shuffled(item) for item in value]
    return value


def same_json(one, two) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_the_order_of_keys_does_not_matter(arguments):
    """The same arguments in another order, spacing or escaping are the same request, at every level."""
    one = json.dumps(arguments).encode()
    two = json.dumps(shuffled(arguments), ensure_ascii=False, indent=1).encode(errors="surrogatepass")
    assert fingerprint("t", one, None) == fingerprint("t", two, {})


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=3), st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_other_arguments_are_another_request(one, two):
    """Different arguments have different fingerprints, except for the spelling of a number."""
    equal = fingerprint("t", json.dumps(one).encode(), None) == fingerprint("t", json.dumps(two).encode(), None)
    if same_json(one, two):
        assert equal
    elif one != two:
        assert not equal


@pytest.mark.parametrize(("one", "two", "same"), [
    (b'{"a":1}', b'{"a":1.0}', True),
    (b'{"a":100}', b'{"a":1e2}', True),
    (b'{"a":1}', b'{"a":"1"}', False),
    (b'{"a":1}', b'{"a":true}', False),
    (b'{"a":null}', b"{}", False),
    (b'{"a":9007199254740993}', b'{"a":9007199254740992}', False),
    (b'{"a":[1,2]}', b'{"a":[2,1]}', False),
    (b'{"a":"\\u00e9"}', '{"a":"é"}'.encode(), True),
])  # fmt: skip
def test_spelling(one, two, same):
    """One value has one fingerprint however it is spelt, and a different value another one."""
    assert (fingerprint("t", one, None) == fingerprint("t", two, None)) is same


def test_what_a_fingerprint_covers():
    """Tool, arguments and metadata all count, and do not run into each other."""
    base = fingerprint("t", b'{"a":1}', {"m": 1})
    assert len(base) == 32
    others = [
        ("u", b'{"a":1}', {"m": 1}),
        ("t", b'{"a":2}', {"m": 1}),
        ("t", b'{"a":1}', {"m": 2}),
        ("t", b'{"a":1}', None),
    ]
    assert base not in {fingerprint(*other) for other in others}
    assert fingerprint("t", b'{"a":1}', None) == fingerprint("t", b'{"a":1}', {})


def test_execution_ids():
    """An execution id is ``exec_`` and a random UUID, and never repeats."""
    ids = {new_execution_id() for _ in range(20_000)}
    assert len(ids) == 20_000
    form = re.compile(r"exec_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(form.fullmatch(id_) for id_ in ids)


@given(st.text(max_size=300))
def test_request_ids(text):
    """A request_id is accepted unchanged exactly if it has 1-256 bytes."""
    if 1 <= len(text.encode(errors="surrogatepass")) <= 256:
        assert check_request_id(text) == text
    else:
        with pytest.raises(AgentError, match="INVALID_ID"):
            check_request_id(text)


def entry(**changes) -> Reservation:
    identity = Identity(principal=None, session=None, scope="", request_id="r")
    base = Reservation(
        identity=identity,
        fingerprint=b"f",
        execution_id="exec_1",
        state=ReservationState.RUNNING,
        started_at=12.5,
        tool="t",
    )
    return msgspec.structs.replace(base, **changes)


def test_judging_an_existing_entry():
    """A completed entry is replayed, another request is a conflict, and what has no known end is uncertain."""
    outcome = Outcome(execution_id="exec_1", data_json=b"1")
    assert judge(entry(state=ReservationState.COMPLETED, outcome=outcome), b"f") is outcome
    for state in ReservationState:
        with pytest.raises(AgentError, match="IDEMPOTENCY_CONFLICT"):
            judge(entry(state=state, outcome=outcome), b"other")
    with pytest.raises(AgentError) as running:
        judge(entry(), b"f")
    assert running.value.details == {"state": "running", "execution_id": "exec_1", "started_at": 12.5}
    with pytest.raises(AgentError) as interrupted:
        judge(entry(state=ReservationState.INTERRUPTED, cause=Cause.SHUTDOWN), b"f")
    assert interrupted.value.details == {
        "state": "interrupted",
        "execution_id": "exec_1",
        "started_at": 12.5,
        "cause": "shutdown",
    }
    with pytest.raises(AgentError) as died:
        judge(entry(state=ReservationState.INTERRUPTED), b"f")
    assert died.value.details is not None
    assert "cause" not in died.value.details


def test_an_error_omits_what_is_not_set():
    """As JSON an error has code, message, category and both flags, and nothing that was not set."""
    plain = json.loads(msgspec.json.encode(AgentError("C", "m", "conflict").info))
    assert plain == {"code": "C", "message": "m", "category": "conflict", "recoverable": False, "retryable": False}
    full = AgentError(
        "C", "m", ErrorCategory.CAPACITY, retryable=True, retry_after=2, suggested_action="s", details={"d": 1}
    )
    assert json.loads(msgspec.json.encode(full.info)) == {
        "code": "C",
        "message": "m",
        "category": "capacity",
        "recoverable": True,
        "retryable": True,
        "retry_after": 2,
        "suggested_action": "s",
        "details": {"d": 1},
    }


def test_errors_survive_a_process_boundary():
    """An error can be pickled, and its text describes it."""
    error = AgentError("C", "m", "conflict", details={"d": [1]})
    copy = pickle.loads(pickle.dumps(error))
    assert copy.info == error.info
    assert str(copy) == "C: m"


@pytest.mark.parametrize("code", CODES)
def test_the_table_of_codes(code):
    """Every code has words, a category, and is recoverable if it is retryable."""
    info = CODES[code]
    assert info.recoverable or not info.retryable
    assert info.meaning.endswith(".")
    error = AgentError.standard(code, "m")
    assert (error.category, error.recoverable, error.retryable) == info[:3]


def test_the_body_of_an_answer():
    """An answer has id, status, data (also when null) or error, and what may be done with it, in this order."""
    body = json.loads(codec.answer_body(ExecutionResult(execution_id="exec_1", data_json=b"null", cacheable=True)))
    assert body == {
        "execution_id": "exec_1",
        "status": "completed",
        "data": None,
        "_agent": {"cacheable": True, "next_actions": []},
    }
    assert list(body) == ["execution_id", "status", "data", "_agent"]
    failed = ExecutionResult(
        execution_id="exec_2",
        error=AgentError("C", "m", "timeout").info,
        next_actions=(NextAction(tool="t", reason="because", after_ms=5),),
        replayed=True,
        duration_ms=1.5,
    )
    body = json.loads(codec.answer_body(failed, replayed=True, duration=True))
    assert body["status"] == "timed_out"
    assert body["error"]["code"] == "C"
    assert "data" not in body
    assert body["_agent"] == {"cacheable": False, "next_actions": [{"tool": "t", "reason": "because", "after_ms": 5}]}
    assert body["replayed"] is True
    assert body["duration_ms"] == 1.5
