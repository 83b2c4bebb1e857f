"""Signed tokens: what is accepted, and everything that attackers have tried elsewhere."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from joserfc.jwk import OctKey, RSAKey

from carmy_engine import AgentContext, AgentError, ConfigurationError, Jwt
from carmy_engine._auth.jose import read_key_set
from carmy_engine._auth.key_sources import REFRESH_SECONDS, RETRY_SECONDS, UrlKeys, check_url
from tests.support.tokens import AUDIENCE, EC, ISSUER, OTHER_RSA, RSA, SECRET, claims, encode, key_set, present, sign


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file with the keys of the issuer."""
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(RSA, EC))
    path.chmod(0o600)
    return path


@pytest.fixture
def jwt(keys: Path) -> Jwt:
    """The authenticator of a server with a file of keys."""
    return Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=keys)


def accepted(jwt: Jwt, token: str | None) -> tuple[str | None, set[str]] | None:
    """Principal and permissions of a token, None if it is refused. The keys are at hand, so there is nothing to wait for."""
    answer = jwt(present(token))
    assert answer is None or isinstance(answer, AgentContext)
    return None if answer is None else (answer.principal, set(answer.permissions))


@pytest.mark.parametrize(
    "token",
    [
        lambda: sign(claims()),
        lambda: sign(claims(), EC, algorithm="ES256"),
        lambda: sign(claims(aud=["https://other.example", AUDIENCE])),
        lambda: sign(claims(), header={"typ": "at+jwt"}),
        lambda: sign(claims(), header={"typ": "application/AT+JWT"}),
        lambda: sign(claims(), header={"kid": None}),
        lambda: sign(claims(iat=None, nbf=1)),
    ],
)
def test_valid_tokens(jwt: Jwt, token: Callable[[], str]) -> None:
    """A valid token gives its subject as the principal, and its scopes as permissions."""
    assert accepted(jwt, token()) == ("ana", {"tool:greet"})


def _altered() -> str:
    head, _, signature = sign(claims()).split(".")
    return ".".join([head, encode(claims(sub="eve", scope="tool:greet admin")), signature])


def _unsigned(name: str) -> Callable[[], str]:
    return lambda: f"{encode({'alg': name, 'kid': 'rsa'})}.{encode(claims())}."


def _confused() -> str:
    """A token that is signed with the public key as if that were a shared secret."""
    signed = f"{encode({'alg': 'HS256', 'kid': 'rsa'})}.{encode(claims())}"
    public = RSA.as_pem(private=False)
    return signed + "." + encode(hmac.new(public, signed.encode(), hashlib.sha256).digest())


WRONG: dict[str, Callable[[], str]] = {
    "none": _unsigned("none"),
    "None": _unsigned("None"),
    "no algorithm": lambda: f"{encode({'kid': 'rsa'})}.{encode(claims())}.",
    "an unlisted algorithm": lambda: sign(claims(), RSA, algorithm="RS512"),
    "algorithm confusion": _confused,
    "altered claims": _altered,
    "no signature": lambda: sign(claims()).rpartition(".")[0] + ".",
    "two parts": lambda: sign(claims()).rpartition(".")[0],
    "five parts": lambda: sign(claims()) + ".a.b",
    "another key under a known name": lambda: sign(claims(), OTHER_RSA, {"kid": "rsa"}),
    "a key of another type": lambda: sign(claims(), EC, {"kid": "rsa"}, "ES256"),
    "an unknown key": lambda: sign(claims(), OTHER_RSA),
    "a name that is a path": lambda: sign(claims(), OTHER_RSA, {"kid": "../../dev/null"}),
    "a key in the header": lambda: sign(claims(), OTHER_RSA, {"jwk": OTHER_RSA.as_dict(private=False)}),
    "a URL of keys in the header": lambda: sign(claims(), OTHER_RSA, {"jku": "https://evil.example/keys"}),
    "an extension": lambda: sign(claims(), header={"crit": ["exp"], "exp": 1}),
    "an unencoded payload": lambda: sign(claims(), header={"crit": ["b64"], "b64": True}),
    "another type": lambda: sign(claims(), header={"typ": "logout+jwt"}),
    "a type that is no text": lambda: sign(claims(), header={"typ": 1}),
    "another issuer": lambda: sign(claims(iss="https://evil.example")),
    "an issuer with a slash": lambda: sign(claims(iss=ISSUER + "/")),
    "no issuer": lambda: sign(claims(iss=None)),
    "another audience": lambda: sign(claims(aud="https://other.example")),
    "a longer audience": lambda: sign(claims(aud=AUDIENCE + ".evil.example")),
    "no audience": lambda: sign(claims(aud=None)),
    "an audience of objects": lambda: sign(claims(aud=[{AUDIENCE: 1}])),
    "no expiry": lambda: sign(claims(exp=None)),
    "an expiry as a text": lambda: sign(claims(exp="9999999999")),
    "an endless expiry": lambda: sign(b'{"iss": "%b", "exp": 1e999}' % ISSUER.encode()),
    "an expiry that is true": lambda: sign(claims(exp=True)),
    "no subject": lambda: sign(claims(sub=None)),
    "an empty subject": lambda: sign(claims(sub="")),
    "a number as the subject": lambda: sign(claims(sub=7)),
    "scopes of numbers": lambda: sign(claims(scope=[1])),
    "claims that are a list": lambda: sign(b"[]"),
    "claims that are no JSON": lambda: sign(b"\xff"),
    "deep claims": lambda: sign(b"[" * 10_000),
    "a long name of a key": lambda: sign(claims(), OTHER_RSA, {"kid": "x" * 7000}),
    "a header that is a list": lambda: f"{encode(b'[]')}.{encode(claims())}.x",
    "a number as the name of the key": lambda: f"{encode({'alg': 'RS256', 'kid': 7})}.{encode(claims())}.x",
    "nothing": lambda: "..",
    "no base64": lambda: "!.!.!",
    "characters beyond ASCII": lambda: "é.ü.\u0000",
    "200,000 characters": lambda: "a" * 200_000,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tokens(jwt: Jwt, name: str) -> None:
    """A token that is forged, altered, foreign or malformed is refused, and nothing is raised."""
    assert accepted(jwt, WRONG[name]()) is None
    assert accepted(jwt, sign(claims())) is not None


@pytest.mark.parametrize(
    ("changed", "at", "valid"),
    [
        ({"exp": 1000}, 999, True),
        ({"exp": 1000}, 1029, True),  # the clock of the issuer may be behind
        ({"exp": 1000}, 1030, False),
        ({"nbf": 1000, "exp": 2000}, 970, True),
        ({"nbf": 1000, "exp": 2000}, 969, False),
        ({"iat": 1000, "exp": 2000}, 970, True),
        ({"iat": 1000, "exp": 2000}, 969, False),
        ({"exp": 1000.5}, 1030.4, True),
        ({"exp": 1000.5}, 1030.5, False),
        ({"exp": 10**30}, 1000, True),
        ({"exp": -1}, 1000, False),
    ],
)
def test_clock_skew(keys: Path, changed: dict[str, Any], at: float, valid: bool) -> None:
    """Clocks may differ by the leeway, and no more."""
    jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=keys, leeway=30, clock=lambda: at)
    assert (accepted(jwt, sign(claims(**{"iat": None, **changed}))) is not None) is valid


def test_shared_secret() -> None:
    """With HS256, the secret is the key; tokens of a public key are refused."""
    jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, algorithms=["HS256"], key=SECRET)
    assert accepted(jwt, sign(claims(), OctKey.import_key(SECRET), algorithm="HS256")) is not None
    assert accepted(jwt, sign(claims(), OctKey.import_key("x" * 32), algorithm="HS256")) is None
    assert accepted(jwt, sign(claims())) is None


def test_key_in_pem() -> None:
    """A public key in PEM verifies tokens, whatever name of a key they have."""
    jwt = Jwt(issuer=ISSUER, audience=["a", AUDIENCE], key=RSA.as_pem(private=False))
    assert accepted(jwt, sign(claims())) is not None
    assert accepted(jwt, sign(claims(), OTHER_RSA)) is None


def test_own_claims(keys: Path) -> None:
    """The host may make the context of verified claims, and refuse."""

    def context(claims: Any) -> AgentContext | None:
        return AgentContext(principal=f"{claims['tenant']}/{claims['sub']}") if "tenant" in claims else None

    jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=keys, context=context)
    assert accepted(jwt, sign(claims(tenant="acme"))) == ("acme/ana", set())
    assert accepted(jwt, sign(claims())) is None
    assert accepted(
        Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=keys, permissions="roles"), sign(claims(roles=["a b"]))
    ) == ("ana", {"a b"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": ""},
        {"audience": ""},
        {"audience": []},
        {"algorithms": []},
        {"algorithms": "RS256"},
        {"algorithms": ["none"]},
        {"algorithms": ["RS256", "HS256"]},
        {"algorithms": ["A256KW"]},
        {"key": None},
        {"jwks": "keys.json"},
        {"key": "no key"},
        {"key": RSA.as_pem(private=True)},
        {"key": SECRET},
        {"algorithms": ["HS256"], "key": "short"},
        {"algorithms": ["HS256"], "key": RSA.as_pem(private=False)},
        {"leeway": -1},
        {"leeway": 3600},
        {"key": None, "jwks": "http://id.example/keys"},
        {"key": None, "jwks": "https://user:secret@id.example/keys"},
        {"key": None, "jwks": "file:///etc/passwd"},
        {"key": None, "jwks": "/nowhere/keys.json"},
    ],
)
def test_unsafe_configurations(wrong: dict[str, Any]) -> None:
    """What would accept forged tokens, or none, is refused when it is configured; the message has no secret."""
    usual = {"issuer": ISSUER, "audience": AUDIENCE, "key": RSA.as_pem(private=False)}
    with pytest.raises(ConfigurationError) as refused:
        Jwt(**{**usual, **wrong})
    assert SECRET not in str(refused.value)
    assert "secret@" not in str(refused.value)


def test_weak_keys() -> None:
    """A key set whose only key is too short to be safe is no key set."""
    weak = b'{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}'
    with pytest.raises(ConfigurationError, match="no key"):
        read_key_set(weak, ["HS256"])


def test_set_with_unusable_keys() -> None:
    """Keys of unknown types, for encryption and malformed ones are left out of a set, as the standard demands."""
    usable = json.loads(key_set(RSA))["keys"][0]
    others: list[dict[str, Any]] = [
        {"kty": "FUTURE", "kid": "f"},
        {"kty": "RSA", "kid": "broken"},
        {"kid": "no type"},
        {**usable, "kid": "for encryption", "use": "enc"},
        {**usable, "kid": "for another algorithm", "alg": "RS512"},
    ]
    found = read_key_set(json.dumps({"keys": [*others, usable]}).encode(), ["RS256"])
    assert {key.kid for key in found} == {"for encryption", "for another algorithm", "rsa"}


@pytest.mark.parametrize("kid", ["for encryption", "for another algorithm"])
def test_keys_with_another_use(keys: Path, kid: str) -> None:
    """A key that its issuer has meant for something else verifies nothing."""
    usable = json.loads(key_set(RSA))["keys"][0]
    change = {"use": "enc"} if kid == "for encryption" else {"alg": "RS512"}
    keys.write_text(json.dumps({"keys": [{**usable, "kid": kid, **change}]}))
    jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=keys)
    assert accepted(jwt, sign(claims(), RSA, {"kid": kid})) is None


def replace(path: Path, content: bytes) -> None:
    """Replace a file in one step, as editors and tools do."""
    other = path.with_suffix(".new")
    other.write_bytes(content)
    other.chmod(0o600)
    os.replace(other, path)


def test_file_is_read_again(jwt: Jwt, keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed file counts at once. While it is unusable, nothing is accepted, which is logged once."""
    token = sign(claims())
    assert accepted(jwt, token) is not None
    replace(keys, key_set(OTHER_RSA))
    assert accepted(jwt, token) is None
    assert accepted(jwt, sign(claims(), OTHER_RSA)) is not None
    for unusable in (b"{", b'{"keys": []}'):
        replace(keys, unusable)
        caplog.clear()
        for _ in range(3):
            with pytest.raises(AgentError) as unavailable:
                jwt(present(token))
            assert unavailable.value.code == "AUTHENTICATION_UNAVAILABLE"
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
    keys.unlink()
    with pytest.raises(AgentError):
        jwt(present(token))
    replace(keys, key_set(RSA))
    assert accepted(jwt, token) is not None


def test_file_that_others_may_write(jwt: Jwt, keys: Path) -> None:
    """Keys that other users can change are not used."""
    keys.chmod(0o666)
    with pytest.raises(AgentError):
        jwt(present(sign(claims())))
    with pytest.raises(ConfigurationError, match="grant themselves"):
        Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=keys)
    keys.chmod(0o644)
    assert accepted(jwt, sign(claims())) is not None


class Issuer:
    """A server of keys: what it answers, and how often it was asked."""

    def __init__(self) -> None:
        self.document = key_set(RSA)
        self.status = 200
        self.location: str | None = None
        self.asked = 0
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(issuer.status)
                if issuer.location is not None:
                    self.send_header("Location", issuer.location)
                self.send_header("Content-Length", str(len(issuer.document)))
                self.end_headers()
                self.wfile.write(issuer.document)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """A server of keys in a thread."""
    made = Issuer()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fetching(issuer: Issuer, clock: Clock) -> Jwt:
    """An authenticator that fetches its keys, by a clock of the test."""
    jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=issuer.url)
    jwt._keys = UrlKeys(issuer.url, lambda document: read_key_set(document, ["RS256"]), clock)
    return jwt


async def ask(jwt: Jwt, token: str) -> AgentContext | None:
    """The answer to a token, with the keys fetched if they have to be."""
    answer = jwt(present(token))
    return answer if answer is None or isinstance(answer, AgentContext) else await answer


async def test_keys_of_a_url(issuer: Issuer) -> None:
    """Keys are fetched once and kept for a while; after that they are fetched again."""
    clock = Clock()
    jwt = fetching(issuer, clock)
    token = sign(claims())
    for _ in range(3):
        assert await ask(jwt, token) is not None
    assert issuer.asked == 1
    clock.now += REFRESH_SECONDS
    issuer.document = key_set(OTHER_RSA)
    assert await ask(jwt, token) is None
    assert issuer.asked == 2
    assert await ask(jwt, sign(claims(), OTHER_RSA)) is not None


async def test_unknown_keys_are_fetched_within_bounds(issuer: Issuer) -> None:
    """A token with an unknown key has the keys fetched; many such tokens do so once in ten seconds."""
    clock = Clock()
    jwt = fetching(issuer, clock)
    assert await ask(jwt, sign(claims())) is not None
    issuer.document = key_set(RSA, OTHER_RSA)
    rotated = sign(claims(), OTHER_RSA)
    assert await ask(jwt, rotated) is None
    clock.now += RETRY_SECONDS
    assert await ask(jwt, rotated) is not None
    assert issuer.asked == 2
    clock.now += RETRY_SECONDS
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(ask, jwt, sign(claims(), OTHER_RSA, {"kid": f"unknown {number}"}))
    assert issuer.asked == 3


async def test_issuer_that_fails(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    """Without keys, callers are asked to come back. Keys that were fetched once are used on for a day."""
    clock = Clock()
    jwt = fetching(issuer, clock)
    token = sign(claims())
    issuer.status = 500
    for _ in range(3):
        with pytest.raises(AgentError) as unavailable:
            await ask(jwt, token)
        assert (unavailable.value.code, unavailable.value.retryable) == ("AUTHENTICATION_UNAVAILABLE", True)
    assert issuer.asked == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    clock.now += RETRY_SECONDS
    issuer.status = 200
    assert await ask(jwt, token) is not None
    issuer.status = 500
    clock.now += REFRESH_SECONDS
    assert await ask(jwt, token) is not None
    clock.now += 86_400
    with pytest.raises(AgentError):
        await ask(jwt, token)


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": []}', b"x" * (1024 * 1024 + 1)])
async def test_documents_that_are_no_keys(issuer: Issuer, document: bytes) -> None:
    """A document that is no set of keys, or too long, counts as a failure."""
    issuer.document = document
    with pytest.raises(AgentError):
        await ask(fetching(issuer, Clock()), sign(claims()))


async def test_redirects_are_not_followed(issuer: Issuer) -> None:
    """The configured URL alone is trusted."""
    issuer.status, issuer.location = 302, issuer.url + "/elsewhere"
    with pytest.raises(AgentError):
        await ask(fetching(issuer, Clock()), sign(claims()))
    assert issuer.asked == 1


@pytest.mark.parametrize("url", ["https://id.example/k", "http://localhost:1/k", "http://[::1]/k", "http://127.0.0.2/"])
def test_urls(url: str) -> None:
    """Keys come over TLS, or from this machine."""
    check_url(url)


def test_small_keys_of_rsa() -> None:
    """An RSA key of fewer than 2048 bits is refused."""
    with pytest.warns(match="2048"):
        small = RSAKey.generate_key(1024)
    with pytest.raises(ConfigurationError):
        Jwt(issuer=ISSUER, audience=AUDIENCE, key=small.as_pem(private=False))
