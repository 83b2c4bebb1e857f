"""URI templates (RFC 6570) that are matched: a variable for a segment, for a rest with slashes, or in the query.

Of the RFC: ``{name}``, ``{+name}`` (slashes included), and ``{?name,other}`` at the end. Each variable ends at the first occurrence of
the literal that follows it, so a match takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

MAX_URI_CHARS = 8192
"""Length of an address. HTTP servers accept about as much."""


class TemplateError(ValueError):
    """A template that cannot be matched; the text is the reason."""


class _Variable(NamedTuple):
    name: str
    takes_slashes: bool


class UriTemplate:
    """One template.

    Args:
        text: The template.

    Attributes:
        text: The template.
        names: Its variables, in order.
        optional: Those in the query, which an address may leave out.

    Raises:
        TemplateError: It is none, or has a form that is not supported.
    """

    def __init__(self, text: str) -> None:
        if _SCHEME.match(text) is None:
            raise TemplateError("a URI begins with a scheme, such as 'orders://'")
        if not text.isascii() or not text.isprintable() or " " in text:
            raise TemplateError("a URI has printable ASCII characters only, without spaces")
        self.text = text
        self.optional: tuple[str, ...] = ()
        path, self.optional = _split_query(text)
        self._literals: list[str] = []
        self._variables: list[_Variable] = []
        end = 0
        for found in _EXPRESSION.finditer(path):
            literal = path[end : found.start()]
            if self._variables and not literal:
                raise TemplateError("two variables stand side by side, so that their values cannot be separated")
            self._literals.append(literal)
            self._variables.append(_variable(found[1]))
            end = found.end()
        self._literals.append(path[end:])
        if any(brace in literal for literal in self._literals for brace in "{}"):
            raise TemplateError("a brace is not closed, or not opened")
        self.names = (*(variable.name for variable in self._variables), *self.optional)
        twice = {name for name in self.names if self.names.count(name) > 1}
        if twice:
            raise TemplateError(f"the variable {', '.join(sorted(twice))} occurs twice")

    @property
    def is_fixed(self) -> bool:
        """True if it has no variables: it is the address of one resource."""
        return not self.names

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables in an address, decoded; None if it does not match."""
        if len(uri) > MAX_URI_CHARS:
            return None
        given: list[tuple[str, str]] = []
        if self.optional:
            uri, _, query = uri.partition("?")
            for pair in query.split("&") if query else ():
                name, _, value = pair.partition("=")
                if name not in self.optional:
                    return None
                given.append((name, value))
        if not uri.startswith(self._literals[0]) or (not self._variables and uri != self._literals[0]):
            return None
        at = len(self._literals[0])
        last = len(self._variables) - 1
        for place, variable in enumerate(self._variables):
            literal = self._literals[place + 1]
            if place == last:
                end = len(uri) - len(literal)
                if not uri.endswith(literal):
                    return None
            else:
                end = uri.find(literal, at + 1)
            if end <= at:
                return None
            value = uri[at:end]
            if not variable.takes_slashes and any(mark in value for mark in "/?#"):
                return None
            given.append((variable.name, value))
            at = end + len(literal)
        return _decoded(given)


def _decoded(pairs: Iterable[tuple[str, str]]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values or _PERCENT.search(value):
            return None
        try:
            values[name] = unquote(value, errors="strict")
        except UnicodeDecodeError:
            return None
    return values


def _split_query(text: str) -> tuple[str, tuple[str, ...]]:
    path, mark, rest = text.partition("{?")
    if not mark:
        return text, ()
    names, brace, more = rest.partition("}")
    if not brace or more:
        raise TemplateError("{?...} stands at the end")
    if "?" in path:
        raise TemplateError("{?...} and a question mark exclude each other")
    return path, tuple(_variable(name).name for name in names.split(","))


def _variable(expression: str) -> _Variable:
    takes_slashes = expression.startswith("+")
    name = expression.removeprefix("+")
    if _NAME.fullmatch(name) is None:
        raise TemplateError(f"{{{expression}}} is not supported; there are {{name}}, {{+name}} and {{?name,other}}")
    return _Variable(name, takes_slashes)
