"""Settings from code, environment and file."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from carmy_engine import (
    AuthSettings,
    ConfigurationError,
    HttpSettings,
    JwtSettings,
    LogSettings,
    McpSettings,
    MetricsSettings,
    Settings,
    StoreSettings,
)
from carmy_engine._config.sources import KEYS, read_deployment
from carmy_engine.transport import InheritedAddress, TcpAddress, UnixAddress, parse_address, split_unix_url


def load(
    directory: Path, file: str | None = None, environ: Mapping[str, str] | None = None, **options: Any
) -> Settings:
    if file is not None:
        (directory / "carmy.toml").write_text(file)
    return read_deployment(options, environ=environ or {}, directory=directory).over(Settings())


def problems(directory: Path, file: str | None = None, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(directory, file, environ)
    return str(caught.value).splitlines()


def test_defaults_are_those_of_the_documentation(tmp_path: Path) -> None:
    """Without file and environment every setting has its documented default."""
    assert load(tmp_path) == Settings()
    assert Settings().address == "127.0.0.1:3000"
    assert Settings().timeout_secs == 30


def test_option_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """Each source wins over the next, key by key."""
    file = 'name = "file"\ntimeout_secs = 1\naddress = "127.0.0.1:1"\n[http]\nbody_timeout_secs = 3\n'
    environ = {"CARMY_NAME": "environment", "CARMY_TIMEOUT_SECS": "2"}
    settings = load(tmp_path, file, environ, name="option")
    assert settings.name == "option"
    assert settings.timeout_secs == 2
    assert settings.address == "127.0.0.1:1"
    assert settings.http.body_timeout_secs == 3
    assert settings.http.header_timeout_secs == 10


def test_every_key_can_be_set_by_its_variable(tmp_path: Path) -> None:
    """One rule names the variable of every key, and no two keys share one."""
    samples = {
        "name": "n",
        "title": "Shop",
        "instructions": "Search first.",
        "version": "2.1",
        "app": "m:a",
        "address": "127.0.0.1:9",
        "reuse_port": "true",
        "timeout_secs": "1.5",
        "drain_timeout_secs": "0",
        "max_executions": "7",
        "allow_anonymous": "yes",
        "expose_errors": "1",
        "http.server": "native",
        "http.tls_cert": "cert.pem",
        "http.tls_key": "key.pem",
        "http.http2": "true",
        "http.processes": "4",
        "http.header_timeout_secs": "1",
        "http.body_timeout_secs": "2",
        "http.max_connections": "3",
        "http.security_headers": "TRUE",
        "http.allowed_hosts": "a.example, b.example",
        "http.allowed_origins": "https://a.example",
        "http.root_path": "/shop/v1",
        "http.public_url": "https://example.org/shop",
        "http.mcp": "false",
        "mcp.confirm": "refuse",
        "mcp.promote_after_secs": "0",
        "mcp.sessions": "no",
        "mcp.names": "declared",
        "store.url": "memory:",
        "store.retention_days": "0.5",
        "store.max_entries": "8",
        "store.max_bytes": "9",
        "store.durability": "normal",
        "store.audit_days": "1",
        "trust_traceparent": "yes",
        "auth.tokens_file": "tokens.json",
        "auth.require_permissions": "true",
        "auth.jwt.issuer": "https://id.example",
        "auth.jwt.audience": "a, b",
        "auth.jwt.jwks": "keys.json",
        "auth.jwt.algorithms": "ES256",
        "auth.jwt.permissions": "roles",
        "log.access": "true",
        "metrics.address": "127.0.0.1:9464",
        "log.level": "debug",
        "log.format": "json",
    }
    variables = {key: "CARMY_" + key.upper().replace(".", "_") for key in KEYS}
    assert len(set(variables.values())) == len(variables)
    bounds = {key: (operator.attrgetter(key)(Settings()) or 1) + 1 for key in KEYS if key not in samples}
    found = load(tmp_path, environ={variables[key]: f"{value:g}" for key, value in bounds.items() if value < 1e6})
    for key, value in bounds.items():
        assert value >= 1e6 or operator.attrgetter(key)(found) == value, key
    assert load(tmp_path, environ={variables[key]: text for key, text in samples.items()}) == Settings(
        name="n",
        version="2.1",
        title="Shop",
        instructions="Search first.",
        app="m:a",
        address="127.0.0.1:9",
        reuse_port=True,
        timeout_secs=1.5,
        drain_timeout_secs=0,
        max_executions=7,
        allow_anonymous=True,
        expose_errors=True,
        http=HttpSettings(
            server="native",
            tls_cert="cert.pem",
            tls_key="key.pem",
            http2=True,
            processes=4,
            header_timeout_secs=1,
            body_timeout_secs=2,
            max_connections=3,
            security_headers=True,
            allowed_hosts=("a.example", "b.example"),
            allowed_origins=("https://a.example",),
            root_path="/shop/v1",
            public_url="https://example.org/shop",
            mcp=False,
        ),
        mcp=McpSettings(confirm="refuse", promote_after_secs=0, sessions=False, names="declared"),
        store=StoreSettings(retention_days=0.5, max_entries=8, max_bytes=9, durability="normal", audit_days=1),
        log=LogSettings(level="debug", format="json", access=True),
        metrics=MetricsSettings(address="127.0.0.1:9464"),
        trust_traceparent=True,
        auth=AuthSettings(
            tokens_file="tokens.json",
            require_permissions=True,
            jwt=JwtSettings(
                issuer="https://id.example",
                audience=("a", "b"),
                jwks="keys.json",
                algorithms=("ES256",),
                permissions="roles",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("Yes", True), ("false", False), ("0", False), ("NO", False)]
)
def test_booleans_in_the_environment(tmp_path: Path, text: str, value: bool) -> None:
    """A boolean variable is true, 1, yes, false, 0 or no, in any case."""
    assert load(tmp_path, environ={"CARMY_ALLOW_ANONYMOUS": text}).allow_anonymous is value


def test_an_empty_variable_counts_as_none(tmp_path: Path) -> None:
    """An empty variable leaves the file's value in force."""
    assert load(tmp_path, "max_executions = 5", {"CARMY_MAX_EXECUTIONS": ""}).max_executions == 5


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("timeout = 3", "unknown key timeout; did you mean timeout_secs?"),
        ("[http]\nservr = 'native'", "unknown key http.servr; did you mean http.server?"),
        ("body_timeout_secs = 3", "unknown key body_timeout_secs; did you mean http.body_timeout_secs?"),
        ("[htp]\nserver = 'native'", "unknown key htp; "),
        ("zzz = 1", "unknown key zzz; known are: address, allow_anonymous, app"),
        ("http = 3", "http is a table: write [http] and its keys below it"),
        ("[http.server]\nx = 1", "http.server must be auto, hypercorn or native"),
        ("name = 3", "name must be a text that is not empty"),
        ("name = ''", "name must be a text that is not empty"),
        ("timeout_secs = '3'", "timeout_secs must be a number of seconds above 0"),
        ("timeout_secs = true", "timeout_secs must be a number of seconds above 0"),
        ("timeout_secs = inf", "timeout_secs must be a number of seconds above 0"),
        ("timeout_secs = nan", "timeout_secs must be a number of seconds above 0"),
        ("timeout_secs = 0", "timeout_secs must be a number of seconds above 0"),
        ("max_executions = 1.5", "max_executions must be a whole number, 1 to 1000000"),
        ("max_executions = 0", "max_executions must be a whole number, 1 to 1000000"),
        ("allow_anonymous = 'yes'", "allow_anonymous must be true or false"),
        ("address = 'localhost'", "address must be HOST:PORT"),
        ("address = '127.0.0.1:65536'", "address must be HOST:PORT"),
        *(
            (f"[http]\nroot_path = '{path}'", "http.root_path must be a path")
            for path in ("", "/", "a", "/a/", "/a//b", "/..", "/a b")
        ),
        ("[http]\nallowed_hosts = 'a'", "http.allowed_hosts must be a list of texts"),
        ("[http]\nallowed_hosts = ['']", "http.allowed_hosts must be a list of texts"),
        ("name = ", "not valid TOML"),
        ("name = 'a'\nname = 'b'", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, file: str, words: str) -> None:
    """A problem in the file names the file, the key and what would be right."""
    (problem,) = problems(tmp_path, file)
    assert problem.startswith(f"{tmp_path / 'carmy.toml'}: ")
    assert words in problem


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("CARMY_TIMEOUT", "3", "unknown variable CARMY_TIMEOUT; did you mean CARMY_TIMEOUT_SECS?"),
        ("CARMY_TIMEOUT_SECS", "soon", "the environment (CARMY_TIMEOUT_SECS): timeout_secs must be a number"),
        ("CARMY_MAX_EXECUTIONS", "1.0", "(CARMY_MAX_EXECUTIONS): max_executions must be a whole number"),
        ("CARMY_EXPOSE_ERRORS", "maybe", "(CARMY_EXPOSE_ERRORS): expose_errors must be true or false"),
        ("CARMY_HTTP_SERVER", "apache", "(CARMY_HTTP_SERVER): http.server must be auto, hypercorn or native"),
    ],
)
def test_a_wrong_variable_is_explained(tmp_path: Path, variable: str, text: str, words: str) -> None:
    """A problem in the environment names the variable and what would be right."""
    (problem,) = problems(tmp_path, environ={variable: text})
    assert words in problem


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    """One start shows every problem of every source."""
    found = problems(tmp_path, "timeout_secs = -1\nnaem = 'x'\n", {"CARMY_MAX_EXECUTIONS": "none", "PATH": "/bin"})
    assert len(found) == 3


def test_a_refusal_does_not_repeat_the_value(tmp_path: Path) -> None:
    """Settings can hold passwords, so no message repeats a value."""
    (problem,) = problems(tmp_path, "[store]\nurl = ['hunter2']\n")
    assert "hunter2" not in problem


def test_the_named_file_is_read_instead_of_the_usual_one(tmp_path: Path) -> None:
    """CARMY_CONFIG names the one file that is read."""
    (tmp_path / "carmy.toml").write_text("name = 'usual'")
    (tmp_path / "other.toml").write_text("name = 'other'")
    assert load(tmp_path, environ={"CARMY_CONFIG": "other.toml"}).name == "other"
    assert load(tmp_path, environ={"CARMY_CONFIG": str(tmp_path / "other.toml")}).name == "other"
    assert load(tmp_path).name == "usual"


def test_the_named_file_must_exist(tmp_path: Path) -> None:
    """A file that was asked for and is not there is an error, not a default."""
    (problem,) = problems(tmp_path, environ={"CARMY_CONFIG": "gone.toml"})
    assert "gone.toml: cannot be read (No such file or directory)" in problem
    assert "CARMY_CONFIG" in problem


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """Bytes that are not text are a problem of the file like any other."""
    (tmp_path / "carmy.toml").write_bytes(b"name = '\xff'")
    (problem,) = problems(tmp_path)
    assert "not valid TOML" in problem


def test_settings_in_code_are_checked_too() -> None:
    """A setting out of range is refused when the object is built."""
    with pytest.raises(ConfigurationError, match="timeout_secs must be"):
        Settings(timeout_secs=0)
    with pytest.raises(ConfigurationError, match="max_connections must be"):
        HttpSettings(max_connections=0)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:0", TcpAddress("127.0.0.1", 0)),
        ("[::1]:80", TcpAddress("::1", 80)),
        ("localhost:65535", TcpAddress("localhost", 65535)),
        ("unix:shop.sock", UnixAddress("shop.sock")),
        ("unix:/run/a b:c", UnixAddress("/run/a b:c")),
        ("fd://3", InheritedAddress((3,))),
        ("fd://3,12", InheritedAddress((3, 12))),
        ("fd://3,12?until=5", InheritedAddress((3, 12), 5)),
    ],
)
def test_addresses(address: str, parts: object) -> None:
    """An address comes apart by its form, and the brackets of IPv6 go."""
    assert parse_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        *("", "3000", ":3000", "::1:80", "[::1]", "a b:1", "host:", "host:x", "http://host:1", "host:123456"),
        *(
            "unix:",
            "unix:a\0b",
            "UNIX:a",
            "fd://",
            "fd://x",
            "fd://-3",
            "fd://3,",
            "fd://2",
            "fd://3,1",
            "fd://3?until=",
            "fd://3?for=4",
        ),
    ],
)
def test_wrong_addresses(address: str) -> None:
    """Anything else is refused, saying what it should look like."""
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        parse_address(address)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://127.0.0.1:3000/a", ("http://127.0.0.1:3000/a", None)),
        ("http://unix:/run/shop.sock", ("http://localhost", "/run/shop.sock")),
        ("http://unix:shop.sock:/tools", ("http://localhost/tools", "shop.sock")),
        ("http://unix.example:80", ("http://unix.example:80", None)),
    ],
)
def test_urls_of_sockets_with_a_file(url: str, parts: tuple[str, str | None]) -> None:
    """The URL that a server on a socket with a file prints is split again."""
    assert split_unix_url(url) == parts
