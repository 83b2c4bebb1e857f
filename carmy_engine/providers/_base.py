"""What every format has in common: tools out, calls in, results out."""

from __future__ import annotations

import abc
import copy
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec

from .._execution.model_calls import ModelCall, ModelResult
from .._model import codec
from .._model.content import Content, content_of, text_for
from .._model.errors import AgentError
from .._model.spec import Catalog, PublicSpec, ToolSpec
from .._model.type_guards import is_list, is_mapping, is_tuple
from .._schema.json_form import encode_arguments
from ._json_schema_tools import Schema, portable, with_plain_root, without_nulls
from ._names import NameRule, wire_names
from ._result_text import text_of

Spec = ToolSpec | PublicSpec


class Written(NamedTuple):
    """One call as a response has it."""

    name: object
    arguments: object
    """JSON text, or what it stands for."""
    call_id: object


class CallStream(abc.ABC):
    """Puts the calls of one streamed response together."""

    def __init__(self, provider: Provider, turn: str | None) -> None:
        self._provider = provider
        self._turn = turn
        self._response_id: object = None

    @abc.abstractmethod
    def feed(self, chunk: object) -> None:
        """Take one chunk or event, as JSON or as the provider's own object. What holds no call is ignored."""

    def calls(self) -> list[ModelCall]:
        """The calls so far. One that was cut off has arguments that cannot be read, and is answered as such."""
        return self._provider.parse(self._response(), turn=self._turn)

    @abc.abstractmethod
    def _response(self) -> object:
        """What there is so far, as if it had not been streamed."""


class Provider(abc.ABC):
    """The tools of one agent, in the format of one provider of models.

    Args:
        tools: A catalog, or specs in the order in which the model shall see them.
        hidden: Names of tools that the model is not shown. One that it calls all the same is known for what it is, so that
            the engine can say that it is not permitted.
    """

    format: ClassVar[str]
    """What `provider` calls it."""
    rule: ClassVar[NameRule]
    """What it takes as a name."""

    def __init__(self, tools: Catalog | Iterable[Spec], hidden: Iterable[str] = ()) -> None:
        specs: Iterable[Spec] = tools.tools if isinstance(tools, Catalog) else tools
        self._specs = {spec.name: spec for spec in specs}
        self._names = wire_names(self._specs, self.rule)
        self._tool_names = {wire: name for name, wire in wire_names(sorted(hidden), self.rule).items()}
        self._tool_names.update((wire, name) for name, wire in self._names.items())
        self._strict: dict[str, Schema] = {}
        """The schemas from `portable` of the tools that are exported in strict mode."""
        self._not_strict: dict[str, str] = {}
        self._tools = [self._exported(spec, self._names[name]) for name, spec in self._specs.items()]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """What goes into a request, ready for JSON; the caller's own copy."""
        return copy.deepcopy(self._tools)

    @property
    def not_strict(self) -> Mapping[str, str]:
        """The tools that the provider's strict mode has no form for, each with the reason: `tools` has them without it.

        Empty for a format without a strict mode.
        """
        return MappingProxyType(self._not_strict)

    def name_for(self, tool: str) -> str:
        """The exported name of a tool; the name itself for a tool that was not exported."""
        return self._names.get(tool, tool)

    def tool_for(self, name: str) -> str:
        """The tool of a name that a model wrote; the name itself if it stands for none."""
        return self._tool_names.get(name, name)

    def parse(self, response: object, *, turn: str | None = None) -> list[ModelCall]:
        """The calls that a response asks for, in its order; none for an answer in words.

        Args:
            response: As JSON, or as the provider's own object. Also the part of it that is kept in a conversation.
            turn: Distinguishes turns, for models whose ids of calls are unique within one turn only.

        Raises:
            ValueError: It is not a response of this provider.
        """
        response_id = look(response, "id", "responseId", "response_id")
        return [
            self._call(written, turn, made_up_id(response_id, place))
            for place, written in enumerate(self._written(response))
        ]

    @abc.abstractmethod
    def render(self, results: Iterable[ModelResult]) -> list[dict[str, Any]]:
        """The messages that return to a model the results of its turn; they follow that turn in the conversation."""

    @abc.abstractmethod
    def stream(self, *, turn: str | None = None) -> CallStream:
        """What puts the calls of a streamed response together; one for each response."""

    @abc.abstractmethod
    def _exported(self, spec: Spec, name: str) -> dict[str, Any]:
        """One tool for the request."""

    def call(self, name: str, arguments: object, call_id: str | None = None, *, turn: str | None = None) -> ModelCall:
        """One call that a framework has taken out of a response.

        Args:
            name: As the model wrote it.
            arguments: JSON text, or what it stands for.
            call_id: The model's id of the call; None if it has none.
            turn: See `parse`.
        """
        return self._call(Written(name, arguments, call_id), turn, made_up_id(None, 0))

    def text(self, result: ModelResult) -> str:
        """A result as text for a model: the output, or the way to repair the call."""
        content = self._content(result)
        if content is not None:
            return "\n".join(map(text_for, content))
        return text_of(result.result, self.name_for)

    def _content(self, result: ModelResult) -> list[Content] | None:
        """The content of a result; None if its tool returns plain data, or if it failed."""
        spec = self._specs.get(result.call.tool)
        return None if spec is None else content_of(spec.output_schema, result.result)

    @abc.abstractmethod
    def _written(self, response: object) -> list[Written]:
        """The calls in a response; see `parse`."""

    def _call(self, written: Written, turn: str | None, spare_id: str) -> ModelCall:
        """One call. Without an id of the model's it gets the spare one."""
        name = written.name if isinstance(written.name, str) else ""
        given = written.call_id if isinstance(written.call_id, str) and written.call_id else None
        tool = self.tool_for(name)
        raw: msgspec.Raw | None = None
        problem = None
        try:
            raw = self._readable(tool, written.arguments)
        except AgentError as error:
            problem = _unreadable(error).info
        return ModelCall(
            tool=tool,
            arguments=raw,
            call_id=spare_id if given is None else given,
            generated=given is None,
            turn=turn,
            name=name,
            problem=problem,
        )

    def _readable(self, tool: str, arguments: object) -> msgspec.Raw | None:
        """The arguments as JSON that the engine's parsers survive.

        Raises:
            AgentError: They are not JSON.
        """
        if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
            return None
        if isinstance(arguments, str):
            try:
                data = arguments.encode()
            except UnicodeEncodeError:
                raise codec.invalid_request("the arguments contain a lone surrogate") from None
            codec.check_json(data)
            codec.decode(data, type=msgspec.Raw)
        elif is_mapping(arguments):
            data = encode_arguments(arguments)
        else:
            data = encode_arguments({"": arguments})[4:-1]  # the engine refuses what is no object
        if tool in self._strict and b"null" in data:
            # With the standard library, whose numbers are exact.
            value = without_nulls(json.loads(data), self._strict[tool])
            data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        return msgspec.Raw(data)


def _unreadable(error: AgentError) -> AgentError:
    reason = (error.details or {}).get("reason")
    if error.code == "INVALID_ARGUMENTS" or reason is None:
        return error
    message = f"the arguments are not valid JSON: {reason}; they may have been cut off"
    problem = {"path": "", "code": "invalid_json", "message": message}
    return AgentError.standard("INVALID_ARGUMENTS", message, details={"problems": [problem]})


def made_up_id(response_id: object, place: int) -> str:
    """An id for a call that has none. The same response gives the same ids; without an id of its own, no two do."""
    if isinstance(response_id, str) and response_id:
        return f"call_{hashlib.sha256(f'{response_id}/{place}'.encode()).hexdigest()[:24]}"
    return f"call_{secrets.token_hex(12)}"


def look(part: object, *names: str) -> Any:
    """The member of a JSON object, or the attribute of a provider's own object, under the first name that there is."""
    for name in names:
        found: Any = part.get(name) if is_mapping(part) else getattr(part, name, None)
        if found is not None:
            return found
    return None


def text_in(part: object, name: str) -> str:
    """A text under a name; nothing where there is none, or something else."""
    found: object = look(part, name)
    return found if isinstance(found, str) else ""


def key_in(part: object, name: str) -> int | str | None:
    """The key of one part of a stream, under a name."""
    found: object = look(part, name)
    return found if isinstance(found, int | str) else None


def many(part: object) -> list[Any]:
    """The items of a list; none of anything else."""
    return list(part) if is_list(part) or is_tuple(part) else []


def neutral(spec: Spec) -> Schema:
    """A tool as every provider's format has it in some way: name, description, parameters."""
    return copy.deepcopy(
        {"name": spec.name, "description": spec.description, "parameters": {**_plain(spec.input_schema)}}
    )


def parameters_of(spec: Spec) -> Schema:
    """The schema of the arguments, in the words that providers share and with a plain root."""
    return with_plain_root(portable(spec.input_schema))


def _plain(schema: Mapping[str, Any]) -> Schema:
    """Without what only documents that stand alone need."""
    return {key: value for key, value in schema.items() if key != "$schema"}
