"""A run of a graph, as lines for people and as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from ..graph import (
    CheckpointSaved,
    NodeCompleted,
    NodeStarted,
    NodeToolEvent,
    RunCompleted,
    RunEvent,
    RunResult,
    RunStarted,
)
from ._graph_target import GraphTarget
from ._table import shown

MAX_TEXT = 500
"""Characters of a question, an error or a progress message in a line."""


def progress_line(event: RunEvent) -> str:
    """One line for an event: its kind, then what it is about."""
    words: list[object] = [event.kind]
    match event:
        case RunStarted():
            words += [event.graph, event.thread_id, event.run_id, "(resumed)" if event.resumed else ""]
        case NodeStarted():
            words += [event.node, f"(attempt {event.attempt})" if event.attempt > 1 else ""]
        case NodeCompleted():
            retry = "" if event.retry_in is None else f"(again in {event.retry_in:g}s)"
            words += [event.node, f"{event.duration_ms:.1f}ms", event.code or ("" if event.ok else "stopped"), retry]
        case NodeToolEvent(event=inner):
            about = [getattr(inner, field, None) for field in ("progress", "total", "message")]
            took = getattr(inner, "duration_ms", None)
            words += [event.node, getattr(inner, "tool", ""), *about, "" if took is None else f"{took:.1f}ms"]
            words.append("" if getattr(inner, "ok", True) else "failed")
        case CheckpointSaved():
            words += [event.number, event.status.value]
        case RunCompleted():
            words += [event.result.run_id, event.result.status.value]
        case _:
            pass
    return " ".join(shown(word, MAX_TEXT) for word in words if word not in (None, ""))


def next_steps(target: GraphTarget, result: RunResult[Any]) -> list[str]:
    """What to do with a run that has not completed."""
    resume = target.line("graph resume", result.thread_id)
    steps: list[str] = []
    for question in result.questions:
        node = f" --node {question.node}" if len(result.questions) > 1 else ""
        asked = shown(msgspec.json.encode(question.value).decode(), MAX_TEXT)
        steps.append(f"the node {question.node} asks {asked}; answer: {resume} --answer JSON{node}")
    for doubt in result.doubts:
        execution_id = str(doubt.execution_id)
        unknown = f"the node {doubt.node} called {doubt.tool}, and the outcome of {execution_id} is not known"
        if doubt.state == "running":
            steps.append(f"{unknown}: its process is alive; when it has ended: {resume}")
            continue
        settle = target.line(
            "executions settle",
            execution_id,
            options="with --completed JSON, --failed MESSAGE or --released",
            of_app=True,
        )
        steps.append(f"{unknown}; find it out, then: {settle}; then: {resume}")
    if result.error is not None:
        steps.append(f"{result.error.code}: {shown(result.error.message, MAX_TEXT)}; try again: {resume}")
    return steps


def result_json(result: RunResult[Any], state: bytes) -> bytes:
    """The whole result as one JSON object.

    Args:
        result: The result.
        state: Its state as JSON.
    """
    return msgspec.json.encode(
        {
            "run_id": result.run_id,
            "thread_id": result.thread_id,
            "status": result.status,
            "state": msgspec.Raw(state),
            "error": result.error,
            "cause": result.cause,
            "questions": result.questions,
            "doubts": result.doubts,
        }
    )
