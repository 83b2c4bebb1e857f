"""What comes back: outputs, errors, and what may be done with them."""

from __future__ import annotations

from ..._model.errors import CODES, AgentError
from .._probe import Probe
from ..tools import SECRET
from .suite import suite

_ID_LENGTH = 41


@suite.check("E-101")
async def success(probe: Probe) -> None:
    """A call with valid arguments completes with the tool's output, no error, and an execution id of ``exec_`` and a UUID."""
    result = await probe.call("echo", {"text": "ab", "times": 2})
    assert result.status == "completed"
    assert result.data == "abab"
    assert result.data_json == b'"abab"'
    assert result.error is None
    assert not result.replayed
    assert result.execution_id.startswith("exec_")
    assert len(result.execution_id) == _ID_LENGTH


@suite.check("E-102")
async def new_ids(probe: Probe) -> None:
    """Every execution has an id of its own."""
    ids = {(await probe.call("echo", {"text": "a"})).execution_id for _ in range(20)}
    assert len(ids) == 20


@suite.check("E-103")
async def null(probe: Probe) -> None:
    """A tool that returns nothing completes with the output null."""
    result = await probe.call("ret", {"kind": "null"})
    assert result.status == "completed"
    assert result.data is None
    assert result.data_json == b"null"


@suite.check("E-104")
async def unknown_tool(probe: Probe) -> None:
    """A tool that does not exist is ``TOOL_NOT_FOUND``, and near names are suggested."""
    result = await probe.refused("TOOL_NOT_FOUND", "ecko")
    assert result.error is not None
    assert result.status == "failed"
    assert result.error.category == "not_found"
    assert result.error.recoverable
    assert "echo" in result.error.message
    assert result.error.details is not None
    assert result.error.details["near"][0] == "echo"


@suite.check("E-105")
async def agent_error(probe: Probe) -> None:
    """An error that a tool declares reaches the caller with its code, message, category and details unchanged."""
    for tool in ("write", "thread_write"):
        result = await probe.refused("OUT_OF_STOCK", tool, {"then": "error"})
        assert result.error is not None
        assert result.status == "failed"
        assert result.error.message == "none left"
        assert result.error.category == "conflict"
        assert result.error.details == {"left": 0}
        assert not result.error.recoverable
        assert not result.error.retryable
        assert result.error.retry_after is None


@suite.check("E-106")
async def retryable(probe: Probe) -> None:
    """A retryable error is recoverable too, and the next action is the same call after the time it asks for."""
    result = await probe.refused("TRY_LATER", "read", {"then": "retryable"})
    assert result.error is not None
    assert result.error.retryable
    assert result.error.recoverable
    assert result.error.retry_after == 2
    (action,) = result.next_actions
    assert action.tool == "read"
    assert action.after_ms == 2000
    assert action.arguments is None


@suite.check("E-107")
async def crash(probe: Probe) -> None:
    """Whatever else a tool raises, process exits included, is ``TOOL_PANIC`` with an error id and no word of its text, and ends that call only."""
    ways = ["crash", "crash_in_nursery", "exit", "interrupt", "own_base_exception"]
    for tool, then in [
        *(("write", way) for way in ways),
        *(("thread_write", way) for way in ways if "nursery" not in way),
    ]:
        result = await probe.refused("TOOL_PANIC", tool, {"then": then})
        assert result.error is not None
        assert result.status == "failed"
        assert result.error.category == "internal"
        assert result.error.details is not None
        assert result.error.details["error_id"]
        assert SECRET not in str(result.error)
        assert (await probe.call("echo", {"text": "alive"})).data == "alive"


@suite.check("E-108")
async def group(probe: Probe) -> None:
    """An error that a tool declares passes through the exception groups of its nurseries."""
    await probe.refused("OUT_OF_STOCK", "write", {"then": "error_in_nursery"})


@suite.check("E-109")
async def invalid_output(probe: Probe) -> None:
    """An output that does not fit its schema is ``INVALID_OUTPUT``, with the detail that the tool ran."""
    tag = probe.name()
    result = await probe.refused("INVALID_OUTPUT", "write", {"tag": tag, "then": "invalid_output"})
    assert result.error is not None
    assert result.error.category == "internal"
    assert "ran" in result.error.message
    assert await probe.effects(tag) == 1


@suite.check("E-110")
async def large_output(probe: Probe) -> None:
    """An output over the tool's limit is ``OUTPUT_TOO_LARGE``, with the detail that the tool ran."""
    result = await probe.refused("OUTPUT_TOO_LARGE", "write", {"then": "large_output"})
    assert result.error is not None
    assert result.error.category == "capacity"
    assert not result.error.retryable
    assert "ran" in result.error.message


@suite.check("E-111")
async def not_a_number(probe: Probe) -> None:
    """NaN and Infinity are no JSON: ``INVALID_OUTPUT``."""
    for kind in ("nan", "infinity", "object"):
        await probe.refused("INVALID_OUTPUT", "ret", {"kind": kind})


@suite.check("E-112")
async def exact(probe: Probe) -> None:
    """Integers beyond 2^53, nested values and any text arrive as they were returned."""
    assert (await probe.call("ret", {"kind": "large_integer"})).data == 2**60 + 1
    assert (await probe.call("ret", {"kind": "nested"})).data == {"a": [1, 2.5, {"b": [True, None]}]}
    assert (await probe.call("ret", {"kind": "text"})).data == 'é "quoted" \u2028 \U0001f600'
    for text in ("123", "null", "{}", "", " ", "\x00", "\u2028\u2029\x85", "\r\n", "\U0001f600", '"\\'):
        assert (await probe.call("echo", {"text": text})).data == text


@suite.check("E-113")
async def confirmation(probe: Probe) -> None:
    """A destructive tool without the permission is ``CONFIRMATION_REQUIRED``, with a request_id and without, and does not run."""
    tag = probe.name()
    for request_id in (None, probe.name()):
        result = await probe.refused("CONFIRMATION_REQUIRED", "destructive", {"tag": tag}, request_id=request_id)
        assert result.error is not None
        assert result.error.category == "permission"
        assert result.error.recoverable
        assert [action.tool for action in result.next_actions] == ["destructive"]
    assert await probe.effects(tag) == 0


@suite.check("E-114")
async def cacheable(probe: Probe) -> None:
    """Only the success of an idempotent tool without effects is cacheable."""
    assert (await probe.call("echo", {"text": "a"})).cacheable
    for tool in ("read", "none", "write", "idempotent_write"):
        assert not (await probe.call(tool)).cacheable
    assert not (await probe.refused("INVALID_ARGUMENTS", "echo")).cacheable


@suite.check("E-115")
async def unwrap(probe: Probe) -> None:
    """A result unwraps to its output, or raises the error it holds."""
    assert (await probe.call("echo", {"text": "a"})).unwrap() == "a"
    failed = await probe.call("write", {"then": "error"})
    raised: AgentError | None = None
    try:
        failed.unwrap()
    except AgentError as error:
        raised = error
    assert raised is not None
    assert raised.info == failed.error


@suite.check("E-116")
async def categories(probe: Probe) -> None:
    """The engine's own codes have the category and flags of the published table."""
    failures = [
        await probe.call("nobody"),
        await probe.call("echo"),
        await probe.call("echo", {"text": ""}, request_id=""),
        await probe.call("destructive"),
        await probe.call("write", {"then": "crash"}),
        await probe.call("write", {"then": "invalid_output"}),
        await probe.call("write", {"then": "large_output"}),
    ]
    for result in failures:
        assert result.error is not None
        known = CODES[result.error.code]
        told = (result.error.category, result.error.recoverable, result.error.retryable)
        assert told == (known.category, known.recoverable, known.retryable)


@suite.check("E-117")
async def large(probe: Probe) -> None:
    """Arguments of half a megabyte and outputs of two arrive whole."""
    text = "0123456789abcde\u00e9" * 30_000
    result = await probe.call("echo", {"text": text})
    assert result.data == text
    result = await probe.call("echo", {"text": text, "times": 4}, request_id=probe.name())
    assert result.data == text * 4
