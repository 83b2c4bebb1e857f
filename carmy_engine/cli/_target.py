"""The target of a command: ``file.py``, ``file.py:app`` or ``module:app``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple, TypeVar

from cyclopts import Parameter

from .._app.app import App
from .._app.conventional import conventional
from .._config.sources import Deployment, read_deployment
from .._model.errors import CarmyError
from .._model.suggestions import closest_names
from .._tools.declaration import ToolDeclaration, declared
from ._logs import configure_logging
from ._outcome import Failure, UsageError

T = TypeVar("T")

Target = Annotated[str | None, Parameter(help="file.py, file.py:app or module:app. Default: 'app' of carmy.toml.")]

_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[A-Za-z_][\w.]*))?")
_MODULE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")
FORMS = "file.py, file.py:app or module:app"

_loading: list[str] = []
"""The target that is being loaded. Its own `App.run` must not start meanwhile."""


class NoTargetError(UsageError):
    """A word is neither a command nor a target.

    Attributes:
        word: The word.
    """

    def __init__(self, word: str) -> None:
        super().__init__(f"{word!r} is neither a command nor a target: a target is {FORMS}")
        self.word = word


def is_target(word: str) -> bool:
    """Whether the word names a target: no tool's name contains a colon, and hardly any ends in ``.py``."""
    return _FILE.fullmatch(word) is not None or _MODULE.fullmatch(word) is not None


def one_word_too_many(argv: Sequence[str], left: str, commands: Collection[str], *, targets: bool) -> str:
    """What is wrong with a command line that has a word too many.

    Args:
        argv: The command line.
        left: The word that nothing could take.
        commands: The names of the commands.
        targets: Whether commands take a target. Then the first word may have been taken for one.
    """
    if left in commands:
        return f"the command comes first: {left} {argv[0]}"
    if argv[0] in commands:
        return f"{argv[0]} takes no {left!r}" + (" after its target" if targets and is_target(argv[1]) else "")
    return no_command(left if targets and is_target(argv[0]) else argv[0], commands)


def no_command(word: str, commands: Collection[str]) -> str:
    """The message for a word that names no command, with a suggestion."""
    near = closest_names(word, commands)
    return f"there is no command {word!r}" + (f"; did you mean {near[0]!r}?" if near else "")


class Loaded(NamedTuple):
    """What a target names.

    Attributes:
        module: The module, loaded.
        where: The target without the name after the colon.
        name: The name in the module; None if the target has none.
    """

    module: ModuleType
    where: str
    name: str | None


def load_target(
    app: App | None, target: str | None, options: Mapping[str, Any] | None = None, process: int | None = None
) -> App:
    """The application of a command, with the settings of the process. Configures logging, unless it has done so.

    Args:
        app: The one whose commands these are; None: the target names it.
        target: As on the command line; None for the one that the settings name.
        options: Settings from the command line.
        process: See `configure_logging`.

    Raises:
        UsageError: There is no such target, or it holds no application, or several.
        Failure: It could not be imported.
        ConfigurationError: The settings are not valid.
    """
    deployment = read_deployment(options)
    if app is None:
        app = app_in(load_module(target, deployment))
    return configured(app, deployment, process)


def configured(app: App, deployment: Deployment, process: int | None = None) -> App:
    """The application, with the settings of the process; see `load_target`."""
    app.deployment = deployment
    configure_logging(app.settings.log, process)
    return app


def load_module(target: str | None, deployment: Deployment) -> Loaded:
    """Import what the target names.

    Args:
        target: As on the command line; None for the one that the settings name.
        deployment: The settings of the process.

    Raises:
        UsageError: There is no such target.
        Failure: It could not be imported.
    """
    if target is None:
        target = deployment.values.get("app")
        if target is None:
            raise UsageError(
                f"there is nothing to run: name a target ({FORMS}), or set 'app' in carmy.toml (or CARMY_APP) to one"
            )
    if (match := _FILE.fullmatch(target)) is not None:
        path = Path(match["file"])
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        return Loaded(_load(target, path), str(path), match["name"])
    if (match := _MODULE.fullmatch(target)) is not None:
        return Loaded(_load(target, match["module"]), match["module"], match["name"])
    raise NoTargetError(target)


def absolute_target(target: str) -> tuple[str, str | None]:
    """A loaded target as another working directory names it, and the directory that its modules are then found in.

    The directory is None if they are found without it.
    """
    if (match := _FILE.fullmatch(target)) is not None:
        name = match["name"]
        path = Path(match["file"]).absolute()
        return (str(path) if name is None else f"{path}:{name}"), None
    package = sys.modules[target.partition(":")[0].partition(".")[0]]
    places = [getattr(package, "__file__", None) or "", *getattr(package, "__path__", [])]
    here = Path.cwd()
    is_here = any(Path(place).parent in (here, here / package.__name__) for place in places if place)
    return target, str(here) if is_here else None


def refuse_nested_run() -> None:
    """Refuse a command line that a target starts while it is being loaded.

    Raises:
        Failure: A target is being loaded.
    """
    if _loading:
        raise Failure(f'{_loading[0]} calls run() while it is loaded; put that below: if __name__ == "__main__":')


def _load(target: str, what: Path | str) -> ModuleType:
    _loading.append(target)
    try:
        return _load_file(what) if isinstance(what, Path) else _load_module(what)
    except (CarmyError, UsageError, Failure):
        raise  # these explain themselves
    except Exception:  # noqa: BLE001 - the boundary around the import of the user's program
        raise Failure(f"{target} could not be loaded:\n{traceback.format_exc()}") from None
    finally:
        _loading.pop()


def _load_module(name: str) -> ModuleType:
    _search_first("")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise  # it exists, but imports something that does not
        raise UsageError(f"there is no module {missing.name}") from None


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    _search_first(str(path.parent))
    known = sys.modules.get(path.stem)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == path:
        return known  # a target before this one has imported it
    # Under its own name, so that files beside it which import it get this very module; not in place of another one.
    name = path.stem if path.stem not in sys.modules else f"carmy_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _search_first(directory: str) -> None:
    """What Python itself does for a program: look beside it first."""
    if directory not in sys.path:
        sys.path.insert(0, directory)


def named(module: ModuleType, kind: type[T]) -> dict[str, T]:
    """The objects of a kind in a module, by name."""
    return {key: value for key, value in vars(module).items() if isinstance(value, kind)}


def find(loaded: Loaded, kind: type[T], noun: str) -> T | None:
    """The object of a kind that a target names, or the only one in its module; None if it has no name and there is none.

    Args:
        loaded: The target.
        kind: The type.
        noun: What it is called in messages.

    Raises:
        UsageError: There is none of this name, or there are several.
    """
    module, where, name = loaded
    there = named(module, kind)
    if name is not None:
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, kind):
            others = f"; it has: {', '.join(there)}" if there else ""
            raise UsageError(f"{where} has no {noun} {name!r}{others}")
        return found
    if len({id(each) for each in there.values()}) > 1:
        choices = " or ".join(f"{where}:{key}" for key in there)
        raise UsageError(f"{where} has several {noun}s; choose one: {choices}")
    return next(iter(there.values()), None)


def app_in(loaded: Loaded, *, needs_tools: bool = True) -> App:
    """The application that a target names, or the only one in its module, or the conventional one over its tools.

    Args:
        loaded: The target.
        needs_tools: A module with neither an application nor a tool is an error.

    Raises:
        UsageError: There is no such application, or there are several.
    """
    found = find(loaded, App, "application")
    if found is not None:
        return found
    own = vars(loaded.module)

    def defined() -> list[ToolDeclaration]:
        return [tool for tool in declared() if getattr(inspect.unwrap(tool.function), "__globals__", None) is own]

    if needs_tools and not defined():
        raise UsageError(f"{loaded.where} defines neither an App nor a function declared with @tool")
    return conventional(defined)
