"""The configuration files of clients of MCP: where they are, and edits that leave everything else as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

from ._outcome import Failure

Client = Literal["claude-desktop", "claude-code", "cursor", "vscode"]

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Size of a configuration file. The largest, which holds the state of a client as well, has a few megabytes."""


class ClientFile(NamedTuple):
    """A configuration file.

    Attributes:
        path: Where it is.
        section: The member whose members are the servers.
        has_type: An entry names its transport.
    """

    path: Path
    section: str
    has_type: bool


def client_file(
    client: Client, *, project: bool, platform: str, environ: Mapping[str, str], home: Path, directory: Path
) -> ClientFile:
    """The configuration file of a client.

    Args:
        client: The client.
        project: That of the project, not of the user.
        platform: As in ``sys.platform``.
        environ: The environment.
        home: The user's directory.
        directory: The project's directory.

    Raises:
        Failure: The client has no such file.
    """
    section, has_type = ("servers", True) if client == "vscode" else ("mcpServers", client == "claude-code")
    if project:
        own = {"claude-code": ".mcp.json", "cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json"}.get(client)
        if own is None:
            raise Failure(f"{client} has no configuration of a project; leave --project out")
        return ClientFile(directory / own, section, has_type)
    if client == "claude-code":
        return ClientFile(Path(environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json", section, has_type)
    if client == "cursor":
        return ClientFile(home / ".cursor" / "mcp.json", section, has_type)
    if platform == "darwin":
        settings = home / "Library" / "Application Support"
    elif platform == "win32":
        settings = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        settings = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    own_path = "Code/User/mcp.json" if client == "vscode" else "Claude/claude_desktop_config.json"
    return ClientFile(settings / own_path, section, has_type)


class _Member(NamedTuple):
    """A member of an object in a text: its name, and where it begins, its value begins, and it ends."""

    name: str
    start: int
    value: int
    end: int


_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\{\r?\n([ \t]+)")
_decoder = json.JSONDecoder()


def read_text(path: Path) -> str:
    """The text of a file; ``{}`` if it does not exist or is empty.

    Raises:
        Failure: It cannot be read, or is no object of plain JSON.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise Failure(f"{path} has more than {MAX_FILE_BYTES} bytes; nothing was changed")
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return "{}\n"
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{path} is not UTF-8; nothing was changed") from None
    if not text.strip():
        return "{}\n"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Failure(
            f"{path} is not plain JSON: it has comments, trailing commas, or an error. Nothing was changed, since they would be lost"
        ) from None
    if not isinstance(found, dict):
        raise Failure(f"{path} holds no JSON object; nothing was changed")
    return text


def with_entry(text: str, section: str, name: str, entry: Mapping[str, Any] | None, path: PurePath) -> str:
    """The text with one server set, or removed; every other byte is the same.

    Args:
        text: A JSON object.
        section: The member whose members are the servers.
        name: The name of the server.
        entry: Its configuration; None to remove it.
        path: The file, for messages.

    Raises:
        Failure: The section is no object, or stands there twice.
    """
    root = _SPACE.match(text).end()  # type: ignore[union-attr] # it matches the empty text
    servers = _only(text, root, section, path)
    if servers is None:
        if entry is None:
            return text
        return _inserted(text, root, section, {name: entry}, 1)
    if text[servers.value] != "{":
        raise Failure(f"{section!r} in {path} is no object; nothing was changed")
    found = _only(text, servers.value, name, path)
    if entry is None:
        return text if found is None else _removed(text, servers.value, found)
    if found is None:
        return _inserted(text, servers.value, name, entry, 2)
    if json.loads(text[found.value : found.end]) == entry:
        return text
    return text[: found.value] + _rendered(entry, text, 2) + text[found.end :]


def _only(text: str, at: int, name: str, path: PurePath) -> _Member | None:
    found = [member for member in _members(text, at) if member.name == name]
    if len(found) > 1:
        raise Failure(f"{name!r} is in {path} twice; nothing was changed")
    return found[0] if found else None


def _members(text: str, at: int) -> Iterator[_Member]:
    """The members of the object that begins at a place of valid JSON."""
    at = _after_space(text, at + 1)
    while text[at] != "}":
        start = at
        name, at = _decoder.raw_decode(text, at)
        value = _after_space(text, _after_space(text, at) + 1)
        _, end = _decoder.raw_decode(text, value)
        yield _Member(name, start, value, end)
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _style(text: str) -> tuple[str, str]:
    """The indentation and the end of a line."""
    indent = _INDENT.search(text)
    return ("  " if indent is None else indent[1]), ("\r\n" if "\r\n" in text else "\n")


def _rendered(value: Any, text: str, depth: int) -> str:
    indent, newline = _style(text)
    made = json.dumps(value, ensure_ascii=False, indent=indent)
    return made.replace("\n", newline + indent * depth)


def _inserted(text: str, at: int, name: str, value: Any, depth: int) -> str:
    """The text with a member at the end of the object that begins at `at`."""
    indent, newline = _style(text)
    member = f"{newline}{indent * depth}{json.dumps(name, ensure_ascii=False)}: {_rendered(value, text, depth)}"
    members = [*_members(text, at)]
    if members:
        end = members[-1].end
        return f"{text[:end]},{member}{text[end:]}"
    end = _after_space(text, at + 1)
    return f"{text[: at + 1]}{member}{newline}{indent * (depth - 1)}{text[end:]}"


def _removed(text: str, at: int, member: _Member) -> str:
    """The text without a member of the object that begins at `at`."""
    members = [*_members(text, at)]
    place = members.index(member)
    if len(members) == 1:
        return text[: at + 1] + text[_after_space(text, member.end) :]
    if place + 1 < len(members):
        return text[: member.start] + text[members[place + 1].start :]
    return text[: members[place - 1].end] + text[member.end :]


def replace_file(path: Path, before: str, after: str) -> Path | None:
    """Write a file in one step, and keep what it was beside it.

    Args:
        path: The file; of a link, the file behind it is replaced.
        before: What `read_text` returned.
        after: The new text.

    Returns:
        The backup; None for a new file.

    Raises:
        Failure: It cannot be written, or has changed meanwhile.
    """
    path = Path(os.path.realpath(path))
    backup: Path | None = None
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Readable by the user only, unless the file was not: the environment of a server may hold secrets.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(after.encode())
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            backup = path.with_name(f"{path.name}.bak")
            shutil.copy2(path, backup)
            shutil.copymode(path, temporary)
        if read_text(path) != before:
            raise Failure(f"{path} has changed meanwhile; nothing was written")
        os.replace(temporary, path)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    return backup
