"""A document of OpenAPI as a source of tools for an application."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from carmy_engine import AgentError, DeclarationError, Effect
from carmy_engine.transport import Fault, call_foreign, reason_of

from ._http import ASGI_URL, NotSent, fetch, open_client
from ._lifespan import StartFailed, run_lifespan
from ._operations import Choice, Operation, read_operations
from ._references import MAX_DOCUMENT_BYTES, Document, DocumentError, object_in
from ._tools import OperationTool

FETCH_SECONDS = 30.0
"""For a document at an address."""

DEFAULT_MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""Size of an answer. Half of what the output of a tool may have, as bytes take a third more in base64."""


class OpenApi:
    """The operations of a document, as tools. See `carmy_engine.App.openapi`.

    Attributes:
        place: Where the tools come from, for messages.
    """

    def __init__(
        self,
        source: Any,
        *,
        client: Any = None,
        asgi: Any = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        effects: Mapping[str, Effect | str] | None = None,
        credentials: Mapping[str, str] | None = None,
        base_url: str | None = None,
        prefix: str = "",
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        if any(isinstance(patterns, str) for patterns in (include, exclude)):
            raise DeclarationError("app.openapi: include and exclude are lists of patterns, not one text")
        self._source = source
        self._client = client
        self._asgi = asgi
        self._secrets = dict(credentials or {})
        for scheme, secret in self._secrets.items():
            if not secret.isprintable() or not secret.isascii():
                raise DeclarationError(f"app.openapi: the credential for {scheme!r} is no text that a header can carry")
        self._max_bytes = max_response_bytes
        self._base_url = base_url
        self._prefix = prefix
        self._include, self._exclude = tuple(include), tuple(exclude)
        try:
            self._effects = {name: Effect(effect) for name, effect in (effects or {}).items()}
        except ValueError as wrong:
            raise DeclarationError(f"app.openapi: effects: {wrong}") from None
        is_application = not isinstance(source, str | os.PathLike | Mapping)
        if is_application:
            if not callable(getattr(source, "openapi", None)):
                raise DeclarationError(
                    "app.openapi takes a document, a path, a URL, or an application with the method openapi(); "
                    "for another application, pass its document and asgi="
                )
            self._asgi = source if asgi is None else asgi
        self._url = source if isinstance(source, str) and source.startswith(("http://", "https://")) else None
        self._path: Path | None = None
        if self._url is None and isinstance(source, str | os.PathLike):
            self._path = Path(cast("str | os.PathLike[str]", source))
        named = self._url or self._path
        self.place = f"the OpenAPI document {named}" if named else "an OpenAPI document"

    def check(self) -> list[AgentError]:
        """All problems that can be found without a connection."""
        if self._url is not None:
            return []
        return self._read_local()[1]

    async def open(self, stack: AsyncExitStack) -> tuple[list[OperationTool], list[AgentError]]:
        """The tools, and all problems. `stack` closes the client, unless the application gave it.

        Raises:
            trio.Cancelled: The start was cancelled.
        """
        client = self._client
        if client is None:
            try:
                asgi = self._asgi and await stack.enter_async_context(run_lifespan(self._asgi))
            except (StartFailed, ExceptionGroup) as failed:
                return [], [self._problem(f"the application has not started: {reason_of(failed)}")]
            client = await stack.enter_async_context(open_client(asgi))
        if self._url is None:
            operations, problems = self._read_local()
        else:
            try:
                data = await fetch(client, self._url, MAX_DOCUMENT_BYTES, FETCH_SECONDS)
                operations, problems = self._read(Document.parse(data))
            except (NotSent, DocumentError) as problem:
                operations, problems = [], [self._problem(str(problem))]
        return [self._tool(operation, client) for operation in operations], problems

    def _tool(self, operation: Operation, client: Any) -> OperationTool:
        names = (operation.name, operation.operation_id or "", operation.place)
        effect = next((self._effects[name] for name in names if name in self._effects), None)
        return OperationTool(operation, client, self._secrets, effect, self._max_bytes)

    def _read_local(self) -> tuple[list[Operation], list[AgentError]]:
        try:
            return self._read(self._document())
        except DocumentError as problem:
            return [], [self._problem(str(problem))]

    def _document(self) -> Document:
        source, path = self._source, self._path
        if isinstance(source, Mapping):
            return Document(cast(object, source))
        if path is not None:
            try:
                if path.stat().st_size > MAX_DOCUMENT_BYTES:
                    raise DocumentError(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
                return Document.parse(path.read_bytes())
            except OSError as error:
                raise DocumentError(f"it cannot be read: {error.strerror}") from None
        try:
            return Document(call_foreign(source.openapi))
        except (AgentError, Fault) as fault:
            raise DocumentError(f"openapi() of the application failed: {fault}") from fault

    def _read(self, document: Document) -> tuple[list[Operation], list[AgentError]]:
        base = self._base_url
        if base is None and self._asgi is not None:
            base = ASGI_URL
        choice = Choice(
            include=self._include,
            exclude=self._exclude,
            prefix=self._prefix,
            base_url=base,
            origin=self._url,
            schemes=frozenset(self._secrets),
            is_authenticated=self._client is not None,
        )
        operations, problems = read_operations(document, choice)
        known = {name for found in operations for name in (found.name, found.operation_id, found.place)}
        problems += [f"effects: there is no operation {name!r}" for name in self._effects if name not in known]
        unknown = self._secrets.keys() - _schemes(document)
        problems += [f"credentials: there is no security scheme {name!r}" for name in sorted(unknown)]
        return operations, [self._problem(problem) for problem in problems]

    def _problem(self, text: str) -> AgentError:
        return AgentError.standard("INVALID_SCHEMA", f"{self.place}: {text}")


def _schemes(document: Document) -> set[str]:
    return set(object_in(document.root.get("components"), "securitySchemes"))
