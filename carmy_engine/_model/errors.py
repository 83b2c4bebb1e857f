"""Every exception and every error code of the engine.

::

    Exception
    ├── AgentError                 an outcome: the error that the caller of a tool receives
    └── CarmyError                 a fault of the program, never an outcome
        ├── DeclarationError       a tool or an application is declared wrongly (also a TypeError)
        ├── StartupError           an application cannot start; lists every problem
        ├── ConfigurationError     a setting is unknown or out of range (also a ValueError)
        ├── ClosedError            an engine or a client was used after it was closed
        ├── WrongLoopError         an interface was used under an event loop that it is not made for (also a RuntimeError)
        └── OutcomeUnknownError    clients only: the connection broke after the call may have started

A tool raises `AgentError`; the engine returns it inside an `ExecutionResult`. The others are raised to the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from msgspec import structs

from .error_info import MAX_CODE_CHARS, MAX_RETRY_AFTER_SECONDS, ErrorCategory, ErrorInfo
from .text import bounded_text


class CodeInfo(NamedTuple):
    """The fixed properties of an error code of the engine."""

    category: ErrorCategory
    recoverable: bool
    retryable: bool
    meaning: str


_V, _P, _N, _X = ErrorCategory.VALIDATION, ErrorCategory.PERMISSION, ErrorCategory.NOT_FOUND, ErrorCategory.CANCELLED
_C, _I, _O, _T = ErrorCategory.CONFLICT, ErrorCategory.INTERNAL, ErrorCategory.CAPACITY, ErrorCategory.TIMEOUT

CODES: Mapping[str, CodeInfo] = {
    # code                                  category, recoverable, retryable, meaning
    "TOOL_NOT_FOUND": CodeInfo(_N, True, False, "There is no tool of that name."),
    "TOOL_NOT_PERMITTED": CodeInfo(_P, False, False, "The tool exists, but this view of the engine leaves it out."),
    "RESOURCE_NOT_FOUND": CodeInfo(_N, True, False, "There is no resource at that address."),
    "PROMPT_NOT_FOUND": CodeInfo(_N, True, False, "There is no prompt of that name."),
    "INVALID_ARGUMENTS": CodeInfo(_V, True, False, "The arguments do not fit the tool's schema."),
    "INVALID_ID": CodeInfo(_V, True, False, "The request_id is empty or longer than 256 bytes."),
    "INVALID_OUTPUT": CodeInfo(_I, False, False, "The tool ran, but its output does not fit its schema."),
    "OUTPUT_TOO_LARGE": CodeInfo(_O, False, False, "The tool ran, but its output is over the size limit."),
    "CONFIRMATION_REQUIRED": CodeInfo(_P, True, False, "The tool needs a person's confirmation."),
    "CONFIRMATION_DENIED": CodeInfo(_P, False, False, "A person has denied this very call."),
    "CONFIRMATION_NOT_FOUND": CodeInfo(_N, False, False, "No confirmation of this id is open; it may have expired."),
    "FORBIDDEN": CodeInfo(_P, False, False, "The caller may not use this tool."),
    "RATE_LIMITED": CodeInfo(_O, True, True, "The caller has used up its share for now."),
    "IDEMPOTENCY_CONFLICT": CodeInfo(_C, True, False, "The request_id was used for another request."),
    "IDEMPOTENCY_CAPACITY": CodeInfo(_O, False, False, "The store of request_ids is full."),
    "EXECUTION_UNCERTAIN": CodeInfo(_C, False, False, "The first attempt is running, or its end is not known."),
    "TIMEOUT": CodeInfo(_T, False, False, "The deadline passed."),
    "CANCELLED": CodeInfo(_X, False, False, "The execution was cancelled."),
    "TOOL_PANIC": CodeInfo(_I, False, False, "The tool failed in a way it did not declare."),
    "TOOL_CRASHED": CodeInfo(_I, False, False, "The process that ran the tool died."),
    "TOOL_ERROR": CodeInfo(_I, True, False, "A remote tool reported a failure in its own format."),
    "CLIENT_UNAVAILABLE": CodeInfo(_V, False, False, "The tool needs a client that can do more than this one."),
    "ANSWER_DECLINED": CodeInfo(_P, True, False, "The person behind the client gave no answer to the tool's question."),
    "INVALID_ANSWER": CodeInfo(_V, True, False, "The client's answer to the tool does not fit the question."),
    "TOOL_BUSY": CodeInfo(_O, True, True, "Too many calls wait for their turn with this tool."),
    "OVERLOADED": CodeInfo(_O, True, True, "The engine runs as many executions as it may."),
    "SHUTTING_DOWN": CodeInfo(_O, True, True, "The engine is draining or closing."),
    "STORE_ERROR": CodeInfo(_I, True, True, "The idempotency store failed."),
    "INVALID_REQUEST": CodeInfo(_V, True, False, "The message is not a valid request."),
    "PAYLOAD_TOO_LARGE": CodeInfo(_O, True, False, "The message is over the size limit."),
    "UNAUTHENTICATED": CodeInfo(_P, True, False, "The credentials are missing or wrong."),
    "AUTHENTICATION_UNAVAILABLE": CodeInfo(_O, True, True, "The credentials cannot be checked at the moment."),
    "ROUTE_NOT_FOUND": CodeInfo(_N, True, False, "There is nothing at this address."),
    "METHOD_NOT_ALLOWED": CodeInfo(_V, True, False, "The address does not support this method."),
    "UNKNOWN_OP": CodeInfo(_V, True, False, "There is no such operation."),
    "EXECUTION_NOT_FOUND": CodeInfo(_N, False, False, "No running or recent execution has this id."),
    "INTERNAL_ERROR": CodeInfo(_I, False, False, "A server failed; its log has the details under the error id."),
    "EXECUTOR_UNAVAILABLE": CodeInfo(_O, True, True, "The executor behind a tool cannot be reached."),
    "READY_TIMEOUT": CodeInfo(_T, True, True, "A readiness check did not finish in time."),
    "CHECK_FAILED": CodeInfo(_O, True, True, "A readiness check failed or returned false."),
    "SETTLED_AS_FAILED": CodeInfo(_C, False, False, "An operator settled the execution as failed."),
    "NODE_PANIC": CodeInfo(_I, False, False, "A node of a graph failed in a way it did not declare."),
    "INVALID_STATE": CodeInfo(_I, False, False, "A node returned a state that does not fit the graph's state."),
    "LOOP_LIMIT": CodeInfo(_I, False, False, "A node was visited more often than its limit allows."),
    "GRAPH_CHANGED": CodeInfo(_C, False, False, "The checkpoint was written by another version of the graph."),
    "THREAD_NOT_FOUND": CodeInfo(_N, True, False, "The graph has no run on this thread."),
    "THREAD_BUSY": CodeInfo(_C, True, False, "The thread has a run that has not ended, or goes on elsewhere."),
    "RUN_INTERRUPTED": CodeInfo(_C, True, True, "The run of a graph waits for an answer."),
    "INVALID_TOOL_NAME": CodeInfo(_V, False, False, "A tool's name is not 1-128 of A-Z a-z 0-9 _ - ."),
    "DUPLICATE_TOOL": CodeInfo(_C, False, False, "Two tools have the same name."),
    "INVALID_SCHEMA": CodeInfo(_V, False, False, "A tool's input or output has no usable schema."),
    "MISSING_STATE": CodeInfo(
        _I, False, False, "A tool or a factory needs state of a type that the application lacks."
    ),
    "STATE_FAILED": CodeInfo(
        _I, False, False, "State, or a function of the start, failed before the application served."
    ),
}
"""Every error code of the engine, with its fixed properties."""


class AgentError(Exception):
    """The error that the caller of a tool receives in place of a result.

    Raise it in a tool to answer with a code, a message and details: the caller receives them unchanged.

    Args:
        code: Stable, upper case, for programs. 128 printable characters at most.
        message: Text for people and models. Cut after 16,384 characters.
        category: The kind of failure; see `ErrorCategory`.
        recoverable: The caller can repair the call and try again.
        retryable: The same call may succeed later. Implies `recoverable`, and frees the request_id.
        retry_after: Seconds to wait before trying again; finite, not negative. More than 30 days count as 30 days.
        suggested_action: One sentence of advice. Cut like the message.
        details: Machine-readable, JSON-shaped data. Left out of the answer over 256 KiB.

    Raises:
        TypeError: `message` or `suggested_action` is not a text.
        ValueError: `code` is empty, too long or not printable, `category` is unknown, or `retry_after` is not a finite
            number >= 0.
    """

    def __init__(
        self,
        code: str,
        message: str,
        category: ErrorCategory | str,
        *,
        recoverable: bool = False,
        retryable: bool = False,
        retry_after: float | None = None,
        suggested_action: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.info = ErrorInfo(
            code=_checked_code(code),
            message=bounded_text(message),
            category=ErrorCategory(category),
            recoverable=bool(recoverable or retryable),
            retryable=bool(retryable),
            retry_after=None if retry_after is None else _checked_seconds(retry_after),
            suggested_action=None if suggested_action is None else bounded_text(suggested_action),
            details=details,
        )

    @classmethod
    def of(cls, info: ErrorInfo) -> AgentError:
        """The exception for error data from a store or another executor; its values are bounded, never refused."""
        seconds = info.retry_after
        if seconds is not None:
            seconds = min(seconds, MAX_RETRY_AFTER_SECONDS) if seconds >= 0 else None
        made = cls.__new__(cls)
        Exception.__init__(made, info.code, info.message)
        made.info = structs.replace(
            info,
            code=bounded_text(info.code),
            message=bounded_text(info.message),
            recoverable=info.recoverable or info.retryable,
            retry_after=seconds,
            suggested_action=None if info.suggested_action is None else bounded_text(info.suggested_action),
        )
        return made

    @classmethod
    def standard(
        cls,
        code: str,
        message: str,
        *,
        retry_after: float | None = None,
        suggested_action: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> AgentError:
        """An error with a code of the engine; `CODES` supplies the category and the flags."""
        known = CODES[code]
        return cls(
            code,
            message,
            known.category,
            recoverable=known.recoverable,
            retryable=known.retryable,
            retry_after=retry_after,
            suggested_action=suggested_action,
            details=details,
        )

    @property
    def code(self) -> str:
        """The stable code."""
        return self.info.code

    @property
    def message(self) -> str:
        """The text for people."""
        return self.info.message

    @property
    def category(self) -> ErrorCategory:
        """The kind of failure."""
        return self.info.category

    @property
    def recoverable(self) -> bool:
        """The caller can repair the call and try again."""
        return self.info.recoverable

    @property
    def retryable(self) -> bool:
        """The same call may succeed later."""
        return self.info.retryable

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before trying again."""
        return self.info.retry_after

    @property
    def suggested_action(self) -> str | None:
        """One sentence of advice."""
        return self.info.suggested_action

    @property
    def details(self) -> Mapping[str, Any] | None:
        """Machine-readable data."""
        return self.info.details

    def __str__(self) -> str:
        return f"{self.info.code}: {self.info.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (AgentError.of, (self.info,))


def _checked_code(code: object) -> str:
    text = str.__str__(code) if isinstance(code, str) else ""
    if not 0 < len(text) <= MAX_CODE_CHARS or not text.isprintable():
        raise ValueError(f"the code of an AgentError has 1 to {MAX_CODE_CHARS} printable characters")
    return text


def _checked_seconds(seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ValueError(f"retry_after is a finite number of seconds, at least 0, not {seconds!r:.40}")
    exact = int(seconds) if isinstance(seconds, int) else float(seconds)  # encoders refuse numpy's numbers
    return min(exact, MAX_RETRY_AFTER_SECONDS)


class CarmyError(Exception):
    """Base of the package's exceptions that are not an outcome of a tool."""


class DeclarationError(CarmyError, TypeError):
    """The declaration of a tool or an application is invalid; the message names the place and the remedy."""


class ConfigurationError(CarmyError, ValueError):
    """A setting is unknown or out of range; the message names the key and, for a typing error, the nearest one."""


class StartupError(CarmyError):
    """An application cannot start.

    Attributes:
        problems: All problems, not only the first.
    """

    def __init__(self, problems: Sequence[AgentError | ConfigurationError]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        count = len(self.problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} at start:\n{lines}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (StartupError, (self.problems,))


class ClosedError(CarmyError):
    """An engine or a client was used after its block had ended."""


class WrongLoopError(CarmyError, RuntimeError):
    """An interface was used under another event loop than its own; the message names the one to use here."""


class OutcomeUnknownError(CarmyError):
    """The connection broke after the call may have started; it is not known whether the tool ran.

    Attributes:
        request_id: The id to send the request again with, to learn the outcome; None when the request had none.
    """

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id

    @classmethod
    def before_answer(cls, why: str, request_id: str | None) -> Self:
        """The error for a call to a carmy server; `why` names the lost connection."""
        advice = (
            "It had no request_id: look for its effect before you send it again"
            if request_id is None
            else "Send it again with the same request_id to learn its outcome"
        )
        return cls(f"{why} before the answer came; the call may have run. {advice}", request_id=request_id)
