"""The operations of a document, and the arguments of the tools that they become."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import urljoin, urlsplit

from ._references import MAX_OPERATIONS, Document, DocumentError, is_array, is_object, object_in
from ._schema import Schemas

Location = Literal["path", "query", "header", "cookie"]
METHODS = ("get", "put", "post", "delete", "patch")
"""The methods that become tools; the others carry no data."""

BODY = "body"
"""The argument that is the body."""

_STYLES: Mapping[Location, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each location, the default first."""

_IGNORED_HEADERS = frozenset({"accept", "authorization", "content-type"})
"""Headers that are no parameters, by the specification."""

_MAX_NAME = 128
_MAX_ARGUMENT = 64
"""Letters of a tool's name; and of an argument's, which models take no more of."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter.

    Attributes:
        argument: The name of the argument.
        name: Its name in the request.
        location: Where it stands.
        style: How lists and objects are written.
        explode: Each item is written by itself.
        is_json: It is written as JSON.
        allow_reserved: Reserved characters are not encoded.
    """

    argument: str
    name: str
    location: Location
    style: str
    explode: bool
    is_json: bool
    allow_reserved: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The body of a request.

    Attributes:
        media_type: How it is written.
        files: The fields of a multipart body that are files.
        types: The media types of its fields, as far as the document names them.
    """

    media_type: str
    files: frozenset[str] = frozenset()
    types: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Where a credential goes.

    Attributes:
        scheme: The name of the security scheme.
        location: ``header``, ``query`` or ``cookie``.
        name: The name there.
        kind: ``key`` as it is, ``bearer`` or ``basic``.
    """

    scheme: str
    location: str
    name: str
    kind: Literal["key", "bearer", "basic"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation.

    Attributes:
        name: Of the tool.
        operation_id: Its id in the document.
        method: In upper case.
        path: The template of its path.
        title: Its summary.
        description: Its description.
        server: The address that its path is appended to.
        parameters: In order.
        body: Of its request.
        input_schema: JSON Schema of the arguments.
        credentials: What each request carries.
        takes_key: It has the header ``Idempotency-Key``.
    """

    name: str
    operation_id: str | None
    method: str
    path: str
    title: str | None
    description: str
    server: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    input_schema: Mapping[str, Any]
    credentials: tuple[Credential, ...]
    takes_key: bool

    @property
    def place(self) -> str:
        """The operation, for messages."""
        return f"{self.method} {self.path}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a person chose for a document.

    Attributes:
        include: Patterns of operations: ids, names, ``GET /path``; empty for all.
        exclude: The same of those left out.
        prefix: What comes before names.
        base_url: The address of the server; None for that of the document.
        origin: The address of the document; None for a local one.
        schemes: The security schemes that there are credentials for.
        is_authenticated: The client carries credentials of its own.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    prefix: str = ""
    base_url: str | None = None
    origin: str | None = None
    schemes: frozenset[str] = frozenset()
    is_authenticated: bool = False


def read_operations(document: Document, choice: Choice) -> tuple[list[Operation], list[str]]:
    """The chosen operations, and the problems of the others."""
    found: list[Operation] = []
    problems: list[str] = []
    names: set[str] = set()
    used: set[str] = set()
    for path, item in object_in(document.root, "paths").items():
        try:
            shared = document.resolved(item)
        except DocumentError as problem:
            problems.append(f"{path:.200}: {problem}")
            continue
        for method in METHODS:
            given = shared.get(method)
            if not is_object(given):
                continue
            operation_id = given.get("operationId")
            operation_id = operation_id if isinstance(operation_id, str) else None
            base = _safe_name(operation_id or f"{method}{path}")
            if not _is_chosen(choice, used, operation_id, base, f"{method.upper()} {path}"):
                continue
            if len(found) + len(problems) >= MAX_OPERATIONS:
                return found, [
                    *problems,
                    f"more than {MAX_OPERATIONS} operations are chosen; choose fewer with include=",
                ]
            name = choice.prefix + _unique(base, names)
            names.add(name.removeprefix(choice.prefix))
            try:
                found.append(_operation(document, choice, shared, given, method, path, name, operation_id))
            except DocumentError as problem:
                problems.append(f"{method.upper()} {path:.200}: {problem}")
    unused = [pattern for pattern in choice.include if pattern not in used]
    problems += [f"include={pattern!r} matches no operation" for pattern in unused]
    return found, problems


def _is_chosen(choice: Choice, used: set[str], *names: str | None) -> bool:
    def matches(pattern: str) -> bool:
        return any(name is not None and fnmatch.fnmatchcase(name, pattern) for name in names)

    if any(map(matches, choice.exclude)):
        return False
    matching = [pattern for pattern in choice.include if matches(pattern)]
    used.update(matching)
    return bool(matching) or not choice.include


def _safe_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_.-")[: _MAX_NAME - 8]
    return name or "operation"


def _unique(name: str, taken: set[str]) -> str:
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    return made


def _operation(
    document: Document,
    choice: Choice,
    shared: Mapping[str, Any],
    given: Mapping[str, Any],
    method: str,
    path: str,
    name: str,
    operation_id: str | None,
) -> Operation:
    credentials = _credentials(document, choice, given)
    schemas = Schemas(document)
    properties: dict[str, Any] = {}
    required: list[str] = []
    parameters: list[Parameter] = []
    takes_key = False
    hidden = {(credential.location, credential.name.lower()) for credential in credentials}
    for location, parameter in _parameters(document, shared, given):
        wire = parameter["name"]
        if (location, wire.lower()) in hidden or (location == "header" and wire.lower() in _IGNORED_HEADERS):
            continue
        if location == "header" and wire.lower() == "idempotency-key":
            takes_key = True
            continue
        argument = _argument_name(wire, location, properties)
        own, is_json = _schema_of(parameter)
        properties[argument] = _described(schemas.convert(own), parameter)
        if parameter.get("required") is True or location == "path":
            required.append(argument)
        parameters.append(_written(argument, wire, location, parameter, is_json=is_json))
    body = None
    if "requestBody" in given:
        request = document.resolved(given["requestBody"])
        body, form = _body(document, request, schemas)
        properties[BODY] = _described(form, request)
        if request.get("required") is True:
            required.append(BODY)
    _check_path(path, parameters)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    schemas.finish()
    if schemas.definitions:
        schema["$defs"] = schemas.definitions
    title, text = given.get("summary"), given.get("description")
    return Operation(
        name=name,
        operation_id=operation_id,
        method=method.upper(),
        path=path,
        title=title if isinstance(title, str) and title else None,
        description=str(text or title or f"{method.upper()} {path}"),
        server=_server(document, choice, shared, given),
        parameters=tuple(parameters),
        body=body,
        input_schema=schema,
        credentials=credentials,
        takes_key=takes_key,
    )


def _parameters(
    document: Document, shared: Mapping[str, Any], given: Mapping[str, Any]
) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """The parameters of a path and of an operation, which replaces those of the path."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for part in (shared.get("parameters"), given.get("parameters")):
        for item in part if is_array(part) else ():
            parameter = document.resolved(item)
            name, location = parameter.get("name"), parameter.get("in")
            if not isinstance(name, str) or not isinstance(location, str) or location not in _STYLES:
                raise DocumentError("a parameter has no name, or no place to stand")
            found[name, location] = parameter
    for (_, location), parameter in found.items():
        yield cast(Location, location), parameter


def _schema_of(parameter: Mapping[str, Any]) -> tuple[Any, bool]:
    """The schema of a parameter; and whether it is written as JSON."""
    content = object_in(parameter, "content")
    if not content:
        return parameter.get("schema", {}), False
    media_type = next(iter(content))
    if len(content) > 1 or not _is_json(media_type):
        raise DocumentError(f"the content of the parameter '{parameter['name']:.100}' is not JSON")
    return object_in(content, media_type).get("schema", {}), True


def _written(argument: str, name: str, location: Location, parameter: Mapping[str, Any], *, is_json: bool) -> Parameter:
    style = parameter.get("style", _STYLES[location][0])
    if style not in _STYLES[location]:
        raise DocumentError(f"the parameter '{name:.100}' has the style {style!r:.40}, which a {location} has not")
    explode = parameter.get("explode", style == "form")
    return Parameter(
        argument=argument,
        name=name,
        location=location,
        style=style,
        explode=explode is True,
        is_json=is_json,
        allow_reserved=parameter.get("allowReserved") is True,
    )


def _argument_name(wire: str, location: str, taken: Mapping[str, Any]) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", wire)[: _MAX_ARGUMENT - 12] or location
    if name in taken or name == BODY:
        name = f"{name}_{location}"
    return _unique(name, set(taken))


def _described(schema: Any, part: Mapping[str, Any]) -> Any:
    text = part.get("description")
    if not isinstance(text, str) or not text or (is_object(schema) and "description" in schema):
        return schema
    return {**schema, "description": text} if is_object(schema) else {"description": text}


def _is_json(media_type: str) -> bool:
    bare = media_type.partition(";")[0].strip().lower()
    return bare == "application/json" or bare.endswith("+json")


def _body(document: Document, request: Mapping[str, Any], schemas: Schemas) -> tuple[Body, Any]:
    """The body in the first form that can be written: JSON, a form, a form with files, text, bytes."""
    offered = object_in(request, "content")
    order: tuple[Callable[[str], bool], ...] = (
        _is_json,
        lambda kind: kind.startswith("application/x-www-form-urlencoded"),
        lambda kind: kind.startswith("multipart/form-data"),
        lambda kind: kind.startswith("text/"),
        lambda kind: kind.startswith(("application/octet-stream", "*/*", "image/", "audio/", "video/")),
    )
    for rank, fits in enumerate(order):
        for media_type, media in offered.items():
            if fits(media_type) and is_object(media):
                return _body_of(document, rank, media_type, media, schemas)
    kinds = ", ".join(offered) or "none"
    raise DocumentError(f"its body has no form that can be written: {kinds:.200}")


def _body_of(
    document: Document, rank: int, media_type: str, media: Mapping[str, Any], schemas: Schemas
) -> tuple[Body, Any]:
    schema = media.get("schema", {})
    if rank == 0:
        return Body(media_type=media_type), schemas.convert(schema)
    if rank == 3:
        return Body(media_type=media_type), {"type": "string"}
    if rank == 4:
        kind = "application/octet-stream" if "*" in media_type else media_type
        return Body(media_type=kind), {"type": "string", "contentEncoding": "base64"}
    fields = object_in(document.resolved(schema), "properties")
    files = frozenset(name for name, field in fields.items() if _is_file(document, field))
    converted = schemas.convert(document.resolved(schema))
    for name in files & converted.get("properties", {}).keys():
        converted["properties"][name] = _file_schema(document.resolved(fields[name]))
    types = {
        name: str(how["contentType"])
        for name, how in object_in(media, "encoding").items()
        if is_object(how) and "contentType" in how
    }
    kind = "multipart/form-data" if rank == 2 else "application/x-www-form-urlencoded"
    return Body(media_type=kind, files=files if rank == 2 else frozenset(), types=types), {
        **converted,
        "type": "object",
    }


def _is_file(document: Document, field: Any) -> bool:
    if not is_object(field):
        return False
    found = document.resolved(field)
    if found.get("type") == "array":
        return _is_file(document, found.get("items"))
    return found.get("format") in ("binary", "byte") or "contentEncoding" in found or "contentMediaType" in found


def _file_schema(field: Mapping[str, Any]) -> dict[str, Any]:
    one = {"type": "string", "contentEncoding": "base64"}
    made: dict[str, Any] = {"type": "array", "items": one} if field.get("type") == "array" else one
    return {**made, "description": field["description"]} if "description" in field else made


def _check_path(path: str, parameters: Sequence[Parameter]) -> None:
    if not path.startswith("/"):
        raise DocumentError("its path does not begin with a slash")
    wanted = set(re.findall(r"\{([^{}]*)\}", path))
    given = {parameter.name for parameter in parameters if parameter.location == "path"}
    if missing := sorted(wanted - given):
        raise DocumentError(f"no parameter fills in {', '.join(missing):.200}")


def _server(document: Document, choice: Choice, shared: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The address of the server, without a slash at its end."""
    if choice.base_url is not None:
        return choice.base_url.rstrip("/")
    url = ""
    for part in (given, shared, document.root):
        servers = part.get("servers")
        if is_array(servers) and servers and is_object(servers[0]):
            url = str(servers[0].get("url", ""))
            for name, variable in object_in(servers[0], "variables").items():
                if is_object(variable):
                    url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
            break
    if choice.origin is not None:
        url = urljoin(choice.origin, url or "/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise DocumentError("the document names no server; pass base_url=")
    return url.rstrip("/")


def _credentials(document: Document, choice: Choice, given: Mapping[str, Any]) -> tuple[Credential, ...]:
    """The credentials of the first alternative that all are there for."""
    alternatives = given.get("security", document.root.get("security"))
    if not is_array(alternatives) or not alternatives:
        return ()
    schemes = object_in(document.root.get("components"), "securitySchemes")
    missing: list[str] = []
    for alternative in alternatives:
        if not is_object(alternative):
            raise DocumentError("a security requirement is no object")
        if alternative.keys() <= choice.schemes:
            return tuple(_credential(document, name, schemes) for name in alternative)
        missing += [name for name in alternative if name not in choice.schemes]
    if choice.is_authenticated or {} in alternatives:
        return ()
    wanted = ", ".join(f"{name!r}: ..." for name in dict.fromkeys(missing))
    raise DocumentError(f"it needs credentials: pass credentials={{{wanted:.200}}}, one of them, or client=")


def _credential(document: Document, name: str, schemes: Mapping[str, Any]) -> Credential:
    found = document.resolved(schemes.get(name, {}))
    kind = found.get("type")
    if kind == "apiKey" and found.get("in") in ("header", "query", "cookie") and isinstance(found.get("name"), str):
        return Credential(scheme=name, location=found["in"], name=found["name"], kind="key")
    if kind == "http" and str(found.get("scheme")).lower() in ("basic", "bearer"):
        http: Any = str(found["scheme"]).lower()
        return Credential(scheme=name, location="header", name="Authorization", kind=http)
    if kind in ("oauth2", "openIdConnect"):
        return Credential(scheme=name, location="header", name="Authorization", kind="bearer")
    raise DocumentError(f"the security scheme {name!r:.100} is not supported: {kind!r:.40}; pass client=")
