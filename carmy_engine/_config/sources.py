"""Settings from outside the program: options of a command, then ``CARMY_*``, then ``carmy.toml``.

They override the settings of the program, which override the defaults.

One rule names the variables: ``CARMY_`` and the key's path in upper case, joined by ``_``: ``http.body_timeout_secs`` is
``CARMY_HTTP_BODY_TIMEOUT_SECS``. Every problem is collected, so that one start shows all of them.
"""

from __future__ import annotations

import difflib
import operator
import os
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .._model.errors import ConfigurationError
from .address import parse_address
from .settings import Settings, check_value, field_types

DEFAULT_FILE = "carmy.toml"
PREFIX = "CARMY_"
FILE_VARIABLE = "CARMY_CONFIG"
PRINCIPAL_VARIABLE = "CARMY_PRINCIPAL"
PERMISSIONS_VARIABLE = "CARMY_PERMISSIONS"
TOKEN_VARIABLE = "CARMY_TOKEN"  # noqa: S105 - the name of one

_OTHER_VARIABLES = frozenset({FILE_VARIABLE, PRINCIPAL_VARIABLE, PERMISSIONS_VARIABLE, TOKEN_VARIABLE})
"""Variables that set no key: the file, the identity of local callers, and the credentials of commands that call a server."""

_OPEN_URLS = ("memory:", "sqlite:")
"""URLs of stores that hold no secret. Any other may hold a password."""

S = TypeVar("S", bound=msgspec.Struct)

_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no"})


class _Key:
    """One setting: its path, its type and the variable that sets it."""

    def __init__(self, path: tuple[str, ...], expected: Any) -> None:
        self.path = path
        self.expected = expected
        self.name = ".".join(path)
        self.variable = PREFIX + "_".join(path).upper()


def _keys(struct: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Iterator[_Key]:
    for name, expected in field_types(struct).items():
        if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
            yield from _keys(expected, (*path, name))
        else:
            yield _Key((*path, name), expected)


KEYS: Mapping[str, _Key] = {key.name: key for key in _keys(Settings)}
"""Every setting, by its dotted name."""

_BY_VARIABLE: Mapping[str, _Key] = {key.variable: key for key in KEYS.values()}
_TABLES = {".".join(key.path[:depth]) for key in KEYS.values() for depth in range(1, len(key.path))}


class Deployment(msgspec.Struct, frozen=True):
    """Settings from outside the program.

    Attributes:
        values: The checked values, by dotted name.
        sources: Where each of them comes from: an option, a variable or a file.
    """

    values: Mapping[str, Any] = {}
    sources: Mapping[str, str] = {}

    def over(self, given: Settings) -> Settings:
        """The settings that the program gave, with these in place of theirs."""
        return _replaced(given, self.values) if self.values else given

    def without_effect(
        self, given: object, noun: str, prefixes: tuple[str, ...], name: str
    ) -> Iterator[ConfigurationError]:
        """The settings that have no effect beside an object of the program.

        Args:
            given: The object.
            noun: What it is, for the messages.
            prefixes: How the settings begin.
            name: The application's, for the messages.
        """
        for key, source in self.sources.items():
            if key.startswith(prefixes):
                yield ConfigurationError(
                    f"{source}: {key} has no effect, because application {name!r} gives a {type(given).__name__} object"
                    f" as its {noun}: remove one of the two"
                )

    def differences(self, settings: Settings) -> Iterator[tuple[str, str, str]]:
        """Name, value and source of each setting that is not the default; values that may be secret are shortened.

        Args:
            settings: The result of `over`.
        """
        for key in KEYS.values():
            value = operator.attrgetter(key.name)(settings)
            if value != operator.attrgetter(key.name)(Settings()):
                yield key.name, _shown(key, value), self.sources.get(key.name, "the program")


def read_deployment(
    options: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Deployment:
    """Read the settings from outside the program.

    Args:
        options: Of a command, as `checked_option` returns them, by dotted name; these win over environment and file.
        environ: The environment, the process's own by default.
        directory: Where ``carmy.toml`` is looked for, the working directory by default.

    Raises:
        ConfigurationError: A key or variable is unknown, a value does not fit, or the file cannot be read. One error
            lists all of it, each with its key and where it comes from.
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    path = _file(environ, directory or Path())
    if path is not None:
        values.update(_from_file(path, problems))
        sources.update(dict.fromkeys(values, str(path)))
    from_environment = _from_environment(environ, problems)
    values.update(from_environment)
    sources.update((name, KEYS[name].variable) for name in from_environment)
    if problems:
        raise ConfigurationError("\n".join(problems))
    for name, value in (options or {}).items():
        values[name] = value
        sources[name] = option_of(name)
    return Deployment(values, sources)


def option_of(name: str) -> str:
    """The command-line option of a setting: ``--dev`` for ``expose_errors``, else the last part of its name."""
    return "--dev" if name == "expose_errors" else "--" + name.replace("log.", "log-").rpartition(".")[2]


def checked_option(name: str, value: Any) -> Any:
    """The value of a setting that an option of a command gives.

    Raises:
        ConfigurationError: It does not fit; the message begins with the option.
    """
    option = option_of(name)
    checked = check_value(option, KEYS[name].expected, value)
    if name == "address":
        try:
            parse_address(checked)
        except ConfigurationError as error:
            raise ConfigurationError(f"--{error}") from None
    return checked


def _file(environ: Mapping[str, str], directory: Path) -> Path | None:
    """The file to read: the one that was asked for, which must exist, or the conventional one if it does."""
    named = environ.get(FILE_VARIABLE)
    if named:
        return directory / named
    usual = directory / DEFAULT_FILE
    return usual if usual.exists() else None


def _from_file(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        problems.append(f"{path}: cannot be read ({error.strerror}); is {FILE_VARIABLE} right?")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path}: not valid TOML: {error}")
        return {}
    values: dict[str, Any] = {}
    for name, value in _leaves(document, path, problems):
        key = KEYS.get(name)
        if key is None:
            problems.append(f"{path}: {_unknown(name, 'key', KEYS)}")
        else:
            _take(values, key, value, str(path), problems)
    return values


def _leaves(
    document: Mapping[str, Any], path: Path, problems: list[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for inner, value in document.items():
        name = prefix + inner
        if name in _TABLES:
            if isinstance(value, dict):
                yield from _leaves(typing.cast("dict[str, Any]", value), path, problems, f"{name}.")
            else:
                problems.append(f"{path}: {name} is a table: write [{name}] and its keys below it")
        else:
            yield name, value


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in _OTHER_VARIABLES:
            continue
        key = _BY_VARIABLE.get(variable)
        if key is None:
            problems.append(f"environment: {_unknown(variable, 'variable', [*_BY_VARIABLE, *_OTHER_VARIABLES])}")
        elif text:  # an empty variable is as good as none: that is how compose files and unit files unset one
            _take(values, key, _parse(text, key.expected), f"the environment ({variable})", problems)
    return values


def _parse(text: str, expected: Any) -> Any:
    """The value that the text stands for; the text itself when it stands for none, which the type then refuses."""
    if not hasattr(expected, "__metadata__"):  # such as ``Count | None``
        expected = next((part for part in typing.get_args(expected) if hasattr(part, "__metadata__")), expected)
    kind = typing.get_args(expected)[0] if hasattr(expected, "__metadata__") else expected
    if kind is bool:
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else text
    if kind is int or kind is float:
        convert: Callable[[str], Any] = kind
        try:
            return convert(text)
        except ValueError:
            return text
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _take(values: dict[str, Any], key: _Key, value: Any, source: str, problems: list[str]) -> None:
    try:
        values[key.name] = check_value(key.name, key.expected, value)
        if key.name == "address":
            parse_address(values[key.name])
    except ConfigurationError as error:
        problems.append(f"{source}: {error}")


def _unknown(name: str, what: str, known: typing.Iterable[str]) -> str:
    names = sorted(known)
    # The last parts count too: the likeliest mistake is the right word in the wrong table.
    last = {candidate.rpartition(".")[2]: candidate for candidate in names}
    near = difflib.get_close_matches(name, names, n=1) or [
        last[part] for part in difflib.get_close_matches(name.rpartition(".")[2], last, n=1)
    ]
    hint = f"did you mean {near[0]}?" if near else "known are: " + ", ".join(names)
    return f"unknown {what} {name}; {hint}"


def _replaced(struct: S, values: Mapping[str, Any], path: str = "") -> S:
    """A copy with the values whose names begin with `path`."""
    changes: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        inner = getattr(struct, name)
        if isinstance(inner, msgspec.Struct):
            changes[name] = _replaced(inner, values, f"{path}{name}.")
        elif path + name in values:
            changes[name] = values[path + name]
    return msgspec.structs.replace(struct, **changes)


def _shown(key: _Key, value: Any) -> str:
    """A value as `Deployment.differences` shows it. Of the URL of a store it does not know, only the scheme is shown."""
    if key.name == "store.url" and not value.startswith(_OPEN_URLS):
        value = value.partition(":")[0] + ":…"
    return msgspec.json.encode(value).decode()
