"""Every exception and every error code of the engine.

::

    Exception
    ├── AgentError                 an outcome: the error that the caller of a tool receives
    └── CarmyError                 a broken promise of a program, never an outcome
        ├── DeclarationError       a tool or an application is declared wrongly (also a TypeError)
        ├── StartupError           an application cannot start; lists every problem
        ├── ConfigurationError     a setting is unknown or out of range (also a ValueError)
        ├── ClosedError            an engine or a client was used after it was closed
        ├── WrongLoopError         an interface was used under an event loop that it is not made for (also a RuntimeError)
        └── OutcomeUnknownError    clients only: the connection broke after the call may have started

A tool raises `AgentError`; the engine returns it inside an `ExecutionResult`. The others are raised to the program.
"""

from ._model.errors import (
    CODES,
    AgentError,
    CarmyError,
    ClosedError,
    CodeInfo,
    ConfigurationError,
    DeclarationError,
    OutcomeUnknownError,
    StartupError,
    WrongLoopError,
)

__all__ = [
    "CODES",
    "AgentError",
    "CarmyError",
    "ClosedError",
    "CodeInfo",
    "ConfigurationError",
    "DeclarationError",
    "OutcomeUnknownError",
    "StartupError",
    "WrongLoopError",
]
