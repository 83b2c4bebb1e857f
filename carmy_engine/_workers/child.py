"""The program of a worker process: it loads the tools, and runs one call after the other.

The tool runs in the main thread. A second thread reads the messages of the engine, so that a cancel arrives while a tool runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from .._execution.event_stream import finite, render_part
from .._execution.invoke import output_error
from .._model.cause import Cause
from .._model.client_features import LogLevel
from .._model.compiled_tool import CompiledTool, TakesLong
from .._model.context import SILENT, AgentContext, Cancellation, Progress
from .._model.error_boundary import as_agent_error, declared_error, json_safe
from .._model.text import bounded_text, sendable_text
from .._schema.work import Work
from .._tools.declaration import compile_tool
from .loading import load, mark_worker
from .messages import (
    MAX_MESSAGE_BYTES,
    Call,
    Cancel,
    FrameReader,
    Hello,
    LogLine,
    Message,
    Part,
    PartTaken,
    Raised,
    Ready,
    Report,
    Returned,
    Started,
    ToolLine,
    framed,
    to_worker,
)

_READ_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1
_MAX_INTEGER = 2**63


def main(commands: int, replies: int, engine: int) -> NoReturn:
    """Run a worker until its engine closes the pipe.

    Args:
        commands: The descriptor of the pipe from the engine.
        replies: The descriptor of the pipe to the engine.
        engine: The process id of the engine.
    """
    mark_worker()
    _die_with(engine)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for descriptor in (commands, replies):
        os.set_inheritable(descriptor, False)
    # A process that a tool forks must not hold the pipe of a worker that has died.
    os.register_at_fork(after_in_child=lambda: _close(commands, replies))
    worker = _Worker(commands, replies)
    threading.Thread(target=worker.read, name="carmy-worker-reader", daemon=True).start()
    worker.run()


def _die_with(engine: int) -> None:
    """Let the kernel kill this process when the thread of the engine ends. The end of the pipe does it elsewhere than on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != engine:
        os._exit(1)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


class _Worker:
    """A worker.

    Args:
        commands: See `main`.
        replies: See `main`.
    """

    def __init__(self, commands: int, replies: int) -> None:
        self._commands = commands
        self._replies = replies
        self._writing = threading.RLock()  # a signal handler of a tool may log
        self._calls: queue.SimpleQueue[Hello | Call] = queue.SimpleQueue()
        self._current: _RunningCall | None = None

    # --- the reader's thread

    def read(self) -> None:
        """Read messages until the pipe ends; then end the process and its group."""
        try:
            for message in self._messages():
                current = self._current
                if isinstance(message, Call):
                    # Made here: a cancel may arrive before the main thread has begun the call.
                    self._current = _RunningCall(message.id)
                if isinstance(message, Hello | Call):
                    self._calls.put(message)
                elif current is not None and current.id == message.id:
                    current.receive(message)
        finally:
            os.killpg(0, signal.SIGKILL)

    def _messages(self) -> Iterator[Hello | Call | Cancel | PartTaken]:
        frames = FrameReader(MAX_MESSAGE_BYTES)
        while data := os.read(self._commands, _READ_BYTES):
            for frame in frames.feed(data):
                yield to_worker.decode(frame)

    # --- any thread of a tool

    def send(self, message: Message) -> None:
        """Write a message. Waits while the pipe is full."""
        data = memoryview(framed(message))
        with self._writing:
            while data:
                data = data[os.write(self._replies, data) :]

    # --- the main thread

    def run(self) -> NoReturn:
        """Load the tools and run calls."""
        hello = self._calls.get()
        assert isinstance(hello, Hello)
        root = logging.getLogger()
        root.addHandler(_PipeHandler(self.send))
        root.setLevel(hello.log_level)
        tools, problems = _loaded(hello)
        problem = _limit_memory(hello.max_memory_bytes)
        self.send(Ready(problems=(*problems, *([] if problem is None else [problem]))))
        while True:
            call = self._calls.get()
            assert isinstance(call, Call)
            running = self._current
            assert running is not None
            if hello.max_cpu_secs is not None:
                _limit_cpu(hello.max_cpu_secs)
            context = _context_of(call, running, self.send)
            self.send(self._ended(tools[call.tool], call, context, expose=hello.expose_errors))

    def _ended(self, tool: CompiledTool, call: Call, context: AgentContext, *, expose: bool) -> Returned | Raised:
        """Run a tool and render its output."""
        name = tool.spec.name
        self.send(Started(id=call.id))
        try:
            arguments = _parsed(tool, bytes(call.arguments))
            if tool.context_parameter is not None:
                arguments[tool.context_parameter] = context
            value = tool.function(**arguments)
        except BaseException as error:  # noqa: BLE001 - the boundary round the tool
            return _raised(call.id, error, f"the tool {name}", context.cancellation, expose=expose)
        try:
            return Returned(id=call.id, data=msgspec.Raw(_rendered(tool, value)))
        except BaseException as error:  # noqa: BLE001 - the boundary round serialisers and properties
            told, _, crashed = output_error(name, error, expose=expose)
            return Raised(id=call.id, error=told.info, crashed=crashed)


def _parsed(tool: CompiledTool, data: bytes) -> dict[str, Any]:
    try:
        return tool.parse(data)
    except TakesLong as taken:
        check: Callable[[Work], dict[str, Any]] = taken.check
    return check(Work())


def _rendered(tool: CompiledTool, value: Any) -> bytes:
    try:
        return tool.render(value)
    except TakesLong as taken:
        check: Callable[[Work], bytes] = taken.check
    return check(Work(is_output=True))


def _raised(call: int, error: BaseException, what: str, cancellation: Cancellation, *, expose: bool) -> Raised:
    """The message for what a tool raised."""
    declared = declared_error(error)
    if declared is not None:
        return Raised(id=call, error=json_safe(declared).info, crashed=False)
    if cancellation.cancelled:
        what = f"{what}, while it was being cut off,"
    told, _ = as_agent_error(error, what, expose=expose)
    return Raised(id=call, error=json_safe(told).info, crashed=True)


def _loaded(hello: Hello) -> tuple[list[CompiledTool], list[str]]:
    """The tools, and why some of them cannot be run. A tool that failed is missing, so a worker with problems runs none."""
    tools: list[CompiledTool] = []
    problems: list[str] = []
    for tool in hello.tools:
        try:
            tools.append(compile_tool(load(tool.place), {}, tool.max_output_bytes, in_worker=True))
        except BaseException as error:  # noqa: BLE001 - the boundary round the import of the user's program
            where = f"{tool.place.module}:{tool.place.qualname}"
            problems.append(f"a worker process cannot load {where}: {type(error).__name__}: {bounded_text(str(error))}")
    return tools, problems


def _limit_memory(most: int | None) -> str | None:
    """Limit the address space; return why that is not possible."""
    if most is None:
        return None
    used = 0
    statm = Path("/proc/self/statm")
    if statm.exists():
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
    if used >= most:
        return f"workers.max_memory_bytes is {most}, and a worker that has loaded its tools uses {used} bytes already"
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return None


def _limit_cpu(seconds: float) -> None:
    """Limit the time of the processor from now on. The kernel counts whole seconds, and sends SIGXCPU at the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


class _RunningCall:
    """The call that runs. For the reader's thread.

    Attributes:
        id: Of the call.
        cancellation: Of its context.
        taken: Set when the reader has room for another part, and by a cancel.
    """

    def __init__(self, number: int) -> None:
        self.id = number
        self.cancellation = Cancellation()
        self.taken = threading.Event()

    def receive(self, message: Cancel | PartTaken) -> None:
        """Handle a message for this call."""
        if isinstance(message, Cancel):
            self.cancel(message.cause)
        self.taken.set()

    def cancel(self, cause: Cause) -> None:
        """Record that the call is asked to stop."""
        self.cancellation._set(cause)  # noqa: SLF001 - the engine's side of the handle


class _PipeProgress(Progress):
    """Progress of a call, sent to the engine."""

    __slots__ = ("_running", "_send")

    def __init__(self, running: _RunningCall, send: Callable[[Message], None]) -> None:
        self._running = running
        self._send = send

    @property
    def is_listening(self) -> bool:
        """True: calls without a listener have a `_LogProgress`."""
        return True

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """See `Progress.report`."""
        self._send(
            Report(
                id=self._running.id,
                progress=_number(progress),
                total=None if total is None else _number(total),
                message=sendable_text(message) if message else None,
            )
        )

    def partial_from_thread(self, value: Any) -> None:
        """See `Progress.partial_from_thread`.

        Raises:
            AgentError: ``INVALID_OUTPUT``, when the value is not JSON-shaped; ``CANCELLED``, when the call was asked to stop.
        """
        running = self._running
        data = render_part(value)
        running.taken.clear()
        running.cancellation.check()
        self._send(Part(id=running.id, data=msgspec.Raw(data)))
        running.taken.wait()
        running.cancellation.check()

    def log(self, level: LogLevel, message: str) -> bool:
        """See `Progress.log`."""
        self._send(ToolLine(id=self._running.id, level=level, message=message))
        return True


class _LogProgress(_PipeProgress):
    """Progress of a call without a listener: log messages are sent all the same."""

    __slots__ = ()

    @property
    def is_listening(self) -> bool:
        """False: reports are discarded."""
        return False

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Discard a report."""
        SILENT.report(progress, total, message)

    def partial_from_thread(self, value: Any) -> None:
        """Discard a part."""
        SILENT.partial_from_thread(value)


def _number(number: float) -> float | None:
    """A number of a report; as a float, if it is an integer that the encoder of messages does not take."""
    found = finite(number)
    return found if found is None or abs(found) < _MAX_INTEGER else float(found)


def _context_of(call: Call, running: _RunningCall, send: Callable[[Message], None]) -> AgentContext:
    given = call.context
    return AgentContext(
        **{name: getattr(given, name) for name in given.__struct_fields__},
        cancellation=running.cancellation,
        progress=(_PipeProgress if call.is_listening else _LogProgress)(running, send),
        deadline=math.inf if call.remaining is None else time.monotonic() + call.remaining,
        clock=time.monotonic,
    )


class _PipeHandler(logging.Handler):
    """Sends records to the engine, whose logging has the levels and the handlers of the process."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        super().__init__()
        self._send = send
        self.setFormatter(logging.Formatter("%(message)s"))  # with the traceback, if there is one

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        try:
            text = self.format(record)
            self._send(LogLine(logger=record.name, level=record.levelno, text=sendable_text(text)))
        except Exception:  # noqa: BLE001 - as the handlers of the standard library
            self.handleError(record)
