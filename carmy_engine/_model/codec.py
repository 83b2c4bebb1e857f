"""The check and the decoding of incoming messages, and the bodies of answers and events.

All transports share this module, so they refuse the same bytes and send the same answers.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, get_args

import msgspec

from .errors import AgentError
from .events import ExecutionCompleted, ExecutionEvent, ToolCompleted, ToolLog, ToolProgress
from .json_outline import PIECE_BYTES
from .json_pieces import key_of, no_pulse, outline_of, read_in_pieces, run_of
from .request import OnRunning
from .result import ExecutionResult, ExecutionStatus, NextAction
from .suggestions import shortened, unknown_name_message

MAX_JSON_DEPTH = 128
"""Levels of nested arrays and objects. Hand-written JSON stays far below; parsers fail not far above."""

LONG_MESSAGE_BYTES = 64 * 1024
"""Size from which transports read a message in a worker thread. Checking a shorter one takes a millisecond or two at most."""

_LONG_BYTES = 4096
"""Bytes from which it is faster to remove the strings first, if they are long."""
_BYTES_PER_QUOTE = 256
"""Bytes for each quotation mark; with fewer, jumping between the marks is slower than scanning everything."""

_BACKSLASH = ord("\\")
# Escapes that affect the meaning of a quotation mark. One match covers a run of backslashes.
_ESCAPED_QUOTE = re.compile(rb'\\(?:\\(?:\\\\)*+|")')
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, byte) for byte in range(256))
"""Translates brackets to steps of depth: 255 is -1 as a signed byte."""
_NO_STEPS = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS_AT_ONCE = 64

_KINDS = bytes(ord("0") if byte in b"0123456789" else ord("e") if byte in b"eE" else byte for byte in range(256))
_HUGE_EXPONENT = b"e000"
_HUGE_INTEGER = b"0" * (309 - 99)
"""The largest float has 309 digits before the point; a two-digit exponent adds up to 99."""

_PIECE_BYTES = 64 * 1024
"""Bytes of a long message that are checked in one step."""

_SHORT_BYTES = 256
"""Bytes up to which a plain search is faster than leaving out a value."""

_MAX_PARSED_DEPTH = 1000
"""Levels at which the parser of an id stops."""

_COLON = re.compile(rb"\s*+:\s*+")

_skip = msgspec.json.Decoder(msgspec.Raw)
"""Checks the syntax at 2 GB/s, but not that strings are UTF-8."""

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`")
"""Messages of msgspec about the outermost object."""
_NO_SUCH_VALUE = re.compile(r"Invalid enum value .* - at `\$\.(\w+)`", re.DOTALL)
"""This message repeats the value."""
_VALUES = {"on_running": get_args(OnRunning)}

# A high surrogate without its low one. msgspec reports such a text as truncated.
_LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?:[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])")

MAX_REASON = 300
"""Characters of a parser's message that are sent to the caller."""


def invalid_request(reason: str) -> AgentError:
    """The error for a message that is not a valid request; `reason` names the problem."""
    return AgentError.standard("INVALID_REQUEST", f"the request is not valid: {reason}", details={"reason": reason})


def check_timeout_ms(timeout_ms: object) -> float:
    """Return a request's ``timeout_ms`` if it is a positive, finite number.

    Raises:
        AgentError: ``INVALID_REQUEST``. JSON writes infinity and NaN as null, which would mean no limit.
    """
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not 0 < timeout_ms < math.inf:
        raise invalid_request("timeout_ms must be a positive number of milliseconds")
    return timeout_ms


def check_json(data: bytes, *, any_depth: bool = False, pulse: Callable[[], None] = no_pulse) -> None:
    """Refuse bytes that the parsers read in different ways, or fail on.

    Refused are: bytes that are not UTF-8, nesting beyond `MAX_JSON_DEPTH`, numbers beyond the range of a float, and
    integers with more digits than Python converts. The parsers themselves refuse lone surrogates, NaN and syntax errors.
    Linear in the size of `data`.

    Args:
        data: The message.
        any_depth: Leave the nesting to the parser; for answers, which hold any output of a tool.
        pulse: Called after each piece of a long message; what it raises ends the check.

    Raises:
        AgentError: ``INVALID_REQUEST``, with ``details.reason``.
    """
    if len(data) > _PIECE_BYTES:
        _check_in_pieces(data, any_depth, pulse)
        return
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            raise invalid_request("the body is not valid UTF-8") from None
    seen = _without_strings(data) if len(data) >= _LONG_BYTES else data
    # Each level has a bracket at either end; a shorter document that goes deeper is no JSON.
    if not any_depth and len(seen) > 2 * MAX_JSON_DEPTH and _Levels().is_too_deep(seen):
        raise invalid_request(f"the JSON is nested more than {MAX_JSON_DEPTH} levels deep")
    if _has_huge_number(seen.translate(_KINDS, b"+")):
        # The digits may be inside a string: only a full parse decides.
        decode(data)


def _check_in_pieces(data: bytes, any_depth: bool, pulse: Callable[[], None]) -> None:
    levels = _Levels()
    digits = b""
    may_overflow = False
    start = 0
    while start < len(data):
        end = _end_of_piece(data, start)
        piece = data[start:end]
        if not piece.isascii():
            try:
                piece.decode()
            except UnicodeDecodeError:
                raise invalid_request("the body is not valid UTF-8") from None
        if not any_depth and levels.is_too_deep(piece):
            raise invalid_request(f"the JSON is nested more than {MAX_JSON_DEPTH} levels deep")
        if not may_overflow:
            digits = (digits[-len(_HUGE_INTEGER) :] + piece).translate(_KINDS, b"+")
            may_overflow = _has_huge_number(digits)
        start = end
        pulse()
    if may_overflow and is_json(data):  # another syntax error is the parser's to report
        read_in_pieces(data, decode, pulse)


def _end_of_piece(data: bytes, start: int) -> int:
    """The offset behind a piece, which is neither inside an escape nor inside a character."""
    end = start + _PIECE_BYTES
    if _ends_in_escape(data[start:end]):
        end += 1
    for _ in range(3):
        if end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    return end


class _Levels:
    """The nesting of JSON that is read in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = False

    def is_too_deep(self, piece: bytes) -> bool:
        """Read a piece. True if the brackets outside strings are nested more than `MAX_JSON_DEPTH` levels deep.

        In invalid JSON, that counts up to where a parser stops.
        """
        parts = _marks(piece).split(b'"')
        steps = b"".join(parts[self._is_in_string :: 2])
        self._is_in_string ^= len(parts) % 2 == 0
        depth = self._depth
        for start in range(0, len(steps), _STEPS_AT_ONCE):
            some = steps[start : start + _STEPS_AT_ONCE]
            ups = some.count(1)
            # Usually the depth stays in range even if all steps up come first.
            if depth + ups > MAX_JSON_DEPTH and depth + max(itertools.accumulate(array("b", some))) > MAX_JSON_DEPTH:
                return True
            depth += 2 * ups - len(some)
        self._depth = depth
        return False


# The functions below use methods of bytes instead of loops. Methods that jump to the next rare byte are ten times faster
# than those that look at each byte, as regular expressions do.


def _more_than(data: bytes, byte: bytes, most: int) -> bool:
    """True if a byte occurs more than `most` times."""
    return len(data) - len(data.replace(byte, b"", most + 1)) > most  # unlike count(), replace() jumps and ends early


def _without_strings(data: bytes) -> bytes:
    """The bytes outside strings; all bytes if there are many strings."""
    if _more_than(data, b'"', len(data) // _BYTES_PER_QUOTE):
        return data
    outside: list[bytes] = []
    inside = False
    start = 0
    while (end := data.find(b'"', start)) >= 0:
        if not inside:
            outside.append(data[start:end])
            inside = True
        elif data[end - 1] != _BACKSLASH or not _ends_in_escape(data[start:end]):
            inside = False
        start = end + 1
    if not inside:
        outside.append(data[start:])
    return b" ".join(outside)


def _ends_in_escape(text: bytes) -> bool:
    """True if the last byte is a backslash that is not escaped itself."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def _marks(data: bytes) -> bytes:
    """The brackets, translated by `_STEPS`, and the quotation marks that begin and end strings."""
    if _more_than(data, b"\\", len(data) // 16):
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    elif _BACKSLASH in data:
        data = _ESCAPED_QUOTE.sub(b"", data)  # for few escapes twice as fast, for many ten times slower
    # Removing empty strings does not change which brackets are inside a string.
    return data.translate(_STEPS, _NO_STEPS).replace(b'""', b"")


def containers_in(data: bytes) -> int:
    """The number of arrays and objects in valid JSON, without decoding it."""
    return b"".join(_marks(data).split(b'"')[::2]).count(1)


def _has_huge_number(kinds: bytes) -> bool:
    """True for data, translated by `_KINDS`, that may hold a number beyond the range of a float: a large exponent, or many digits."""
    # rfind() compares the first byte first, and in numbers an "e" is rare.
    return kinds.rfind(_HUGE_EXPONENT) >= 0 or kinds.find(_HUGE_INTEGER) >= 0


def decode(data: bytes, *, type: Any = Any, decoder: msgspec.json.Decoder[Any] | None = None) -> Any:  # noqa: A002
    """Decode strictly; each failure of msgspec becomes one error.

    Raises:
        AgentError: ``INVALID_REQUEST``.
    """
    try:
        return msgspec.json.decode(data, type=type) if decoder is None else decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        fields = getattr(type if decoder is None else decoder.type, "__struct_encode_fields__", ())
        refuse_undecodable(error, data, fields)


def is_json(data: bytes) -> bool:
    """True if the bytes are one JSON value in UTF-8, of any depth, as the output of a tool may be."""
    try:
        if not data.isascii():
            data.decode()
        _skip.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    except RecursionError:
        pass  # deeper than the parser goes
    return True


def refuse_undecodable(error: Exception, data: bytes, fields: Sequence[str] = ()) -> NoReturn:
    """Raise ``INVALID_REQUEST`` for a failure of msgspec, with a message that does not repeat the caller's values.

    Args:
        error: The exception from msgspec.
        data: The bytes that it could not decode.
        fields: The known fields, for the suggestion on an unknown name.
    """
    if isinstance(error, RecursionError):
        raise invalid_request(f"the JSON is nested more than {MAX_JSON_DEPTH} levels deep") from None
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):
        raise invalid_request("the body is not valid UTF-8") from None
    reason = str(error)
    unknown = _UNKNOWN_FIELD.fullmatch(reason)
    if unknown is not None:
        name = shortened(unknown[1])
        raise invalid_request(unknown_name_message(f"the field '{name}'", name, fields, "fields")) from None
    missing = _MISSING_FIELD.fullmatch(reason)
    if missing is not None:
        raise invalid_request(f"the field '{missing[1]}' is missing") from None
    valueless = _NO_SUCH_VALUE.fullmatch(reason)
    if valueless is not None:
        values = " or ".join(f"'{value}'" for value in _VALUES.get(valueless[1], ()))
        raise invalid_request(f"the field '{valueless[1]}' must be {values or 'one of its values'}") from None
    if ("truncated" in reason or "escape" in reason or "surrogate" in reason) and _LONE_SURROGATE.search(data):
        raise invalid_request("a string has a lone surrogate, which is not valid Unicode") from None
    # The parser's message may contain a name from the caller, of any length.
    raise invalid_request(reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}…") from None


def duplicate_key(data: bytes, pulse: Callable[[], None] = no_pulse) -> str | None:
    """The first duplicate key in the outermost object of valid JSON, or None.

    Args:
        data: The JSON.
        pulse: Called after each piece of a long document; what it raises ends the search.

    Raises:
        ValueError: It is no JSON.
    """
    names: set[str] = set()
    for name in _names_in_pieces(data, pulse) if len(data) > PIECE_BYTES else _names(data):
        if name in names:
            return name
        names.add(name)
    return None


def _names(data: bytes) -> list[str]:
    """The names of the outermost object, in order."""
    seen: list[tuple[str, Any]] = []

    def pairs(items: list[tuple[str, Any]]) -> None:
        seen[:] = items  # the outermost object closes last

    json.loads(data, object_pairs_hook=pairs)
    return [name for name, _ in seen]


def _names_in_pieces(data: bytes, pulse: Callable[[], None]) -> Iterator[str]:
    container = outline_of(data, pulse, _MAX_PARSED_DEPTH)
    if container is None:
        if len(data.strip()) > PIECE_BYTES:
            raise ValueError("the JSON is nested too deep")
        yield from _names(data)
        return
    for part in container.parts:
        pulse()
        if part.inner is None:
            yield from _names(run_of(data, container, part))
        else:
            yield key_of(data, part)


def without_value(message: bytes, name: bytes, value: msgspec.Raw) -> bytes:
    """The message without one long value, for a search for duplicate names of the outermost object.

    The value is left in if it cannot be found with certainty.

    Args:
        message: A valid JSON object.
        name: The name of a member, in quotation marks.
        value: The member's value, from a decoder.
    """
    at = message.find(name)
    if at < 0:
        return message
    # The match may be in another object, or the end of a longer name: a value follows in any case. No value holds names of the
    # outermost object, so it is safe to remove another value with the same bytes.
    colon = _COLON.match(message, at + len(name))
    if colon is None or not message.startswith(value, colon.end()):
        return message
    return message[: colon.end()] + message[colon.end() + len(memoryview(value)) :]


class UniqueNames:
    """Duplicate check for members of a JSON object: a proxy may have read the other one.

    A search finds objects that may have a duplicate. Only these are parsed again.

    Args:
        names: The names of the members.
        word: The noun of a member in messages.
    """

    def __init__(self, names: Iterable[str], word: str = "field") -> None:
        members = list(names)
        self._quoted = tuple(f'"{name}"'.encode() for name in members)
        # An escape may spell a letter of a name, and a slash has an escape of its own.
        self._escape = b"\\" if any("/" in name for name in members) else b"\\u"
        self._word = word

    def check(
        self,
        data: bytes,
        raw: tuple[bytes, msgspec.Raw] | None = None,
        inner: bytes = b"",
        pulse: Callable[[], None] = no_pulse,
    ) -> None:
        """Refuse a duplicate.

        Args:
            data: A valid JSON object.
            raw: The quoted name and the value of a member that the search leaves out, as it may be long.
            inner: The value of a member whose own names are not counted.
            pulse: See `duplicate_key`.

        Raises:
            AgentError: ``INVALID_REQUEST``.
        """
        seen = data if raw is None or len(data) < _SHORT_BYTES else without_value(data, *raw)
        if seen.find(self._escape) < 0:
            for name in self._quoted:
                if seen.count(name) > 1 and seen.count(name) > 1 + inner.count(name):
                    break
            else:
                return
        twice = duplicate_key(data, pulse)
        if twice is not None:
            raise invalid_request(f"the {self._word} '{twice}' is there twice")


def escape_line_ends(document: bytes) -> bytes:
    """Escape the characters in JSON strings at which some readers split lines: U+2028, U+2029 and U+0085."""
    return (
        document.replace("\u2028".encode(), b"\\u2028")
        .replace("\u2029".encode(), b"\\u2029")
        .replace("\u0085".encode(), b"\\u0085")
    )


def one_line(document: bytes) -> bytes:
    """Return the same JSON on one line. CR and LF occur only between tokens, so they become spaces."""
    if b"\n" in document or b"\r" in document:
        document = document.replace(b"\n", b" ").replace(b"\r", b" ")
    return document if document.isascii() else escape_line_ends(document)


_PLAIN_AGENT = (b',"_agent":{"cacheable":false,"next_actions":[]}', b',"_agent":{"cacheable":true,"next_actions":[]}')

_FAILURE_HEAD = {status: f'","status":"{status.value}","error":'.encode() for status in ExecutionStatus}


def answer_body(result: ExecutionResult, *, replayed: bool = False, duration: bool = False) -> bytes:
    """The body of an answer: ``{execution_id, status, data | error, _agent}``.

    Args:
        result: The outcome.
        replayed: Add the member ``replayed`` (frames and last events have it, HTTP uses a header).
        duration: Add the member ``duration_ms``.
    """
    parts = [b'{"execution_id":"', result.execution_id.encode()]
    if result.error is None:
        parts += b'","status":"completed","data":', result.data_json or b"null"
    else:
        parts += _FAILURE_HEAD[result.status], msgspec.json.encode(result.error)
    if result.next_actions:
        parts += b',"_agent":', msgspec.json.encode(_Agent(result.cacheable, result.next_actions))
    else:
        parts.append(_PLAIN_AGENT[result.cacheable])
    if replayed:
        parts.append(b',"replayed":true' if result.replayed else b',"replayed":false')
    if duration:
        parts.append(b',"duration_ms":%.3f' % result.duration_ms)
    parts.append(b"}")
    return b"".join(parts)


class _Agent(msgspec.Struct, frozen=True):
    cacheable: bool
    next_actions: tuple[NextAction, ...]


def event_body(event: ExecutionEvent) -> bytes:
    """The payload of an event; streams send the kind and the sequence number beside it."""
    if isinstance(event, ExecutionCompleted):
        return answer_body(event.result, replayed=True)
    payload: dict[str, Any] = {"execution_id": event.execution_id, "tool": event.tool}
    if isinstance(event, ToolProgress):
        for name in ("progress", "total", "message"):
            if (value := getattr(event, name)) is not None:
                payload[name] = value
        if event.partial_json is not None:
            payload["partial"] = msgspec.Raw(event.partial_json)
    elif isinstance(event, ToolLog):
        payload.update(level=event.level, message=event.message)
    elif isinstance(event, ToolCompleted):
        payload.update(duration_ms=event.duration_ms, waited_ms=event.waited_ms, ok=event.ok)
    return msgspec.json.encode(payload)
