"""Finds the messages in a stream of bytes, one a line."""

from __future__ import annotations

_BLANK = b" \t\r"


class LineBuffer:
    """Splits at LF, in linear time however the bytes are cut.

    A CR before the LF and blank lines do not count. Of a line over the limit, the first ``limit + 1`` bytes are given as
    soon as it is certain, and the rest is skipped: whoever reads sees that it is too long and can answer.

    Args:
        limit: Bytes of one line, without its end.
    """

    __slots__ = ("_limit", "_partial", "_skipping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; give the lines that they complete."""
        *ends, rest = data.split(b"\n")
        lines: list[bytes] = []
        for piece in ends:
            if self._partial or self._skipping or len(piece) > self._limit:
                self._extend(piece, lines)
                self._end_line(lines)
            elif piece.strip(_BLANK):  # all of it at once, as nearly every line comes
                lines.append(piece.removesuffix(b"\r"))
        self._extend(rest, lines)
        return lines

    def finish(self) -> list[bytes]:
        """The end of the stream; give the last line, if it lacked its LF."""
        lines: list[bytes] = []
        self._end_line(lines)
        return lines

    def _extend(self, piece: bytes, lines: list[bytes]) -> None:
        if self._skipping or not piece:
            return
        partial = self._partial
        # One byte more than the limit is not yet too much: it may be the CR of the line's end.
        partial += piece[: self._limit + 2 - len(partial)]
        if len(partial) == self._limit + 2:
            lines.append(bytes(partial[: self._limit + 1]))
            partial.clear()
            self._skipping = True

    def _end_line(self, lines: list[bytes]) -> None:
        if self._skipping:
            self._skipping = False
            return
        partial = self._partial
        if partial:
            if partial.endswith(b"\r"):
                del partial[-1]
            if partial.strip(_BLANK):
                lines.append(bytes(partial))
            partial.clear()
