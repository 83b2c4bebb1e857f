"""Addresses in settings: where a server listens."""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from .._model.errors import ConfigurationError

ADDRESS_FORMS = "HOST:PORT, unix:PATH or fd://NUMBER, such as 127.0.0.1:3000, [::1]:0 or unix:shop.sock"

FIRST_DESCRIPTOR = 3
"""Below it are standard input, output and error."""

_TCP = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\[\]:/\s@]+)):(?P<port>[0-9]{1,5})")
_INHERITED = re.compile(r"fd://([0-9]{1,6}(?:,[0-9]{1,6})*)(?:\?until=([0-9]{1,6}))?")
_UNIX = "unix:"


class TcpAddress(msgspec.Struct, frozen=True):
    """``HOST:PORT``.

    Attributes:
        host: A name or an address, of IPv6 without its brackets.
        port: 0 for a free one.
    """

    host: str
    port: int


class UnixAddress(msgspec.Struct, frozen=True):
    """``unix:PATH``: a socket with a file."""

    path: str


class InheritedAddress(msgspec.Struct, frozen=True):
    """``fd://N``, or ``fd://N,M``: listening sockets that the parent process opened.

    Attributes:
        descriptors: Of the sockets.
        until: ``?until=N``: a descriptor that becomes readable, or ends, when no other process accepts connections any more. This
            process then accepts those that are queued before it closes the sockets. None if another process always does.
    """

    descriptors: tuple[int, ...]
    until: int | None = None


Address: TypeAlias = TcpAddress | UnixAddress | InheritedAddress


def split_unix_url(url: str) -> tuple[str, str | None]:
    """Split a URL into the URL to request and the file of the socket.

    Args:
        url: Of a server. For a socket with a file, as the server logs it: ``http://unix:FILE`` or ``http://unix:FILE:PATH``.

    Returns:
        An ordinary URL, and the file; None when the URL was ordinary already.
    """
    scheme, separator, rest = url.partition("://unix:")
    if not separator:
        return url, None
    file, _, path = rest.partition(":")
    return f"{scheme}://localhost{path}", file


def parse_address(text: str) -> Address:
    """The address that a text stands for.

    Raises:
        ConfigurationError: It stands for none.
    """
    path = text.removeprefix(_UNIX)
    if path != text and path and "\0" not in path:
        return UnixAddress(path)
    if (match := _INHERITED.fullmatch(text)) is not None:
        descriptors = tuple(map(int, match[1].split(",")))
        if min(descriptors) >= FIRST_DESCRIPTOR:
            return InheritedAddress(descriptors, None if match[2] is None else int(match[2]))
    elif (match := _TCP.fullmatch(text)) is not None and int(match["port"]) <= 65535:
        return TcpAddress(match["six"] or match["name"], int(match["port"]))
    raise ConfigurationError(f"address must be {ADDRESS_FORMS}, not {text!r}")
