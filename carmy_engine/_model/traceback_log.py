"""Tracebacks in the log: of bounded length, without the input that pydantic puts into the text of a ``ValidationError``."""

from __future__ import annotations

import collections
import logging
import operator
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]

MAX_TRACEBACK_CHARACTERS = 64 * 1024
"""Length of one traceback in the log. A tool controls the texts of its exceptions, and each failed call writes them."""

_MAX_CHAIN = 100
"""Causes and contexts of one exception in the log. Longer chains come from a loop that keeps raising."""


_MAX_GROUPS = 20
"""Groups inside each other in the log. Python's own formatter writes ten."""


class _Omitted(Exception):  # noqa: N818 - a mark in the log, which is never raised
    """The place of what is not shown."""


def write_traceback(log: Log, error: BaseException | None, what: str, *args: object) -> None:
    """Log a line at level error, with the traceback of an exception.

    A traceback of more than `MAX_TRACEBACK_CHARACTERS` is part of the message, without its middle. The record then has no ``exc_info``:
    a formatter would write all of it.

    Args:
        log: The logger.
        error: The exception, logged with its causes. During the call a copy replaces each cause that is a ``ValidationError``.
        what: A format string.
        *args: Its arguments.
    """
    if not log.isEnabledFor(logging.ERROR):
        return
    with _shown(error) as shown:
        text = None if shown is None else _shortened(traceback.TracebackException.from_exception(shown).format())
        if text is None:
            log.error(what, *args, exc_info=shown)
        else:
            log.error(f"{what}\n%s", *args, text)  # noqa: G004 - a format string


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception, as `write_traceback` writes it."""
    with _shown(error) as shown:
        pieces = list(traceback.TracebackException.from_exception(shown or error).format())
        return (_shortened(pieces) or "".join(pieces)).rstrip("\n")


@contextmanager
def _shown(error: BaseException | None) -> Iterator[BaseException | None]:
    """The exception as it is shown. During the block, copies replace those of its causes that are not shown as they are."""
    walked = list(_chain(error))
    links = [(each, each.__cause__, each.__context__, each.__suppress_context__) for each, _ in walked]
    copies = _Copies()
    try:
        for each, depth in walked:
            if depth == _MAX_CHAIN and (each.__cause__ is not None or each.__context__ is not None):
                each.__cause__, each.__context__ = (
                    _Omitted(f"more than {_MAX_CHAIN} causes; earlier ones are omitted"),
                    None,
                )
        for each, _ in reversed(walked):  # a copy takes over the links of its original, so those are replaced first
            cause, context, suppressed = each.__cause__, each.__context__, each.__suppress_context__
            shown_cause, shown_context = copies.of(cause), copies.of(context)
            if shown_cause is not cause or shown_context is not context:
                each.__cause__, each.__context__ = shown_cause, shown_context
                each.__suppress_context__ = suppressed
        yield copies.of(error)
    finally:
        for each, cause, context, suppressed in links:
            each.__cause__, each.__context__, each.__suppress_context__ = cause, context, suppressed


def _shortened(pieces: Iterable[str]) -> str | None:
    """Beginning and end of a text of more than `MAX_TRACEBACK_CHARACTERS`; None for a shorter one."""
    half = MAX_TRACEBACK_CHARACTERS // 2
    head, tail = "", collections.deque[str]()
    size = tail_size = 0
    for piece in pieces:
        size += len(piece)
        room = half - len(head)
        head += piece[:room]
        tail.append(piece[room:][-half:])
        tail_size += len(tail[-1])
        while tail_size - len(tail[0]) >= half:
            tail_size -= len(tail.popleft())
    if size <= MAX_TRACEBACK_CHARACTERS:
        return None
    return f"{head}\n[{size - 2 * half} characters omitted]\n{''.join(tail)[-half:]}"


def _chain(error: BaseException | None) -> Iterator[tuple[BaseException, int]]:
    """An exception, those inside its groups, and the causes and contexts of all, with the number of links that lead to each."""
    pending, seen = [(error, 0)], set[int]()
    while pending:
        each, depth = pending.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            links = (each.__cause__, each.__context__) if depth < _MAX_CHAIN else ()
            yield each, depth
            pending.extend((link, depth + 1) for link in links)
            if isinstance(each, BaseExceptionGroup):
                group = cast("BaseExceptionGroup[BaseException]", each)
                pending.extend((member, depth) for member in group.exceptions)


class _Copies:
    """Exceptions as they are shown: without the input of a ``ValidationError``, each group once, and groups not too deep.

    A group may hold the same group many times, at many levels. To show each would take a time that doubles with each level.
    """

    def __init__(self) -> None:
        self._made: dict[int, BaseException] = {}
        self._members: set[int] = set()

    def of(self, error: BaseException | None, depth: int = 0) -> BaseException | None:
        """The same exception, or a copy."""
        if error is None:
            return None
        if id(error) not in self._made:
            self._made[id(error)] = self._copy(error, depth)
        return self._made[id(error)]

    def _copy(self, error: BaseException, depth: int) -> BaseException:
        copy: BaseException
        if isinstance(error, ValidationError):
            copy = _hidden(error)
        elif isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            shown = [self._member(member, depth + 1) for member in group.exceptions]
            if all(map(operator.is_, shown, group.exceptions)):
                return group
            copy = BaseExceptionGroup(group.message, shown)
        else:
            return error
        copy.__cause__, copy.__context__, copy.__suppress_context__ = (
            error.__cause__,
            error.__context__,
            error.__suppress_context__,
        )
        return copy.with_traceback(error.__traceback__)

    def _member(self, member: BaseException, depth: int) -> BaseException:
        if issubclass(type(member), BaseExceptionGroup):
            if id(member) in self._members:
                return _Omitted("a group that is shown above")
            if depth > _MAX_GROUPS:
                return _Omitted(f"more than {_MAX_GROUPS} groups inside each other; inner ones are omitted")
            self._members.add(id(member))
        return self.of(member, depth) or member


def _hidden(error: ValidationError) -> ValidationError:
    lines: list[InitErrorDetails] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        code: Any = problem["type"]  # any author's error type
        kind = PydanticCustomError(code, "{text}", {"text": problem["msg"]})
        lines.append(InitErrorDetails(type=kind, loc=problem["loc"], input=None))
    return ValidationError.from_exception_data(error.title, lines, hide_input=True)
