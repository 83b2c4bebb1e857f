"""A client by script, for tests of tools that ask the client behind their call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import trio

from .._model.client_features import Answer, LogLevel, Root, Sample, SampleRequest
from .._model.content import Text


class ScriptedClient:
    """A client that answers from lists, for ``engine.bind(client=...)``.

    Args:
        answers: Answers of the person, in order: values by name to accept, an `Answer`, or an exception to raise. After the last one
            the person never answers. None: the client cannot ask.
        samples: Messages of the model, in the same way. None: the client has no model.
        roots: The roots. None: the client has none.
        takes_logs: The client takes log messages.

    Attributes:
        asked: The questions, each with its schema.
        sampled: The requests to the model.
        logged: The log messages, each with its level.
        is_waiting: Set when a question waits for an answer that never comes.
    """

    def __init__(
        self,
        *,
        answers: Iterable[Answer | Mapping[str, Any] | Exception] | None = None,
        samples: Iterable[Sample | str | Exception] | None = None,
        roots: Iterable[Root] | None = None,
        takes_logs: bool = True,
    ) -> None:
        self._answers = None if answers is None else [*answers]
        self._samples = None if samples is None else [*samples]
        self._roots = None if roots is None else [*roots]
        self._takes_logs = takes_logs
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.sampled: list[SampleRequest] = []
        self.logged: list[tuple[LogLevel, str]] = []
        self.is_waiting = trio.Event()

    @property
    def can_ask(self) -> bool:
        """See `ClientFeatures`."""
        return self._answers is not None

    @property
    def can_sample(self) -> bool:
        """See `ClientFeatures`."""
        return self._samples is not None

    @property
    def has_roots(self) -> bool:
        """See `ClientFeatures`."""
        return self._roots is not None

    async def ask(self, message: str, schema: Mapping[str, Any], /) -> Answer:
        """See `ClientFeatures`."""
        self.asked.append((message, schema))
        answer = await self._next(self._answers)
        return answer if isinstance(answer, Answer) else Answer("accept", answer)

    async def sample(self, request: SampleRequest, /) -> Sample:
        """See `ClientFeatures`."""
        self.sampled.append(request)
        found = await self._next(self._samples)
        return found if isinstance(found, Sample) else Sample(content=(Text(found),), model="scripted")

    async def roots(self) -> Sequence[Root]:
        """See `ClientFeatures`."""
        await trio.lowlevel.checkpoint()
        return self._roots or []

    def log(self, level: LogLevel, message: str, /) -> bool:
        """See `ClientFeatures`."""
        if self._takes_logs:
            self.logged.append((level, message))
        return self._takes_logs

    async def _next(self, script: list[Any] | None) -> Any:
        if not script:
            self.is_waiting.set()
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        assert script is not None
        found = script.pop(0)
        if isinstance(found, Exception):
            raise found
        return found
