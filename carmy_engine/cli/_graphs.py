"""The commands ``graph``: draw a graph, run it on a thread, resume it, list its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import trio
from cyclopts import Parameter

from .._app import serve
from .._app.app import App
from .._model.cause import Cause
from .._model.errors import AgentError
from .._model.type_guards import is_dict
from ..graph import BoundGraph, HistoryEntry, RunCompleted, RunEvent, RunResult, RunStatus, read_history
from ._graph_target import GraphTarget, find_graph, load_graph
from ._identity import Identity, Permission, Principal, local_identity
from ._json_words import json_word
from ._loop import run_loop
from ._notices import say
from ._outcome import FAILURE, INTERRUPTED, SUCCESS, WAITING, Failure, UsageError
from ._problems import forgets
from ._run_report import next_steps, progress_line, result_json
from ._stdout import Out, claimed_stdout
from ._store_commands import AsJson, Limit, checked_limit, checkpoint_store, with_store
from ._table import moment, table
from ._target import FORMS, is_target

T = TypeVar("T")

GraphWord = Annotated[
    str | None,
    Parameter(help="file.py:graph or module:graph. Default: the only graph of the file, or of 'app' of carmy.toml."),
]
ThreadWords = Annotated[str, Parameter(help="The graph (file.py:graph or module:graph), and the id of the thread.")]
RunWords = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,  # for the '-'
        help="The graph (file.py:graph or module:graph), the id of the thread, and the initial state as JSON ('-': from standard input).",
    ),
]
AppTarget = Annotated[
    str | None,
    Parameter(
        name="--app",
        help=f"Whose tools and store the graph uses: {FORMS}. Default: the application beside the graph, or 'app' of carmy.toml.",
    ),
]
Format = Annotated[Literal["mermaid", "text"], Parameter(name="--format", help="A flowchart in Mermaid, or text.")]
Timeout = Annotated[float | None, Parameter(help="Seconds that the run may take from now on.")]
Metadata = Annotated[str | None, Parameter(help="A JSON object that tools find in the metadata of their context.")]
Answer = Annotated[
    str | None,
    Parameter(
        allow_leading_hyphen=True,  # for the '-', and for numbers
        help="JSON, for the question that the run waits with ('-': from standard input).",
    ),
]
NodePath = Annotated[str | None, Parameter(help="The node that has asked, if several have.")]
Session = Annotated[
    str | None, Parameter(help="The session of the caller. A run belongs to a principal and a session.")
]
WholeResult = Annotated[
    bool, Parameter(name="--json", negative="", help="Print the whole result, not the state alone.")
]

_HEAD = ("NUMBER", "SAVED", "RUN", "STATUS", "NODE", "NEXT")

Start = Callable[[BoundGraph[Any]], AbstractAsyncContextManager[trio.abc.ReceiveChannel[RunEvent]]]


class Graphs:
    """The commands, over the graphs of one application's program, or over the one that each command line names."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    def show(self, graph: GraphWord = None, /, *, format: Format = "mermaid") -> int:  # noqa: A002 - the option
        """Draw a graph."""
        with claimed_stdout() as out:
            found, _ = find_graph(self._app, graph)
            out(found.draw(format).encode())
        return SUCCESS

    def run(
        self,
        *words: RunWords,
        app: AppTarget = None,
        timeout: Timeout = None,
        metadata: Metadata = None,
        json: WholeResult = False,
        principal: Principal = None,
        permission: Permission = None,
        session: Session = None,
    ) -> int:
        """Run a graph on a thread, and print its last state as JSON."""
        timeout = _checked_timeout(timeout)
        about = None if metadata is None else _json_object(metadata)
        caller = _Caller(local_identity(principal, permission), session)
        given = list(words)
        initial = b"{}"
        if len(given) > 1 and (given[-1] == "-" or given[-1].lstrip().startswith("{")):
            initial = json_word(given.pop(), "the initial state is")
        graph, thread_id = self._thread_words(given, "run", "; the initial state is a JSON object")
        with claimed_stdout() as out:
            target = load_graph(self._app, graph, app)
            if forgets(target.app):
                say(
                    "the store memory: ends with this command, so the run cannot be resumed:"
                    " set store.url to one that lasts, such as sqlite:PATH"
                )
            first = _run_loop(lambda: target.graph.form.read(initial))
            return caller.follow(
                out,
                target,
                thread_id,
                lambda bound: bound.stream(thread_id, first, metadata=about, timeout=timeout),
                is_whole=json,
            )

    def resume(
        self,
        *words: ThreadWords,
        answer: Answer = None,
        node: NodePath = None,
        app: AppTarget = None,
        timeout: Timeout = None,
        json: WholeResult = False,
        principal: Principal = None,
        permission: Permission = None,
        session: Session = None,
    ) -> int:
        """Continue the last run of a thread from its last checkpoint, and print its last state as JSON."""
        options: dict[str, Any] = {"timeout": _checked_timeout(timeout), "node": node}
        if answer is not None:
            options["answer"] = msgspec.json.decode(json_word(answer, "--answer is"))
        elif node is not None:
            raise UsageError("--node belongs to an --answer")
        caller = _Caller(local_identity(principal, permission), session)
        graph, thread_id = self._thread_words(list(words), "resume")
        with claimed_stdout() as out:
            target = load_graph(self._app, graph, app)
            return caller.follow(
                out, target, thread_id, lambda bound: bound.stream_resume(thread_id, **options), is_whole=json
            )

    def history(self, *words: ThreadWords, app: AppTarget = None, limit: Limit = 100, json: AsJson = False) -> int:
        """List the checkpoints of a thread, newest first."""
        limit = checked_limit(limit)
        graph, thread_id = self._thread_words(list(words), "history")
        with claimed_stdout() as out:
            target = load_graph(self._app, graph, app)
            store = checkpoint_store(target.app)
            entries = with_store(store, lambda store: read_history(store, target.graph.name, thread_id, limit=limit))
            if not entries:
                raise Failure(f"the graph {target.graph.name!r} has no run on the thread {thread_id!r}")
            if json:
                for entry in entries:
                    out(msgspec.json.encode(entry) + b"\n")
            else:
                out(table(_HEAD, [_row(entry) for entry in entries]))
        return SUCCESS

    def _thread_words(self, words: list[str], command: str, more: str = "") -> tuple[str | None, str]:
        """The word of the graph, if there is one, and the id of the thread."""
        for word in words:
            if word.startswith("--"):
                raise UsageError(f"graph {command} has no option {word}")
        if len(words) == 1 and (self._app is not None or not is_target(words[0])):
            return None, words[0]
        if len(words) != 2:
            raise UsageError(f"graph {command} needs a graph and the id of a thread{more}")
        return words[0], words[1]


class _Caller(msgspec.Struct, frozen=True):
    """The caller of a run."""

    identity: Identity
    session: str | None

    def follow(self, out: Out, target: GraphTarget, thread_id: str, start: Start, *, is_whole: bool) -> int:
        """Run a graph; print its events to standard error, and the result to standard output.

        The first signal cancels the run: its tools clean up, and it can be resumed.

        Returns:
            The exit code.
        """
        results: list[RunResult[Any]] = []
        is_stopped = False

        async def run() -> bytes:
            async with target.app.open() as engine:
                bound = target.graph.bind(
                    engine.bind(
                        principal=self.identity.principal, permissions=self.identity.permissions, session=self.session
                    )
                )

                def stop() -> None:
                    nonlocal is_stopped
                    is_stopped = True
                    if not bound.cancel(thread_id, Cause.SHUTDOWN):
                        scope.cancel()

                with trio.CancelScope() as scope, serve.stop_signals(stop):
                    async with start(bound) as events:
                        async for event in events:
                            say(progress_line(event))
                            if isinstance(event, RunCompleted):
                                results.append(event.result)
                if not results:
                    raise KeyboardInterrupt  # before the run had begun
                (result,) = results
                state = await target.graph.form.write(result.state)
                return result_json(result, state) if is_whole else state

        out(_run_loop(run) + b"\n")
        (result,) = results
        for step in next_steps(target, result):
            say(step)
        if is_stopped:
            return INTERRUPTED
        if result.status in (RunStatus.INTERRUPTED, RunStatus.IN_DOUBT):
            return WAITING
        return SUCCESS if result.status is RunStatus.COMPLETED else FAILURE


def _run_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run the loop.

    Raises:
        Failure: The graph refused it, for example because the thread has a run that has not ended.
    """
    try:
        return run_loop(main)
    except AgentError as error:
        action = error.info.suggested_action
        raise Failure(str(error) if action is None else f"{error} ({action})") from None


def _row(entry: HistoryEntry[msgspec.Raw]) -> tuple[object, ...]:
    return (
        entry.number,
        moment(entry.saved_at),
        entry.run_id,
        entry.status.value,
        entry.node,
        ", ".join(entry.next),
    )


def _checked_timeout(timeout: float | None) -> float | None:
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise UsageError("--timeout must be a number of seconds above 0")
    return timeout


def _json_object(word: str) -> dict[str, Any]:
    found = msgspec.json.decode(json_word(word, "--metadata is"))
    if not is_dict(found):
        raise UsageError("--metadata must be a JSON object")
    return found
