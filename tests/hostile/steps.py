"""A regular expression's work, counted: a backtracking matcher that tries what CPython's engine tries, in the same order.

Seconds say little on a shared machine, and the steps of the ``re`` module cannot be counted from outside. The number of
attempts here grows with the length of a text as the time of ``re`` does: in proportion, or with its square, or worse.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from typing import Any

ops: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

_BAD = ("", "\0", "\n", "!", '"')
_PUMPS = (" ", "\t", "a", "0", ",", ";", '"', "\\", "=", ":", "[", "{", "\r\n", '\\"', "a ", ";a", ',"', "é")
_CATEGORIES = {
    ops.CATEGORY_DIGIT: str.isdigit,
    ops.CATEGORY_SPACE: str.isspace,
    ops.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
}
_NEGATIONS = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
}


MOST = 15_000
"""Steps that are counted: more than a few hundred characters should ever take."""


class _TooManyError(Exception):
    """Enough steps were counted."""


class Steps:
    """One pattern."""

    def __init__(self, pattern: re.Pattern[Any], mode: str) -> None:
        """Prepare it.

        Args:
            pattern: Of text or of bytes; the latter are taken for Latin-1.
            mode: How it is used: ``match``, ``fullmatch``, ``search``, or ``finditer`` for all that go on after a match.
        """
        source = pattern.pattern
        text = source if isinstance(source, str) else source.decode("latin-1")
        self._tree = list(parser.parse(text, pattern.flags & ~re.UNICODE & ~re.DEBUG))
        self._flags = pattern.flags
        self._mode = mode
        self._text = ""
        self.count = 0

    def over(self, text: str) -> int:
        """The steps that a text takes, or a few more than `MOST`."""
        self._text, self.count = text, 0
        with contextlib.suppress(_TooManyError):
            self._run(text)
        return self.count

    def _run(self, text: str) -> None:
        if self._mode == "fullmatch":
            any(end == len(text) for end in self._sequence(self._tree, 0))
        elif self._mode == "match":
            next(self._sequence(self._tree, 0), None)
        else:
            at = 0
            while at <= len(text):
                end = next(self._sequence(self._tree, at), None)
                if end is not None and self._mode == "search":
                    break
                at = max(at + 1, end or 0)

    def texts(self, size: int) -> Iterator[str]:
        """Texts that are made to fail late."""
        starts = {"", *self._starts(self._tree, "")}
        for start in sorted(starts):
            for pump in (*_PUMPS, *sorted({start[-1:]} - {""})):
                for end in _BAD:
                    yield start + pump * size + end

    def _starts(self, tree: Any, before: str) -> Iterator[str]:
        """What leads to each repetition, and one round of it."""
        for op, value in tree:
            if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
                yield before
                yield before + self._sample(value[2])
                yield from self._starts(value[2], before)
                before += self._sample(value[2])
                continue
            if op is ops.SUBPATTERN:
                yield from self._starts(value[3], before)
            elif op is ops.BRANCH:
                for branch in value[1]:
                    yield from self._starts(branch, before)
            before += self._sample([(op, value)])

    def _sample(self, tree: Any) -> str:
        """A text that fits."""
        found = ""
        for op, value in tree:
            if op is ops.LITERAL:
                found += chr(value)
            elif op in (ops.IN, ops.NOT_LITERAL, ops.ANY):
                found += next((char for char in 'a0 ,;"\\=:-' if self._fits(op, value, char)), "")
            elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
                found += self._sample(value[2]) * min(value[0], 300)
            elif op is ops.SUBPATTERN:
                found += self._sample(value[3])
            elif op is ops.ATOMIC_GROUP:
                found += self._sample(value)
            elif op is ops.BRANCH:
                found += self._sample(value[1][0])
        return found

    def _sequence(self, tree: Any, at: int) -> Iterator[int]:
        """The ends of all ways to match a sequence, in the order of trying."""
        if not tree:
            yield at
            return
        op, value = tree[0]
        for end in self._one(op, value, at):
            yield from self._sequence(tree[1:], end)

    def _one(self, op: Any, value: Any, at: int) -> Iterator[int]:
        self.count += 1
        if self.count > MOST:
            raise _TooManyError
        if op in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN):
            if at < len(self._text) and self._fits(op, value, self._text[at]):
                yield at + 1
        elif op is ops.BRANCH:
            for branch in value[1]:
                yield from self._sequence(list(branch), at)
        elif op is ops.SUBPATTERN:
            yield from self._sequence(list(value[3]), at)
        elif op is ops.ATOMIC_GROUP:
            yield from _first(self._sequence(list(value), at))
        elif op is ops.MAX_REPEAT or op is ops.MIN_REPEAT:
            yield from self._repeat(op is ops.MAX_REPEAT, value[0], value[1], list(value[2]), at)
        elif op is ops.POSSESSIVE_REPEAT:
            yield from self._possessive(value[0], value[1], list(value[2]), at)
        elif op is ops.AT:
            if self._is_at(value, at):
                yield at
        elif op in (ops.ASSERT, ops.ASSERT_NOT):
            direction, inner = value
            start = at if direction > 0 else at - inner.getwidth()[0]
            fits = start >= 0 and next(self._sequence(list(inner), start), None) is not None
            if fits is (op is ops.ASSERT):
                yield at
        else:
            raise NotImplementedError(op)

    def _repeat(self, greedy: bool, least: int, most: Any, tree: Any, at: int) -> Iterator[int]:
        # Without recursion for what one character fits: its repetitions are as long as the texts.
        ends = [[at]]
        iterators = [self._sequence(tree, at)]
        if not greedy and least == 0:
            yield at
        while iterators:
            depth = len(iterators)
            end = next(iterators[-1], None) if depth <= most else None
            if end is None or end == ends[-1][0]:
                iterators.pop()
                done = ends.pop()[0]
                if greedy and depth - 1 >= least:
                    yield done
                continue
            if not greedy and depth >= least:
                yield end
            ends.append([end])
            iterators.append(self._sequence(tree, end))

    def _possessive(self, least: int, most: Any, tree: Any, at: int) -> Iterator[int]:
        count = 0
        while count < most:
            end = next(self._sequence(tree, at), None)
            if end is None or end == at:
                break
            at, count = end, count + 1
        if count >= least:
            yield at

    def _is_at(self, value: Any, at: int) -> bool:
        if value in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            return at == 0
        if value is ops.AT_END:
            return at == len(self._text) or (at == len(self._text) - 1 and self._text[at] == "\n")
        if value is ops.AT_END_STRING:
            return at == len(self._text)
        return True

    def _fits(self, op: Any, value: Any, char: str) -> bool:
        if op is ops.ANY:
            return char != "\n" or bool(self._flags & re.DOTALL)
        if op is ops.LITERAL:
            other = chr(value)
            return char == other or (bool(self._flags & re.IGNORECASE) and char.lower() == other.lower())
        if op is ops.NOT_LITERAL:
            return char != chr(value)
        negated = bool(value) and value[0][0] is ops.NEGATE
        return any(_in(kind, one, char) for kind, one in value[negated:]) is not negated


def _in(kind: Any, value: Any, char: str) -> bool:
    if kind is ops.LITERAL:
        return bool(char == chr(value))
    if kind is ops.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    negated = _NEGATIONS.get(value)
    return not _CATEGORIES[negated](char) if negated is not None else bool(_CATEGORIES[value](char))


def _first(ways: Iterator[int]) -> Iterator[int]:
    end = next(ways, None)
    if end is not None:
        yield end
