"""What goes in: arguments, ids and limits of a request."""

from __future__ import annotations

from typing import Any

from ..._model.result import ExecutionResult
from .._probe import Probe
from .suite import suite


def _problems(result: ExecutionResult) -> list[dict[str, Any]]:
    assert result.error is not None
    assert result.error.category == "validation"
    assert result.error.recoverable
    assert result.error.details is not None
    problems: list[dict[str, Any]] = result.error.details["problems"]
    assert all({"path", "code", "message"} <= set(problem) for problem in problems)
    return problems


@suite.check("E-201")
async def missing(probe: Probe) -> None:
    """A missing argument is ``INVALID_ARGUMENTS``, recoverable, with its path, a code and words for it."""
    (problem,) = _problems(await probe.refused("INVALID_ARGUMENTS", "echo", {"times": 1}))
    assert problem["path"] == "text"
    assert problem["message"] == "argument 'text' is missing"


@suite.check("E-202")
async def unknown(probe: Probe) -> None:
    """An argument that is not known is refused with the nearest name and the names there are, and the tool does not run."""
    tag = probe.name()
    (problem,) = _problems(await probe.refused("INVALID_ARGUMENTS", "write", {"tag": tag, "gaet": "x"}))
    assert problem["path"] == "gaet"
    assert problem["message"] == "argument 'gaet' is not known; did you mean 'gate'?"
    assert problem["valid"] == ["tag", "then", "gate"]
    assert await probe.effects(tag) == 0


@suite.check("E-203")
async def every_problem(probe: Probe) -> None:
    """All problems of a call are reported together."""
    problems = _problems(await probe.refused("INVALID_ARGUMENTS", "echo", {"times": "often", "volume": 11}))
    assert {problem["path"] for problem in problems} == {"text", "times", "volume"}
    assert "argument 'times' must be an integer" in {problem["message"] for problem in problems}


@suite.check("E-204")
async def discreet(probe: Probe) -> None:
    """The words about a bad argument never repeat the value that was sent."""
    result = await probe.refused("INVALID_ARGUMENTS", "echo", {"text": "a", "times": "xyzzy-secret"})
    assert "xyzzy-secret" not in str(result.error)


@suite.check("E-205")
async def none(probe: Probe) -> None:
    """No arguments mean an empty object."""
    assert (await probe.call("read")).status == "completed"
    assert (await probe.call("read", {})).status == "completed"


@suite.check("E-206")
async def injected(probe: Probe) -> None:
    """What the host injects cannot be sent by a caller."""
    for name in ("ctx", "stage"):
        await probe.refused("INVALID_ARGUMENTS", "read", {name: {}})


@suite.check("E-207")
async def strict(probe: Probe) -> None:
    """Values are not converted: no number from a text, no text from a number, no truth from a number."""
    for arguments in (
        {"text": 1},
        {"text": None},
        {"text": "a", "times": "2"},
        {"text": "a", "times": 2.5},
        {"text": "a", "times": True},
    ):
        await probe.refused("INVALID_ARGUMENTS", "echo", arguments)


@suite.check("E-208")
async def request_ids(probe: Probe) -> None:
    """A request_id has 1-256 bytes of UTF-8, else ``INVALID_ID``, and the tool does not run."""
    tag = probe.name()
    for request_id in ("", "x" * 257, "é" * 129):
        await probe.refused("INVALID_ID", "write", {"tag": tag}, request_id=request_id)
    assert await probe.effects(tag) == 0
    for filler in ("x", "é"):
        start = probe.name()
        request_id = start + filler * ((256 - len(start)) // len(filler.encode()))
        assert (await probe.call("write", {"tag": tag}, request_id=request_id)).status == "completed"


@suite.check("E-209")
async def timeouts(probe: Probe) -> None:
    """A timeout that is not a positive number is ``INVALID_REQUEST``, and the tool does not run."""
    tag = probe.name()
    for timeout_ms in (0, -1, -0.5):
        await probe.refused("INVALID_REQUEST", "write", {"tag": tag}, timeout_ms=timeout_ms)
    assert await probe.effects(tag) == 0


@suite.check("E-210")
async def precedence(probe: Probe) -> None:
    """The first fault in the order tool, ids, arguments is the one that is reported; a confirmation comes after the ids."""
    await probe.refused("TOOL_NOT_FOUND", "nobody", {"x": 1}, request_id="")
    await probe.refused("INVALID_ID", "destructive", {"x": 1}, request_id="")
    await probe.refused("CONFIRMATION_REQUIRED", "destructive", {"tag": probe.name()})
    await probe.refused("INVALID_ID", "echo", {"x": 1}, request_id="")
