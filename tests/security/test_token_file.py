"""Files of tokens: what is accepted, what a change does, and the commands that write them."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path

import pytest

from carmy_engine import AgentContext, AgentError, ConfigurationError
from carmy_engine._auth.token_file import TokenEntry, TokensFile, edit_tokens, list_tokens, new_token
from tests.support.tokens import present


def add(path: Path, principal: str = "ana", seconds: float | None = None, now: float = 1000.0) -> tuple[str, str]:
    """Add a token to a file; the token and its id."""
    token, entry = new_token(principal, ["tool:greet", "tool:greet"], now=now, seconds=seconds)
    edit_tokens(path, lambda tokens: (*tokens, entry))
    return token, entry.id


def caller(file: TokensFile, token: str | None) -> str | None:
    """The principal of a token, None if it is refused."""
    context = file(present(token))
    assert context is None or isinstance(context, AgentContext)
    return None if context is None else context.principal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that does not exist yet."""
    return tmp_path / "tokens.json"


def test_new_tokens(path: Path) -> None:
    """A token is accepted once it is in the file, which has its hash only and belongs to its owner."""
    token, name = add(path)
    assert token.startswith(f"carmy_{name}_")
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    file = TokensFile(path)
    context = file(present(token))
    assert context is not None
    assert (context.principal, context.permissions) == ("ana", {"tool:greet"})
    for wrong in (None, "", token[:-1], token + "a", token.upper(), name, "\ud800", "a" * 100_000):
        assert caller(file, wrong) is None


def test_changes_count_at_once(path: Path) -> None:
    """A server that has read the file accepts new tokens and refuses revoked ones from the next request on."""
    first, name = add(path)
    file = TokensFile(path)
    second, _ = add(path, "ben")
    assert (caller(file, first), caller(file, second)) == ("ana", "ben")
    edit_tokens(path, lambda tokens: [token for token in tokens if token.id != name])
    assert (caller(file, first), caller(file, second)) == (None, "ben")


def test_expired_tokens(path: Path) -> None:
    """A token is refused from its expiry on."""
    now = 1000.0
    token, _ = add(path, seconds=60, now=now)
    file = TokensFile(path, clock=lambda: now)
    assert caller(file, token) == "ana"
    now = 1059.9
    assert caller(file, token) == "ana"
    now = 1060.0
    assert caller(file, token) is None


def _entry(**changed: object) -> dict[str, object]:
    usual = {"id": "a", "hash": "0" * 64, "principal": "ana", "created": "2026-01-31T00:00:00Z"}
    return {**usual, **changed}


MALFORMED = [
    b"",
    b"[]",
    b"\xff",
    b"[" * 100_000,
    json.dumps({"tokens": [_entry(hash="secret-token")]}).encode(),
    json.dumps({"tokens": [_entry(principal="")]}).encode(),
    json.dumps({"tokens": [_entry(permissions="tool:*")]}).encode(),
    json.dumps({"tokens": [_entry(expires="2026-01-31T00:00:00")]}).encode(),  # of which time zone?
    json.dumps({"tokens": [_entry(expired="2026-01-31T00:00:00Z")]}).encode(),
    json.dumps({"tokens": [_entry(), _entry(id="b")]}).encode(),
    json.dumps({"tokens": [_entry(), _entry(hash="1" * 64)]}).encode(),
]


@pytest.mark.parametrize("document", MALFORMED)
def test_malformed_files(path: Path, document: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A malformed file is refused at the start. Later, it refuses all callers, which is logged once, until it is corrected."""
    path.write_bytes(document)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match=r"tokens\.json") as refused:
        TokensFile(path)
    assert "secret-token" not in str(refused.value)
    path.unlink()
    token, _ = add(path)
    file = TokensFile(path)
    good = path.read_bytes()
    path.write_bytes(document)
    for _ in range(3):
        with pytest.raises(AgentError) as unavailable:
            file(present(token))
        assert unavailable.value.code == "AUTHENTICATION_UNAVAILABLE"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert file(present(None)) is None
    path.write_bytes(good)
    assert caller(file, token) == "ana"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_files_that_others_may_write(path: Path, mode: int) -> None:
    """Other users could grant themselves access, so such a file is not used, also if its mode changes later."""
    token, _ = add(path)
    file = TokensFile(path)
    path.chmod(mode)
    with pytest.raises(AgentError):
        file(present(token))
    with pytest.raises(ConfigurationError, match="other users"):
        TokensFile(path)
    path.chmod(0o644)
    assert caller(file, token) == "ana"


def test_missing_file(path: Path) -> None:
    """Without a file, a server does not start; one that runs refuses all callers."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        TokensFile(path)
    token, _ = add(path)
    file = TokensFile(path)
    path.unlink()
    with pytest.raises(AgentError):
        file(present(token))


def test_edits_keep_mode_and_links(path: Path, tmp_path: Path) -> None:
    """An edit keeps the mode of the file, and replaces the file behind a link."""
    add(path)
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    add(link)
    assert link.is_symlink()
    assert len(list_tokens(path)) == 2
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.json", "tokens.json"]


def test_failed_edits_leave_the_file(path: Path, tmp_path: Path) -> None:
    """An edit that fails changes nothing and leaves nothing behind."""
    add(path)
    before = path.read_bytes()

    def fail(_: tuple[TokenEntry, ...]) -> list[TokenEntry]:
        raise ConfigurationError("no")

    with pytest.raises(ConfigurationError):
        edit_tokens(path, fail)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["tokens.json"]


def test_edits_at_one_time(path: Path) -> None:
    """Edits of several processes follow one another; none is lost."""
    threads = [threading.Thread(target=add, args=(path, f"caller {number}")) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.principal for token in list_tokens(path)} == {f"caller {number}" for number in range(20)}


def test_printing_shows_no_hash(path: Path) -> None:
    """The representation names the file only."""
    add(path, now=time.time())
    assert repr(TokensFile(path)) == f"<TokensFile: {path}>"
