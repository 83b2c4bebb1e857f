"""The headers of Streamable HTTP since 2026-07-28, which repeat parts of the body for proxies: names, codings and checks."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from carmy_engine.transport import shortened

from .errors import HEADER_MISMATCH, UNSUPPORTED_VERSION, JsonRpcError
from .methods import METHODS, NO_PARAMETER
from .versions import VERSIONS, is_modern

SESSION_ID = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
PARAM_PREFIX = b"mcp-param-"
LAST_EVENT_ID = b"last-event-id"

DECLARATION = "x-mcp-header"
"""The keyword of a property's schema that names the header of its value."""

_CODED = re.compile(r"=\?base64\?(.*)\?=")
_SAFE = re.compile(r"[\x20-\x7e]*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL = re.compile(r"-?[0-9]+(\.0*)?")
_PRIMITIVE = frozenset({"string", "integer", "boolean"})

HeaderList = Sequence[tuple[bytes, bytes]]


def encode_value(value: str) -> str:
    """A value as a header: coded if it is not printable ASCII, or has blanks at its ends."""
    if _SAFE.fullmatch(value) and value == value.strip() and not _CODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode('ascii')}?="


def decode_value(value: bytes) -> str | None:
    """The value of a header; None for a bad coding, which must not match any value."""
    text = value.decode("latin-1")
    coded = _CODED.fullmatch(text)
    if coded is None:
        return text
    try:
        data = base64.b64decode(coded[1], validate=True)
        return data.decode() if base64.b64encode(data).decode("ascii") == coded[1] else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def unsupported_version(requested: str, supported: Sequence[str] = VERSIONS) -> JsonRpcError:
    """The error for a version that is not spoken here (MCP 2026-07-28, "Versioning")."""
    return JsonRpcError(
        UNSUPPORTED_VERSION,
        f"the requested version of the protocol is not supported; there are {', '.join(supported)}",
        {"supported": list(supported), "requested": shortened(requested)},
    )


def routing_headers(version: str, method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a message of a client.

    Args:
        version: The agreed version.
        method: The method of the message; empty for an answer.
        params: Its parameters.
    """
    found = {VERSION.decode(): version}
    if method and is_modern(version):
        found[METHOD.decode()] = method
        name = params.get(METHODS.get(method, NO_PARAMETER).named_by or "")
        if isinstance(name, str):
            found[NAME.decode()] = encode_value(name)
    return found


def parameter_headers(declared: Sequence[ParameterHeader], arguments: object) -> dict[str, str]:
    """The headers that repeat the arguments of a call. An argument that is null or left out has none."""
    found: dict[str, str] = {}
    for name, path, _ in declared:
        value = value_at(arguments, path)
        rendered = None if value is None else render_argument(value)
        if rendered is not None:
            found[name.decode()] = encode_value(rendered)
    return found


class _Named(msgspec.Struct):
    """The parameters that ``Mcp-Name`` may repeat."""

    name: Any = None
    uri: Any = None
    taskId: Any = None  # noqa: N815 - its name on the wire


class RoutingHeaders(NamedTuple):
    """The headers of one request that repeat its method and its name.

    Attributes:
        version: ``MCP-Protocol-Version``.
        method: ``Mcp-Method``.
        name: ``Mcp-Name``.
        twice: A header that is there twice; None if there is none.
    """

    version: bytes | None
    method: bytes | None
    name: bytes | None
    twice: bytes | None

    @classmethod
    def of(cls, headers: HeaderList) -> RoutingHeaders:
        """Find them among all headers."""
        found: dict[bytes, bytes] = {}
        twice: bytes | None = None
        for name, value in headers:
            if name in (VERSION, METHOD, NAME):
                twice = name if name in found else twice
                found[name] = value
        return cls(found.get(VERSION), found.get(METHOD), found.get(NAME), twice)

    def check(self, version: object, method: str, params: msgspec.Raw) -> None:
        """Compare them with the body of a request.

        Args:
            version: The version in the request's ``_meta``.
            method: Its method.
            params: Its parameters.

        Raises:
            JsonRpcError: `HEADER_MISMATCH`.
        """
        if self.twice is not None:
            raise _mismatch(f"the header {self.twice.decode()} is there twice")
        if self.version is None or self.version.decode("latin-1") != version:
            raise _mismatch("the header MCP-Protocol-Version does not match the version in '_meta' of the request")
        if self.method is None or self.method.decode("latin-1") != method:
            raise _mismatch("the header Mcp-Method does not match 'method' of the request")
        known = METHODS.get(method, NO_PARAMETER)
        if known.named_by is None or (self.name is None and known.may_omit_name):
            return
        value = getattr(msgspec.json.decode(params, type=_Named), known.named_by)
        if value is not None and (self.name is None or decode_value(self.name) != value):
            raise _mismatch(f"the header Mcp-Name does not match '{known.named_by}' of the request")


class ParameterHeader(NamedTuple):
    """A header that repeats one argument of a tool.

    Attributes:
        name: The name of the header, in lower case.
        path: The names of properties from the root of the arguments.
        kind: The type of the property.
    """

    name: bytes
    path: tuple[str, ...]
    kind: str


def declared_headers(schema: Mapping[str, Any]) -> tuple[ParameterHeader, ...]:
    """The headers that the input schema of a tool declares.

    None of them if one is not valid: clients leave such a tool out, and send no headers for it.
    """
    found: list[ParameterHeader] = []
    for path, node in _positions(schema):
        if DECLARATION not in node:
            continue
        token, kind = node[DECLARATION], node.get("type")
        if not path or not isinstance(token, str) or not _TOKEN.fullmatch(token) or kind not in _PRIMITIVE:
            return ()
        found.append(ParameterHeader(PARAM_PREFIX + token.lower().encode(), path, kind))
    return tuple(found) if len({header.name for header in found}) == len(found) else ()


def is_valid_declaration(schema: Mapping[str, Any]) -> bool:
    """True if every header that an input schema declares can be sent."""
    return bool(declared_headers(schema)) or all(DECLARATION not in node for _, node in _positions(schema))


def render_argument(value: object) -> str | None:
    """An argument as the text of its header; None if it has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None  # an integer with more digits than Python prints


def value_at(arguments: object, path: Sequence[str]) -> object:
    """The argument at a path; None if there is none."""
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = cast("dict[str, object]", arguments).get(name)
    return arguments


def check_parameters(declared: Sequence[ParameterHeader], arguments: object, headers: HeaderList) -> None:
    """Compare the headers of arguments with the arguments.

    Raises:
        JsonRpcError: `HEADER_MISMATCH`.
    """
    for name, path, kind in declared:
        values = [value for key, value in headers if key == name]
        argument = value_at(arguments, path)
        rendered = None if argument is None else render_argument(argument)
        shown = name.decode()
        if len(values) > 1:
            raise _mismatch(f"the header {shown} is there twice")
        if rendered is None:
            if values:
                raise _mismatch(f"the header {shown} has a value, and the argument '{'.'.join(path)}' has none")
            continue
        if not values:
            raise _mismatch(f"the header {shown} is missing: it repeats the argument '{'.'.join(path)}'")
        decoded = decode_value(values[0])
        if decoded is None or not _is_same(kind, argument, rendered, decoded):
            raise _mismatch(f"the header {shown} does not match the argument '{'.'.join(path)}'")


def _is_same(kind: str, argument: object, rendered: str, decoded: str) -> bool:
    """Integers compare as numbers: ``42`` is ``42.0``."""
    if kind == "integer" and isinstance(argument, int | float) and not isinstance(argument, bool):
        try:
            return _DECIMAL.fullmatch(decoded) is not None and int(decoded.partition(".")[0]) == argument
        except ValueError:
            return False  # more digits than Python reads
    return decoded == rendered


_ONE = frozenset(
    [
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    ]
)
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})


def _positions(schema: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """The schemas in a schema, and the path of properties to each; None where there is no such path."""
    waiting: list[tuple[tuple[str, ...] | None, object]] = [((), schema)]
    while waiting:
        path, found = waiting.pop()
        if not isinstance(found, dict):
            continue
        node = cast("dict[str, Any]", found)
        yield path, node
        for keyword, value in node.items():
            if keyword in _ONE:
                waiting.append((None, value))
            elif keyword in _SEVERAL and isinstance(value, list):
                waiting += [(None, one) for one in cast("list[object]", value)]
            elif isinstance(value, dict) and (keyword == "properties" or keyword in _NAMED):
                for name, one in cast("dict[str, object]", value).items():
                    waiting.append((None if path is None or keyword != "properties" else (*path, name), one))


def _mismatch(message: str) -> JsonRpcError:
    return JsonRpcError(HEADER_MISMATCH, message)
