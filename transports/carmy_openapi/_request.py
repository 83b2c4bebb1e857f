"""An operation and its arguments as a request: styles of parameters, bodies, credentials."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from carmy_engine import AgentError
from carmy_engine.transport import invalid_arguments

from ._operations import BODY, Body, Credential, Operation, Parameter
from ._references import is_array, is_object

_RESERVED = ":/?#[]@!$&'()*+,;="
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRequest:
    """A request.

    Attributes:
        method: In upper case.
        url: The whole address, encoded.
        headers: In order.
        body: The bytes of its body; None without one.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


def write_request(
    operation: Operation, arguments: Mapping[str, Any], secrets_of: Mapping[str, str], key: str | None
) -> WrittenRequest:
    """The request of one call.

    Args:
        operation: The operation.
        arguments: The checked arguments.
        secrets_of: The credentials, by security scheme.
        key: The value of ``Idempotency-Key``, where the operation takes one.

    Raises:
        AgentError: ``INVALID_ARGUMENTS``: a value cannot stand where it belongs.
    """
    path = operation.path
    query: list[str] = []
    headers: list[tuple[str, str]] = []
    cookies: list[str] = []
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if parameter.argument not in arguments or (value is None and parameter.location != "path"):
            continue
        match parameter.location:
            case "path":
                path = path.replace(f"{{{parameter.name}}}", _path_value(parameter, value))
            case "query":
                query += _query_pairs(parameter, value)
            case "header":
                headers.append((parameter.name, _header_value(parameter, value)))
            case "cookie":
                cookies += _query_pairs(parameter, value)
    for credential in operation.credentials:
        _add_credential(credential, secrets_of[credential.scheme], query, headers, cookies)
    if cookies:
        headers.append(("cookie", "; ".join(cookies)))
    if key is not None:
        headers.append(("idempotency-key", key))
    body = None
    if operation.body is not None and BODY in arguments:
        media_type, body = _body_bytes(operation.body, arguments[BODY])
        headers.append(("content-type", media_type))
    url = operation.server + path + ("?" + "&".join(query) if query else "")
    return WrittenRequest(method=operation.method, url=url, headers=tuple(headers), body=body)


def _refused(argument: str, message: str) -> AgentError:
    return invalid_arguments([{"path": argument, "code": "not_allowed", "message": f"argument '{argument}' {message}"}])


def _text(value: Any) -> str:
    """A simple value as text; a list or an object in a place for simple values as JSON."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if value is not None else ""


def _pairs(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _text(item)) for name, item in value.items() if item is not None]


def _path_value(parameter: Parameter, value: Any) -> str:
    def safe(text: str) -> str:
        return quote(text, safe="")

    if parameter.is_json:
        return safe(_text_of_json(value))
    name, explode = safe(parameter.name), parameter.explode
    if is_object(value):
        pairs = [(safe(key), safe(item)) for key, item in _pairs(value)]
        items = [f"{key}={item}" for key, item in pairs] if explode else [part for pair in pairs for part in pair]
    else:
        items = [safe(_text(item)) for item in value] if is_array(value) else [safe(_text(value))]
    match parameter.style:
        case "label":
            made = "." + ("." if explode else ",").join(items)
        case "matrix" if is_object(value) and explode:
            made = "".join(f";{item}" for item in items)
        case "matrix":
            made = "".join(f";{name}={item}" for item in items) if explode else f";{name}={','.join(items)}"
        case _:
            made = ",".join(items)
    if made in ("", ".", ".."):
        # Such a segment would name another path.
        raise _refused(parameter.argument, "cannot be a segment of a path")
    return made


def _query_pairs(parameter: Parameter, value: Any) -> list[str]:
    """The parts of a query, or of a cookie."""

    def safe(text: str) -> str:
        return quote(text, safe=_RESERVED.replace("&", "").replace("#", "") if parameter.allow_reserved else "")

    name = quote(parameter.name, safe="[]")
    if parameter.is_json:
        return [f"{name}={safe(_text_of_json(value))}"]
    if is_object(value):
        pairs = _pairs(value)
        if parameter.style == "deepObject":
            return [
                f"{name}[{quote(key, safe='')}]={safe(one)}"
                for key, item in value.items()
                if item is not None
                for one in (map(_text, item) if is_array(item) else [_text(item)])
            ]
        if parameter.explode:
            return [f"{quote(key, safe='[]')}={safe(item)}" for key, item in pairs]
        return [f"{name}={','.join(safe(part) for pair in pairs for part in pair)}"] if pairs else []
    if is_array(value):
        items = [safe(_text(item)) for item in value]
        if parameter.explode:
            return [f"{name}={item}" for item in items]
        between = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(parameter.style, ",")
        return [f"{name}={between.join(items)}"] if items else []
    return [f"{name}={safe(_text(value))}"]


def _header_value(parameter: Parameter, value: Any) -> str:
    if parameter.is_json:
        text = _text_of_json(value)
    elif is_object(value):
        pairs = _pairs(value)
        text = ",".join(f"{key}={item}" if parameter.explode else f"{key},{item}" for key, item in pairs)
    else:
        text = ",".join(map(_text, value)) if is_array(value) else _text(value)
    if _HEADER_VALUE.fullmatch(text) is None:
        raise _refused(parameter.argument, "has characters that a header cannot carry")
    return text


def _text_of_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _add_credential(
    credential: Credential, secret: str, query: list[str], headers: list[tuple[str, str]], cookies: list[str]
) -> None:
    match credential.kind:
        case "bearer":
            headers.append(("authorization", f"Bearer {secret}"))
        case "basic":
            headers.append(("authorization", f"Basic {base64.b64encode(secret.encode()).decode()}"))
        case "key" if credential.location == "query":
            query.append(f"{quote(credential.name, safe='')}={quote(secret, safe='')}")
        case "key" if credential.location == "cookie":
            cookies.append(f"{credential.name}={secret}")
        case _:
            headers.append((credential.name, secret))


def _body_bytes(body: Body, value: Any) -> tuple[str, bytes]:
    """The media type and the bytes of a body."""
    kind = body.media_type
    if kind == "application/x-www-form-urlencoded":
        return kind, "&".join(_form_pairs(value)).encode()
    if kind == "multipart/form-data":
        return _multipart(body, value)
    if kind.startswith("text/"):
        return (kind if "charset" in kind else f"{kind}; charset=utf-8"), str(value).encode()
    if "json" in kind:
        return kind, msgspec.json.encode(value)
    return kind, _decoded(BODY, value)


def _form_pairs(fields: Mapping[str, Any]) -> Iterable[str]:
    for name, value in fields.items():
        for item in value if is_array(value) else [value]:
            if item is not None:
                yield f"{quote(name, safe='')}={quote(_text(item), safe='')}"


def _multipart(body: Body, fields: Mapping[str, Any]) -> tuple[str, bytes]:
    boundary = f"carmy-{secrets.token_hex(16)}"
    parts: list[bytes] = []
    for name, value in fields.items():
        for item in value if is_array(value) else [value]:
            if item is None:
                continue
            quoted = quote(name, safe=" []")
            head = f'content-disposition: form-data; name="{quoted}"'
            kind = body.types.get(name, "").partition(",")[0].strip()
            if name in body.files:
                data = _decoded(f"{BODY}.{name}", item)
                head += f'; filename="{quoted}"\r\ncontent-type: {kind or "application/octet-stream"}'
            elif is_object(item):
                data = msgspec.json.encode(item)
                head += f"\r\ncontent-type: {kind or 'application/json'}"
            else:
                data = _text(item).encode()
            parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n")
    return f"multipart/form-data; boundary={boundary}", b"".join(parts) + f"--{boundary}--\r\n".encode()


def _decoded(argument: str, value: Any) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        raise _refused(argument, "must be base64") from None
