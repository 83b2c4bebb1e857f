"""Tools over a real directory, for agents that read, search and change files and run commands.

::

    python docs/examples/workspace.py                    serves the current directory, and says what to try
    carmy call docs/examples/workspace.py list_files '{"pattern": "*.md"}'

Whoever calls over a network without credentials may only read. Set ``WORKSPACE_TOKEN`` to a long random text to serve one
owner, who shows it as a bearer token and may do everything. ``WORKSPACE_ROOT`` names another directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import socket
import sys
from typing import Annotated, Literal

from pydantic import Field
from workspace_commands import CommandResult, run_command_in
from workspace_files import Workspace, read_at
from workspace_matching import glob_matcher, line_matcher
from workspace_text import as_text, fitting, lines_of

from carmy_engine import AgentContext, AgentError, App, BearerTokens, ErrorCategory, State, ToolSpec, tool

MAX_FILE_BYTES = 16 * 1024 * 1024
"""A file that read_file still opens. It is read whole, since its hash is part of the answer."""

MAX_TEXT_BYTES = 256 * 1024
"""Text in one answer of read_file. More does not help a model."""

MAX_SEARCHED_BYTES = 2 * 1024 * 1024
"""A file that search_files still looks into. Larger ones are data, not text that people wrote."""

MAX_LINE_CHARACTERS = 400
"""Of a line that was found."""

MAX_VISITED = 100_000
"""Files that one call looks at."""

BATCH = 20
"""Matches in one partial result."""

Path = Annotated[str, Field(description="From the root of the workspace, with slashes; no '..'.")]
Directory = Annotated[str, Field(description="Where to begin, from the root of the workspace; empty for all of it.")]


@dataclasses.dataclass(frozen=True, slots=True)
class ListedFile:
    """A file; `size` is in bytes. Symbolic links are listed, but not followed."""

    path: str
    size: int
    kind: Literal["file", "link"]


@dataclasses.dataclass(frozen=True, slots=True)
class FileList:
    """Files; `truncated` when there are more."""

    files: list[ListedFile]
    truncated: bool


@tool(effect="read", idempotent=True, parallel_safe=True)
def list_files(
    ws: State[Workspace],
    ctx: AgentContext,
    pattern: str = "**",
    path: Directory = "",
    limit: Annotated[int, Field(ge=1, le=5000)] = 1000,
    hidden: bool = False,
) -> FileList:
    """List files.

    Args:
        pattern: A glob such as '*.py' (anywhere) or 'docs/**/*.md' (from the root).
        limit: Most files to return.
        hidden: Also list what begins with a dot.
    """
    matches = glob_matcher(pattern)
    files: list[ListedFile] = []
    with contextlib.closing(ws.walk(path, hidden=hidden)) as found:
        for visited, file in enumerate(found):
            ctx.cancellation.check()
            if visited == MAX_VISITED:
                return FileList(files, truncated=True)
            if matches(file.path):
                if len(files) == limit:
                    return FileList(files, truncated=True)
                files.append(ListedFile(file.path, file.size, "link" if file.is_link else "file"))
    return FileList(files, truncated=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A line that was found; `line` counts from 1."""

    path: str
    line: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found; `truncated` when there may be more. Skipped files are binary, too large or not readable."""

    matches: list[Match]
    files_searched: int
    files_skipped: int
    truncated: bool


@tool(effect="read", idempotent=True, parallel_safe=True)
def search_files(
    ws: State[Workspace],
    ctx: AgentContext,
    pattern: Annotated[str, Field(min_length=1, max_length=1000)],
    glob: str = "**",
    path: Directory = "",
    regex: bool = False,
    ignore_case: bool = False,
    hidden: bool = False,
    limit: Annotated[int, Field(ge=1, le=1000)] = 200,
) -> SearchResult:
    """Find lines in text files. A caller that listens gets matches as they are found.

    Args:
        pattern: Text that the line contains, or a regular expression.
        glob: Only in files such as '*.py' (anywhere) or 'docs/**/*.md' (from the root).
        regex: The pattern is a regular expression (without look-around and back-references).
        ignore_case: Upper and lower case are the same.
        hidden: Also look into what begins with a dot.
        limit: Most matches to return.
    """
    wanted, contains = glob_matcher(glob), line_matcher(pattern, regex=regex, ignore_case=ignore_case)
    matches: list[Match] = []
    told = searched = skipped = 0
    truncated = False
    with contextlib.closing(ws.walk(path, hidden=hidden)) as found:
        for visited, file in enumerate(found):
            ctx.cancellation.check()
            if visited == MAX_VISITED or len(matches) > limit:
                truncated = True
                break
            if file.is_link or not wanted(file.path):
                continue
            try:
                text = as_text(read_at(file.place, file.path, MAX_SEARCHED_BYTES), file.path)
            except AgentError:
                skipped += 1
                continue
            searched += 1
            for number, line in enumerate(text.split("\n"), 1):
                if number % 1000 == 0:
                    ctx.cancellation.check()
                if contains(line):
                    matches.append(Match(file.path, number, line.strip()[:MAX_LINE_CHARACTERS]))
                    if len(matches) > limit:
                        break
            while len(matches[:limit]) - told >= BATCH:
                _tell(ctx, matches[told : told + BATCH])
                told += BATCH
    if len(matches) > limit:
        matches, truncated = matches[:limit], True
    if told < len(matches):
        _tell(ctx, matches[told:])
    return SearchResult(matches, searched, skipped, truncated)


@dataclasses.dataclass(frozen=True, slots=True)
class FileText:
    """Lines of a file, from `start_line` to `end_line`.

    `total_lines` and `sha256` are about the whole file; `truncated` when the text ends before the line that was asked for.
    """

    path: str
    text: str
    start_line: int
    end_line: int
    total_lines: int
    truncated: bool
    sha256: str


@tool(effect="read", idempotent=True, parallel_safe=True)
def read_file(
    ws: State[Workspace],
    path: Path,
    start_line: Annotated[int, Field(ge=1)] = 1,
    end_line: Annotated[int, Field(ge=1)] | None = None,
) -> FileText:
    """Read a text file, or some of its lines.

    Args:
        start_line: The first line, counted from 1.
        end_line: The last line; by default the last of the file.
    """
    content = ws.read(path, MAX_FILE_BYTES)
    lines = lines_of(as_text(content, path))
    if start_line > max(len(lines), 1):
        raise AgentError(
            "NO_SUCH_LINE",
            f"{path!r} has {len(lines)} lines",
            ErrorCategory.VALIDATION,
            recoverable=True,
            details={"total_lines": len(lines)},
        )
    wanted = lines[start_line - 1 : end_line]
    taken = fitting(wanted, MAX_TEXT_BYTES)
    return FileText(
        path=path,
        text="".join(taken),
        start_line=start_line,
        end_line=start_line + len(taken) - 1,
        total_lines=len(lines),
        truncated=taken != wanted,
        sha256=hashlib.sha256(content).hexdigest(),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """A file that was written; `created` when there was none before."""

    path: str
    size: int
    sha256: str
    created: bool


@tool(effect="write")
def write_file(
    ws: State[Workspace],
    ctx: AgentContext,
    path: Path,
    content: str,
    overwrite: bool = False,
    expected_sha256: Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")] | None = None,
    make_directories: bool = False,
) -> Written:
    """Create a file, or replace all of one.

    Args:
        content: The whole new content.
        overwrite: Replace the file if there is one.
        expected_sha256: Replace the file only if this is its hash, as read_file gave it: nobody else's change is lost.
        make_directories: Create the directories on the way that are missing.
    """
    data = content.encode()
    created = ws.write(
        path,
        data,
        overwrite=overwrite,
        expected_sha256=expected_sha256,
        make_directories=make_directories,
        check=ctx.cancellation.check,
    )
    return Written(path, len(data), hashlib.sha256(data).hexdigest(), created)


@dataclasses.dataclass(frozen=True, slots=True)
class Deleted:
    """A file that is gone; it had `size` bytes."""

    path: str
    size: int


@tool(effect="destructive")
def delete_file(ws: State[Workspace], path: Path) -> Deleted:
    """Delete a file, or a symbolic link itself. Directories are not deleted."""
    return Deleted(path, ws.delete(path))


@tool(effect="external_write", confirmation="required", parallel_safe=True, timeout=120)
async def run_command(
    ws: State[Workspace],
    ctx: AgentContext,
    argv: Annotated[list[str], Field(min_length=1)],
    cwd: Directory = "",
) -> CommandResult:
    """Run a program in the workspace and wait for it. There is no shell, and nothing to read from standard input.

    What it starts and does not wait for ends with it. Output in the middle is left out if there is much.

    Args:
        argv: The program and its arguments.
    """
    if not argv[0] or any("\0" in word for word in argv):
        raise AgentError(
            "INVALID_COMMAND", "the program's name is empty, or a word contains a zero byte", ErrorCategory.VALIDATION
        )

    async def tell(stream: str, text: str) -> None:
        await ctx.progress.partial({"stream": stream, "text": text})

    with ws.directory(cwd) as directory:
        return await run_command_in(directory, argv, tell)


class AnonymousMayRead:
    """Callers that came over a network and that nobody has identified may only read."""

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Refuse the others with ``FORBIDDEN``. Starting the engine, in a program or as a child process, takes its rights already."""
        if spec.effect.is_safe or context.principal is not None or context.transport in ("in_process", "stdio"):
            return
        raise AgentError(
            "FORBIDDEN",
            f"anonymous callers may not use {spec.name}",
            ErrorCategory.PERMISSION,
            suggested_action="Start the server with WORKSPACE_TOKEN and send it as a bearer token.",
        )


def make_app(ws: Workspace, token: str | None = None) -> App:
    """The application.

    Args:
        ws: The directory to work in.
        token: What the owner shows; None: there is no owner, and callers are anonymous.
    """
    made = App("workspace").add(list_files, search_files, read_file, write_file, delete_file, run_command)
    made.state(ws).policy(AnonymousMayRead())
    if token is not None:
        permissions = {"confirm:delete_file", "confirm:run_command"}
        made.authenticate(BearerTokens({token: AgentContext(principal="owner", permissions=frozenset(permissions))}))
    return made


def _tell(ctx: AgentContext, matches: list[Match]) -> None:
    if ctx.progress.is_listening:
        ctx.progress.partial_from_thread([dataclasses.asdict(match) for match in matches])


TOUR = """\
Once the server is listening, try these in another terminal (Ctrl-C here ends it):

# 1. What can it do?
curl -sS http://{address}/agent/tools

# 2. A search, with matches as they are found:
curl -sSN http://{address}/agent/execute -H 'Content-Type: application/json' -H 'Accept: text/event-stream' \\
  -d '{{"tool": "search_files", "arguments": {{"pattern": "async def", "glob": "docs/**/*.py"}}}}'

# 3. A part of a file:
curl -sS http://{address}/agent/execute -H 'Content-Type: application/json' \\
  -d '{{"tool": "read_file", "arguments": {{"path": "README.md", "end_line": 10}}}}'
"""

app = make_app(Workspace(os.environ.get("WORKSPACE_ROOT", ".")), os.environ.get("WORKSPACE_TOKEN"))


def free_address() -> str:
    """The usual address or, if somebody else has it, one with another port."""
    for port in (3000, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as probe:
            return f"127.0.0.1:{probe.getsockname()[1]}"
    return app.settings.address


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app.run()
    address = free_address()
    print(TOUR.format(address=address), file=sys.stderr, flush=True)
    app.run(["serve", "--address", address])
