"""The documents: what they show runs, what they claim is so, and where they point there is something."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import typing
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from carmy_engine import Effect, ToolSpec, tool
from carmy_engine.errors import CODES

from .pages import PAGES, REPOSITORY, anchors_of, blocks_of, links_of, name_of

CONSOLE_PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/retries.md",
    "docs/deadlines-and-cancellation.md",
    "docs/events.md",
    "docs/command-line.md",
    "docs/graphs.md",
]
"""Pages whose command lines are run as well."""

NOT_HERE = re.compile(r"(pip|git|make)\b")
"""Commands that would change this installation."""

ADDRESS = "127.0.0.1:3000"

MYPY_OPTIONS = [
    # Examples may leave annotations out, and define the function of an earlier example anew.
    "--allow-untyped-defs",
    "--allow-incomplete-defs",
    "--allow-untyped-calls",
    "--disable-error-code=no-redef",
]

PAGE_SECONDS = 240
"""Limit for the programs of one page, and for the check of all pages. They take seconds, but share the machine with other tests."""

takes_long = pytest.mark.timeout(PAGE_SECONDS + 20)

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@takes_long
@every_page
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    """Every Python block runs, after those before it on the page, and prints what the block ``output`` after it states."""
    blocks = list(blocks_of(page))
    programs = [block for block in blocks if block.info == "python"]
    if not programs:
        return
    _prepare(page, tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("run_page.py")), name_of(page)],
        input=json.dumps([[block.line, block.text] for block in programs]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment(),
        timeout=PAGE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs = iter(json.loads(done.stdout))
    printed = ""
    for block in blocks:
        if block.info == "python":
            printed = next(outputs)
        elif block.info == "output":
            assert _fits(block.text, printed), f"{name_of(page)}:{block.line}: printed instead:\n{printed}"


@takes_long
def test_python_blocks_pass_mypy(tmp_path: Path) -> None:
    """The Python blocks of every page, each page as one program, are what a type checker of its readers accepts."""
    programs: list[str] = []
    for page in PAGES:
        # At the lines of the page, so that an error leads to it.
        lines: list[str] = []
        for block in blocks_of(page):
            if block.info == "python":
                lines += [""] * (block.line - len(lines)) + block.text.splitlines()
        program = tmp_path / (re.sub(r"\W", "_", name_of(page)) + ".py")
        program.write_text("\n".join(lines) + "\n", encoding="utf-8")
        programs.append(str(program))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *MYPY_OPTIONS, *programs],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=PAGE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@every_page
def test_what_is_not_run_says_why(page: Path) -> None:
    """A Python block is left out only with a reason, in a comment right before it."""
    for block in blocks_of(page):
        if block.info.startswith("python") and block.info != "python":
            assert block.info == "python no-run", f"{name_of(page)}:{block.line}: what is {block.info!r}?"
            assert block.comment, f"{name_of(page)}:{block.line}: no reason"


@takes_long
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("name", CONSOLE_PAGES)
async def test_command_lines_give_what_they_show(name: str, tmp_path: Path) -> None:
    """Commands on a page work one after the other and print what the page states, ``…`` standing for anything."""
    page = REPOSITORY / name
    _prepare(page, tmp_path)
    with trio.fail_after(PAGE_SECONDS):
        async with contextlib.AsyncExitStack() as servers:
            address = ADDRESS
            for command, expected, line in _commands(page):
                if NOT_HERE.match(command):
                    continue
                if command.startswith("carmy serve"):
                    address = await servers.enter_async_context(_serving(command, tmp_path))
                    continue
                done = await trio.run_process(
                    ["bash", "-c", command.replace(ADDRESS, address)],
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    cwd=tmp_path,
                    env=_environment(),
                )
                printed = (done.stdout + done.stderr).decode()
                assert _fits(expected, printed), f"{name}:{line}: {command}\nprinted instead:\n{printed}"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    """A link inside the project leads to a file that exists, and to a heading in it."""
    for target in links_of(page):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name_of(page)}: {target} leads nowhere"
        assert there.is_relative_to(REPOSITORY)
        if anchor:
            assert anchor in anchors_of(there), f"{name_of(page)}: there is no heading for {target}"


def test_every_page_is_in_the_index() -> None:
    """Every page can be reached from docs/README.md."""
    listed = set(links_of(REPOSITORY / "docs" / "README.md"))
    missing = {page.name for page in PAGES if page.parent.name == "docs"} - {"README.md"} - listed
    assert not missing, f"docs/README.md does not mention {', '.join(sorted(missing))}"


def test_the_table_of_codes_is_the_table_of_codes() -> None:
    """docs/errors.md has every code of the engine, with its category, flags and meaning, and no other."""
    text = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\w+) \| (\w*) \| (.+?) \|$", text, re.MULTILINE)
    flags = {(False, False): "", (True, False): "recoverable", (True, True): "retryable"}
    assert rows == [
        (code, info.category.value, flags[info.recoverable, info.retryable], info.meaning)
        for code, info in CODES.items()
    ]


def _codes_in(tree: ast.AST) -> Iterator[str]:
    """What a module builds errors with or compares their codes to, and the defaults of parameters named `code`."""
    for node in ast.walk(tree):
        texts: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("AgentError", "ErrorInfo", "standard"):
                texts += node.args[:1]
            texts += [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "code":
            for compared in node.comparators:
                texts += compared.elts if isinstance(compared, ast.Tuple | ast.Set) else [compared]
        elif isinstance(node, ast.arguments):
            parameters = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
            defaults = [
                *zip(parameters, node.defaults, strict=True),
                *zip(node.kwonlyargs, node.kw_defaults, strict=True),
            ]
            texts += [default for parameter, default in defaults if parameter.arg == "code"]
        for text in texts:
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value.isupper():
                yield text.value


def test_every_code_in_the_sources_is_in_the_table_of_codes() -> None:
    """No module makes an error whose code docs/errors.md does not list; the testing kit plays the part of tools."""
    sources = [path for root in ("carmy_engine", "transports") for path in (REPOSITORY / root).rglob("*.py")]
    testing = REPOSITORY / "carmy_engine" / "testing"
    found = {
        code: path.relative_to(REPOSITORY).as_posix()
        for path in sources
        if not path.is_relative_to(testing)
        for code in _codes_in(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found.keys() >= {"READY_TIMEOUT", "CHECK_FAILED", "SETTLED_AS_FAILED", "INVALID_ARGUMENTS"}
    assert {code: place for code, place in found.items() if code not in CODES} == {}


def _prepare(page: Path, directory: Path) -> None:
    """A place to work in: the examples, and the files that the page itself begins with a comment of their name."""
    for example in (REPOSITORY / "docs" / "examples").glob("*.py"):
        shutil.copy(example, directory)
    for block in blocks_of(page):
        named = re.match(r"# ([\w.-]+\.(?:py|toml))\n", block.text)
        if named is not None:
            (directory / named[1]).write_text(block.text, encoding="utf-8")


def _environment() -> dict[str, str]:
    """Ours without settings, with the commands of this Python first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARMY_", "WORKSPACE_"))}
    return {**kept, "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])}


def _commands(page: Path) -> list[tuple[str, str, int]]:
    """Every command of the console blocks, with the output that should follow and its line."""
    commands: list[tuple[str, str, int]] = []
    for block in blocks_of(page):
        if block.info != "console":
            continue
        for entry in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            lines = entry.split("\n")
            taken = 1
            while lines[taken - 1].endswith("\\"):
                taken += 1
            commands.append(("\n".join(lines[:taken]), "\n".join(lines[taken:]), block.line))
    return commands


def _fits(expected: str, printed: str) -> bool:
    """Whether it was printed, but for white space at the ends of lines; ``…`` stands for anything."""
    pattern = re.escape("\n".join(line.rstrip() for line in expected.strip().splitlines())).replace("…", ".*?")
    return (
        re.fullmatch(pattern, "\n".join(line.rstrip() for line in printed.strip().splitlines()), re.DOTALL) is not None
    )


@contextlib.asynccontextmanager
async def _serving(command: str, directory: Path) -> AsyncIterator[str]:
    """Run a server as long as the page goes on; gives its address."""
    process = await trio.lowlevel.open_process(
        [*command.removesuffix(f" --address {ADDRESS}").split(), "--address", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        cwd=directory,
        env=_environment(),
    )
    try:
        assert process.stderr is not None
        said = b""
        while (found := re.search(rb"listening on http://(\S+)\n", said)) is None:
            more = await process.stderr.receive_some()
            assert more, said.decode()
            said += more
        yield found[1].decode()
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


def test_the_attributes_of_tools_are_listed_with_their_defaults() -> None:
    """The table of the attributes of ``@tool`` lists all of them, and the defaults of numbers and flags are those of the spec."""
    text = (REPOSITORY / "docs/tools.md").read_text().partition("## Attributes")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    listed = {cells[0].strip().strip("`"): cells[-1].strip() for cells in rows}
    (attributes,) = typing.get_args(typing.get_type_hints(tool)["attributes"])
    assert listed.keys() == attributes.__annotations__.keys()
    spec = ToolSpec(name="x", description="", input_schema={}, output_schema={}, effect=Effect.NONE)
    for name in ("idempotent", "parallel_safe", "max_waiting"):
        assert listed[name].strip("`") == str(getattr(spec, name))
    assert listed["confirmation"].strip("`") == spec.confirmation.value
    assert listed["max_output_bytes"] == f"{spec.max_output_bytes >> 20} MiB"
