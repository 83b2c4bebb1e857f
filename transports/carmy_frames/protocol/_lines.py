"""A line splitter: finds the messages in a stream of bytes, one per line."""

from __future__ import annotations

_BLANK = b" \t\r"


class LineBuffer:
    """Splits at LF, in linear time for any chunking.

    A CR before the LF is removed, and blank lines are skipped. A line over the limit yields its first ``limit + 1`` bytes at
    once, so that the reader can answer; the rest of it is skipped.

    Args:
        limit: Bytes of one line, without its end.
    """

    __slots__ = ("_limit", "_partial", "_skipping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the lines that they complete."""
        *ends, rest = data.split(b"\n")
        lines: list[bytes] = []
        for piece in ends:
            if self._partial or self._skipping or len(piece) > self._limit:
                self._extend(piece, lines)
                self._end_line(lines)
            elif piece.strip(_BLANK):  # the common case: a whole line in one chunk
                lines.append(piece.removesuffix(b"\r"))
        self._extend(rest, lines)
        return lines

    def finish(self) -> list[bytes]:
        """End the stream; return a last line without LF."""
        lines: list[bytes] = []
        self._end_line(lines)
        return lines

    def _extend(self, piece: bytes, lines: list[bytes]) -> None:
        if self._skipping or not piece:
            return
        partial = self._partial
        # One byte over the limit is allowed: it may be the CR of the line's end.
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
