"""The commands `token`, the settings `[auth]`, and calls with the credentials of the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from carmy_engine import App, BearerTokens
from tests.support.tokens import AUDIENCE, ISSUER, RSA, claims, key_set, sign

from .conftest import Write, running_server
from .test_commands import Carmy, carmy
from .test_life import CARMY

__all__ = ["carmy"]

PROGRAM = """
    from carmy_engine import AgentContext, App
    app = App("shop")

    @app.tool(effect="read")
    async def whoami(ctx: AgentContext) -> list[str | None]:
        return [ctx.principal, *sorted(ctx.permissions)]
"""


@pytest.fixture
def shop(write: Write) -> Path:
    """A program, and the settings of a file with tokens."""
    write("carmy.toml", 'app = "program.py"\naddress = "127.0.0.1:0"\n[auth]\ntokens_file = "tokens.json"\n')
    return write("program.py", PROGRAM)


@pytest.mark.usefixtures("shop")
def test_new_list_and_revoke(carmy: Carmy, directory: Path) -> None:
    """`new` prints the token alone, once; `list` has no secret; `revoke` removes it."""
    made = carmy(
        "token", "new", "--principal", "ana", "--permission", "tool:*", "--permission", "b", "--expires", "30d"
    )
    token = made.out.strip()
    assert (made.code, made.out) == (0, f"{token}\n")
    assert "not shown again" in made.err
    assert token not in made.err
    carmy("token", "new", "--principal", "ben")
    listed = carmy("token", "list")
    head, ana, ben = listed.out.splitlines()
    assert head.split() == ["ID", "PRINCIPAL", "PERMISSIONS", "CREATED", "EXPIRES"]
    assert "ana" in ana
    assert "tool:* b" in ana
    assert "ben" in ben
    secret = token.rpartition("_")[2]
    assert secret not in listed.out + (directory / "tokens.json").read_text()
    entries = [json.loads(line) for line in carmy("token", "list", "--json").out.splitlines()]
    assert [entry["principal"] for entry in entries] == ["ana", "ben"]
    revoked = carmy("token", "revoke", entries[0]["id"])
    assert (revoked.code, revoked.out) == (0, "")
    assert [json.loads(line)["principal"] for line in carmy("token", "list", "--json").out.splitlines()] == ["ben"]


def test_in_a_file_of_its_own(carmy: Carmy, directory: Path) -> None:
    """`--file` needs no settings, and neither do the commands of an application."""
    assert carmy("token", "new", "--principal", "ana", "--file", "other.json").code == 0
    assert carmy("token", "list", "--file", "other.json", "--json", app=App("shop")).out.count("ana") == 1
    assert (directory / "other.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("new",), 2, "principal"),
        (("new", "--principal", ""), 2, "not empty"),
        (("new", "--principal", "ana"), 2, "auth.tokens_file"),
        (("new", "--principal", "ana", "--expires", "soon", "--file", "t"), 2, "--expires"),
        (("new", "--principal", "ana", "--expires", "0d", "--file", "t"), 2, "--expires"),
        (("new", "--principal", "ana", "--expires", "999999999d", "--file", "t"), 2, "--expires"),
        (("new", "--principal", "ana", "--file", "nowhere/t"), 1, "cannot be written"),
        (("list", "--file", "shop.py"), 1, "not a file of tokens"),
        (("revoke", "--file", "t"), 2, "id of a token"),
        (("revoke", "abc", "--file", "t"), 1, "no token abc"),
    ],
)
@pytest.mark.usefixtures("directory")
def test_mistakes(carmy: Carmy, words: tuple[str, ...], code: int, message: str) -> None:
    """A mistake is reported with what to do, and nothing is written."""
    ran = carmy("token", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert not Path("t").exists()


@pytest.mark.usefixtures("shop")
def test_check(carmy: Carmy, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` reports a file that is missing or unsafe, and prints the setting, but no token."""
    missing = carmy("check")
    assert missing.code == 1
    assert "tokens.json: cannot be read" in missing.out
    token = carmy("token", "new", "--principal", "ana").out.strip()
    good = carmy("check")
    assert good.code == 0
    assert 'auth.tokens_file = "tokens.json" (carmy.toml)' in good.err
    assert token not in good.out + good.err
    Path("tokens.json").chmod(0o666)
    assert "grant themselves" in carmy("check").out
    Path("tokens.json").chmod(0o600)
    monkeypatch.setenv("CARMY_ADDRESS", "0.0.0.0:0")
    assert carmy("check").code == 0  # callers have to show a token


@pytest.mark.usefixtures("shop")
def test_settings_of_signed_tokens(carmy: Carmy, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """The settings of `[auth.jwt]` belong together; each problem names them."""
    carmy("token", "new", "--principal", "ana")
    (directory / "keys.json").write_bytes(key_set(RSA))
    monkeypatch.setenv("CARMY_AUTH_JWT_ISSUER", ISSUER)
    assert "auth.jwt needs auth.jwt.audience and auth.jwt.jwks as well" in carmy("check").out
    monkeypatch.setenv("CARMY_AUTH_JWT_AUDIENCE", f"{AUDIENCE},https://other.example")
    monkeypatch.setenv("CARMY_AUTH_JWT_JWKS", "keys.json")
    assert carmy("check").code == 0
    for variable, value, message in (
        ("JWKS", "http://id.example/keys", "must be https"),
        ("JWKS", "nowhere.json", "cannot be read"),
        ("ALGORITHMS", "none", "'none' is not one of"),
        ("ALGORITHMS", "RS256,HS256", "one kind only"),
        ("LEEWAY_SECS", "3600", "leeway"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(f"CARMY_AUTH_JWT_{variable}", value)
            ran = carmy("check")
            assert (ran.code, message in ran.out) == (1, True), ran.out


def test_authenticator_of_the_program(carmy: Carmy, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """A setting that has no effect beside the authenticator of the program is an error; the rule about tools has one."""
    app = App("shop").authenticate(BearerTokens({}))
    monkeypatch.setenv("CARMY_AUTH_REQUIRE_PERMISSIONS", "true")
    assert carmy("check", app=app).code == 0
    monkeypatch.setenv("CARMY_AUTH_TOKENS_FILE", "tokens.json")
    monkeypatch.setenv("CARMY_AUTH_JWT_ISSUER", ISSUER)
    ran = carmy("check", app=app)
    assert ran.code == 1
    assert "CARMY_AUTH_TOKENS_FILE: auth.tokens_file has no effect" in ran.out
    assert "CARMY_AUTH_JWT_ISSUER: auth.jwt.issuer has no effect" in ran.out
    assert "BearerTokens object as its authenticator" in ran.out


@pytest.mark.usefixtures("shop")
def test_file_of_settings(carmy: Carmy, write: Write) -> None:
    """Tables within tables have keys of their own, and mistakes in them are reported."""
    write("carmy.toml", '[auth.jwt]\nissuer = ""\nisuer = "a"\n[auth]\njwtt = 1\n')
    ran = carmy("check", "program.py")
    for message in (
        "auth.jwt.issuer must be",
        "unknown key auth.jwt.isuer; did you mean auth.jwt.issuer?",
        "auth.jwtt",
    ):
        assert message in ran.err + ran.out
    write("carmy.toml", "[auth]\njwt = 1\n")
    ran = carmy("check", "program.py")
    assert "[auth.jwt]" in ran.err + ran.out


@pytest.mark.parametrize("server", ["native", "hypercorn"])
@pytest.mark.usefixtures("shop")
async def test_a_server_with_a_file(
    carmy: Carmy, monkeypatch: pytest.MonkeyPatch, directory: Path, server: str
) -> None:
    """A running server accepts a new token, signed ones beside it, and refuses a revoked one from the next request on."""
    (directory / "keys.json").write_bytes(key_set(RSA))
    for name, value in (("ISSUER", ISSUER), ("AUDIENCE", AUDIENCE), ("JWKS", "keys.json")):
        monkeypatch.setenv(f"CARMY_AUTH_JWT_{name}", value)
    first = carmy("token", "new", "--principal", "ana", "--permission", "tool:whoami").out.strip()
    async with running_server(*CARMY, "serve", "--server", server) as served:

        async def ask(token: str | None) -> tuple[int, object]:
            if token is None:
                monkeypatch.delenv("CARMY_TOKEN", raising=False)
            else:
                monkeypatch.setenv("CARMY_TOKEN", token)
            ran = await trio.to_thread.run_sync(carmy, "call", "whoami", "--url", served.url)
            assert ran.out, ran.err
            return ran.code, ran.json.get("data") or ran.json["error"]["code"]

        assert await ask(first) == (0, ["ana", "tool:whoami"])
        assert await ask(None) == (1, "UNAUTHENTICATED")
        assert await ask(sign(claims(sub="cleo"))) == (0, ["cleo", "tool:greet"])
        second = carmy("token", "new", "--principal", "ben").out.strip()
        assert await ask(second) == (0, ["ben"])
        carmy("token", "revoke", first.split("_")[1])
        assert await ask(first) == (1, "UNAUTHENTICATED")
        assert await ask(second) == (0, ["ben"])
        used = await trio.to_thread.run_sync(carmy, "call", "whoami", "--url", served.url, "--token", "wrong")
        assert used.json["error"]["code"] == "UNAUTHENTICATED"  # the option wins over the variable
        assert first.encode() not in served.said
