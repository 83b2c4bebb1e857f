"""Errors of code that awaits the library of another event loop."""

from __future__ import annotations

_TO_ASYNCIO = (
    " It awaits code of asyncio under trio: declare the tool with @tool(..., backend='asyncio'), or the application with"
    " App(..., backend='asyncio')."
)
_TO_TRIO = " It awaits code of trio in an asyncio loop: leave out backend='asyncio', or declare the tool with @tool(..., backend='trio')."

_ADVICE = (
    # The errors of trio and asyncio have no classes of their own.
    (RuntimeError, "no running event loop", _TO_ASYNCIO),
    (RuntimeError, "There is no current event loop", _TO_ASYNCIO),
    (TypeError, "some other framework like asyncio", _TO_ASYNCIO),
    (RuntimeError, "must be called from async context", _TO_TRIO),
    (RuntimeError, "Task got bad yield", _TO_TRIO),
    (AttributeError, "'RunContext' object has no attribute", _TO_TRIO),
)


def advice_for(error: BaseException, text: str) -> str:
    """A sentence for the log that names the right declaration; empty for other errors.

    Args:
        error: The exception.
        text: Its text.
    """
    for kind, words, advice in _ADVICE:
        if type(error) is kind and words in text:
            return advice
    return ""
