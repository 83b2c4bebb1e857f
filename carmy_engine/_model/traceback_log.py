"""Log an exception with its traceback, without the input that pydantic puts into the text of a ``ValidationError``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]

_MAX_CHAIN = 100
"""Causes and contexts that are looked at. Longer chains come from a loop that raises again and again."""


def write_traceback(log: Log, error: BaseException | None, what: str, *args: object) -> None:
    """Log a line at level error, with the traceback of an exception.

    Args:
        log: The logger.
        error: Its causes are logged as well. While this runs, each of them that is a ``ValidationError`` has a copy in its place.
        what: A format string.
        *args: What is put into it.
    """
    replaced: list[tuple[BaseException, BaseException | None, BaseException | None, bool]] = []
    for each in _chain(error):
        cause, context, suppressed = each.__cause__, each.__context__, each.__suppress_context__
        if _has_input(cause) or _has_input(context):
            replaced.append((each, cause, context, suppressed))
            each.__cause__, each.__context__ = _without_input(cause), _without_input(context)
            each.__suppress_context__ = suppressed
    try:
        log.error(what, *args, exc_info=_without_input(error))
    finally:
        for each, cause, context, suppressed in replaced:
            each.__cause__, each.__context__, each.__suppress_context__ = cause, context, suppressed


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, those inside its groups, and the causes and contexts of all."""
    pending, seen = [error], set[int]()
    while pending and len(seen) < _MAX_CHAIN:
        each = pending.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__cause__, each.__context__]
            if isinstance(each, BaseExceptionGroup):
                pending.extend(cast("BaseExceptionGroup[BaseException]", each).exceptions)


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
        code: Any = problem["type"]  # of any author's error
        kind = PydanticCustomError(code, "{text}", {"text": problem["msg"]})
        lines.append(InitErrorDetails(type=kind, loc=problem["loc"], input=None))
    return ValidationError.from_exception_data(error.title, lines, hide_input=True)
