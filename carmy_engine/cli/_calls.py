"""The command ``call``: one execution, here or on a running server."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import trio
from cyclopts import Parameter

from .._app import serve
from .._app.app import App
from .._model.codec import answer_body
from .._model.request import ExecutionRequest, OnRunning
from .._model.result import ExecutionStatus
from ._identity import Identity, Permission, Principal, local_identity, refuse_identity
from ._json_words import json_word
from ._loop import run_loop
from ._notices import say
from ._outcome import FAILURE, SUCCESS, UsageError
from ._problems import forgets
from ._remote import CaFile, RemoteServer, Token
from ._stdout import claimed_stdout
from ._target import FORMS, is_target, load_target

Words = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,  # for the '-'
        help="The target (unless --url is given), the tool's name, and its arguments as JSON ('-': from standard input).",
    ),
]
RequestId = Annotated[str | None, Parameter(help="The idempotency identity: the same id gives the same answer.")]
Timeout = Annotated[float | None, Parameter(help="Seconds that the call may take; can only shorten the usual limit.")]
OnRunningOption = Annotated[
    OnRunning, Parameter(name="on-running", help="If the same request is running: be refused, or wait for its answer.")
]
Url = Annotated[str | None, Parameter(help="Call a running server instead, such as http://127.0.0.1:3000.")]


class Calls:
    """The command, over one application, or over the one that each command line names."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    def call(
        self,
        *words: Words,
        request_id: RequestId = None,
        timeout: Timeout = None,
        on_running: OnRunningOption = "refuse",
        url: Url = None,
        token: Token = None,
        ca_file: CaFile = None,
        principal: Principal = None,
        permission: Permission = None,
    ) -> int:
        """Run one tool and print the answer; exit code 0 when it completed."""
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise UsageError("--timeout must be a number of seconds above 0")
        if token is not None and url is None:
            raise UsageError("--token is for a running server: give its --url as well")
        if ca_file is not None and url is None:
            raise UsageError("--ca-file is for a running server: give its --url as well")
        identity = local_identity(principal, permission)
        if url is not None:
            refuse_identity(identity, "call --url")
        with claimed_stdout() as out:
            target, tool, arguments = self._call_words(list(words), remote=url is not None)
            request = ExecutionRequest(
                tool=tool,
                arguments=None if arguments is None else msgspec.Raw(arguments),
                request_id=request_id,
                timeout_ms=None if timeout is None else timeout * 1000,
                on_running=on_running,
            )
            if url is None:
                body, completed = self._call_here(target, request, identity)
            else:
                body, completed = RemoteServer(url, token, ca_file).call(request)
            out(body + b"\n")
        return SUCCESS if completed else FAILURE

    def _call_words(self, words: list[str], *, remote: bool) -> tuple[str | None, str, bytes | None]:
        """The target, the tool and the arguments; the last are None when there are none."""
        target = None
        if self._app is None and words and is_target(words[0]):
            target = words.pop(0)
            if remote:
                raise UsageError("--url calls a running server, so the command takes no target")
        for word in words:
            if word.startswith("--"):
                raise UsageError(f"call has no option {word}")
        if not 1 <= len(words) <= 2:
            raise UsageError("call needs the name of a tool, and at most one JSON text after it")
        if len(words) == 1:
            return target, words[0], None
        hint = "" if target or self._app else f"; if {words[0]!r} is the target, write it as {FORMS}"
        return target, words[0], json_word(words[1], f"the arguments of {words[0]!r} are", hint)

    def _call_here(self, target: str | None, request: ExecutionRequest, identity: Identity) -> tuple[bytes, bool]:
        app = load_target(self._app, target)
        if request.request_id is not None and forgets(app):
            say(
                "the store memory: ends with this command, so the same --request-id runs the tool again next time:"
                " set store.url to one that lasts, such as sqlite:PATH"
            )

        async def execute() -> tuple[bytes, bool]:
            async with app.open() as engine:
                with trio.CancelScope() as scope, serve.stop_signals(scope.cancel):
                    caller = engine.bind(principal=identity.principal, permissions=identity.permissions)
                    result = await caller.execute(request)
                    return answer_body(result), result.status is ExecutionStatus.COMPLETED
            raise KeyboardInterrupt

        return run_loop(execute)
