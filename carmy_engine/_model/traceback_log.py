"""Tracebacks in the log: of bounded length, without the input that pydantic puts into the text of a ``ValidationError``."""

from __future__ import annotations

import collections
import logging
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, cast

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]

MAX_TRACEBACK_CHARACTERS = 64 * 1024
"""Length of one traceback in the log. A tool controls the texts of its exceptions, and each failed call writes them."""

_MAX_CHAIN = 100
"""Causes and contexts of one exception in the log. Longer chains come from a loop that keeps raising."""


class _Omitted(Exception):  # noqa: N818 - a mark in the log, which is never raised
    """The place of the causes beyond `_MAX_CHAIN`."""

    def __init__(self) -> None:
        super().__init__(f"more than {_MAX_CHAIN} causes; earlier ones are omitted")


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
    walked = list(_chain(error))
    links = [(each, each.__cause__, each.__context__, each.__suppress_context__) for each, _ in walked]
    try:
        for each, depth in walked:
            if depth == _MAX_CHAIN and (each.__cause__ is not None or each.__context__ is not None):
                each.__cause__, each.__context__ = _Omitted(), None
        for each, _ in reversed(walked):  # a copy takes over the links of its original, so those are replaced first
            cause, context, suppressed = each.__cause__, each.__context__, each.__suppress_context__
            if _has_input(cause) or _has_input(context):
                each.__cause__, each.__context__ = _without_input(cause), _without_input(context)
                each.__suppress_context__ = suppressed
        shown = _without_input(error)
        text = None if shown is None else _shortened(traceback.TracebackException.from_exception(shown).format())
        if text is None:
            log.error(what, *args, exc_info=shown)
        else:
            log.error(f"{what}\n%s", *args, text)  # noqa: G004 - a format string
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


def _has_input(error: BaseException | None) -> bool:
    """True for a ``ValidationError``, and for a group that holds one."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return group.subgroup(lambda leaf: isinstance(leaf, ValidationError)) is not None
    return isinstance(error, ValidationError)


def _without_input(error: BaseException | None) -> BaseException | None:
    """The same exception, or a copy whose text lacks the input."""
    if error is None or not _has_input(error):
        return error
    copy: BaseException
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        copy = BaseExceptionGroup(group.message, [_without_input(one) or one for one in group.exceptions])
    else:
        copy = _hidden(cast(ValidationError, error))
    copy.__cause__, copy.__context__, copy.__suppress_context__ = (
        error.__cause__,
        error.__context__,
        error.__suppress_context__,
    )
    return copy.with_traceback(error.__traceback__)


def _hidden(error: ValidationError) -> ValidationError:
    lines: list[InitErrorDetails] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        code: Any = problem["type"]  # any author's error type
        kind = PydanticCustomError(code, "{text}", {"text": problem["msg"]})
        lines.append(InitErrorDetails(type=kind, loc=problem["loc"], input=None))
    return ValidationError.from_exception_data(error.title, lines, hide_input=True)
