"""Applications: what is added to them, what they refuse, and how they open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import carmy_engine
from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    ConfigurationError,
    DeclarationError,
    Effect,
    ExecutionRequest,
    MemorySink,
    MemoryStore,
    RateLimit,
    RequireToolPermission,
    Settings,
    StartupError,
    State,
    ToolRegistry,
    ToolSpec,
    tool,
)
from carmy_engine._tools.declaration import declared


class Database:
    def __init__(self, rows: int = 3) -> None:
        self.rows = rows


class Recording(Database):
    pass


@tool(effect="read", register=False)
async def count(db: State[Database], at_least: int = 0) -> int:
    """Count the rows."""
    return max(db.rows, at_least)


@tool(effect="none", name="count", register=False)
async def other_count() -> int:
    return 0


@tool(effect="none", name="not a name", register=False)
async def misnamed() -> int:
    return 0


@pytest.fixture
def _conventional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for variable in ("CARMY_CONFIG", "CARMY_NAME", "CARMY_TIMEOUT_SECS"):
        monkeypatch.delenv(variable, raising=False)


async def test_an_application_opens_as_an_engine() -> None:
    """What was added in a chain is there in the engine, and calls reach the tool with its state."""
    app = App("shop", timeout=5).add(count).state(Database(7))
    async with app.open() as engine:
        assert engine.name == "shop"
        assert engine.settings.timeout_secs == 5
        result = await engine.execute(ExecutionRequest(tool="count"))
    assert result.unwrap() == 7


async def test_declare_and_add_in_one() -> None:
    """App.tool gives the function back as it was and adds it, with annotations of the enclosing function in reach."""
    app = App("shop")

    class Local:
        pass

    @app.tool(effect="none", description="Answers")
    async def ping(local: State[Local]) -> str:
        return "pong"

    assert await ping(Local()) == "pong"
    async with app.state(Local()).open() as engine:
        assert (await engine.execute(ExecutionRequest(tool="ping"))).unwrap() == "pong"
        assert [spec.description for spec in (await engine.catalog()).tools] == ["Answers"]


async def test_every_problem_is_reported_at_once() -> None:
    """Opening lists bad names, missing state and duplicates of all tools together."""
    app = App("shop").add(count, other_count, misnamed)
    with pytest.raises(StartupError) as caught:
        async with app.open():
            pytest.fail("it opened")
    codes = [problem.code for problem in caught.value.problems if isinstance(problem, AgentError)]
    assert sorted(codes) == [
        "DUPLICATE_TOOL",
        "INVALID_TOOL_NAME",
        "MISSING_STATE",
    ]
    assert [str(problem) for problem in app.check()] == [str(problem) for problem in caught.value.problems]
    assert "test_app.py" in str(caught.value)


async def test_every_problem_of_one_tool_is_reported_at_once() -> None:
    """The problems of a tool with a bad name include everything else that it lacks: a schema, or each of its states."""

    @tool(effect="none", name="no name", register=False)
    async def unlucky(value: Unheard) -> str:  # type: ignore[name-defined]  # noqa: F821 - that is the point
        return ""

    @tool(effect="none", name="not either", register=False)
    async def unlikely(first: State[Database], second: State[Path]) -> str:
        return ""

    found = [problem.code for problem in App("shop").add(unlucky, unlikely).check() if isinstance(problem, AgentError)]
    assert found == ["INVALID_TOOL_NAME", "INVALID_SCHEMA", "INVALID_TOOL_NAME", "MISSING_STATE", "MISSING_STATE"]


class ByHand:
    """A tool made by hand with the given schema."""

    def __init__(self, name: str, **schemas: Any) -> None:
        plain: dict[str, Any] = {"input_schema": {"type": "object"}, "output_schema": {}, **schemas}
        self.spec = ToolSpec(name=name, description="Made by hand", effect=Effect.NONE, **plain)

    async def execute(self, ctx: AgentContext, input: Any) -> Any:  # noqa: A002 - the protocol's name
        return input


def test_every_problem_of_a_tool_made_by_hand_is_reported_at_once() -> None:
    """A bad name and both schemas are reported together, also when a registry makes a manifest of the tool."""
    made = ByHand("no name", input_schema={"type": "objekt"}, output_schema={"items": 3})
    name, schemas = App("shop").add(made).check()
    assert isinstance(name, AgentError)
    assert isinstance(schemas, AgentError)
    assert [name.code, schemas.code] == ["INVALID_TOOL_NAME", "INVALID_SCHEMA"]
    assert "input_schema: it is not JSON Schema 2020-12: type: must be one of" in schemas.info.message
    assert "output_schema: it is not JSON Schema 2020-12: items: must be a schema" in schemas.info.message
    with pytest.raises(AgentError, match="INVALID_SCHEMA"):
        ToolRegistry().register(ByHand("made", output_schema={"type": "objekt"})).manifest()


UNUSABLE_INPUTS: dict[str, Any] = {
    "an unknown type": {"type": "objekt"},
    "an array root": {"type": "array"},
    "no type": {},
    "a dangling reference": {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    "a remote reference": {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}},
    "a keyword of the wrong form": {"type": "object", "properties": 3},
}


@pytest.mark.parametrize("which", ["input_schema", "output_schema"])
@pytest.mark.parametrize("case", UNUSABLE_INPUTS)
async def test_an_unusable_schema_of_a_tool_made_by_hand_keeps_the_application_from_starting(
    case: str, which: str
) -> None:
    """`check` and `open` report INVALID_SCHEMA with the tool's name, and never leave the tool out."""
    schema = UNUSABLE_INPUTS[case]
    if which == "output_schema" and case in ("an array root", "no type"):
        return  # an output may be anything
    app = App("shop").add(count, ByHand("made", **{which: schema})).state(Database())
    (problem,) = app.check()
    assert isinstance(problem, AgentError)
    assert problem.code == "INVALID_SCHEMA"
    assert f"tool 'made': {which}: " in problem.info.message
    with pytest.raises(StartupError, match="INVALID_SCHEMA"):
        async with app.open():
            pytest.fail("it opened")


async def test_the_same_tool_twice_is_a_duplicate() -> None:
    """Adding a tool twice is reported, and with the places."""
    (problem,) = App("shop").add(other_count, other_count).check()
    assert "2 tools are named 'count'" in str(problem)


async def test_the_store_is_among_the_problems() -> None:
    """A store that this installation does not have is reported together with what else is wrong."""
    app = App("shop").add(count).store("paper:here")
    assert [type(problem).__name__ for problem in app.check()] == ["AgentError", "ConfigurationError"]
    with pytest.raises(StartupError, match="2 problems at start"):
        async with app.open():
            pytest.fail("it opened")


def test_nothing_wrong_is_an_empty_list() -> None:
    """An application that can start has no problems."""
    assert App("shop").add(other_count).check() == []


async def test_state_is_found_by_the_exact_type() -> None:
    """An object of a subclass satisfies State[Base] only when it is added as Base."""
    with pytest.raises(StartupError, match="MISSING_STATE"):
        async with App("shop").add(count).state(Recording()).open():
            pytest.fail("it opened")
    async with App("shop").add(count).state(Recording(), as_type=Database).open() as engine:
        assert (await engine.execute(ExecutionRequest(tool="count"))).unwrap() == 3


def test_state_that_cannot_be_meant() -> None:
    """Two objects for one type, and an object that is not of its type, are refused at once."""
    with pytest.raises(DeclarationError, match="has state of type Database already"):
        App("shop").state(Database()).state(Database())
    with pytest.raises(DeclarationError, match="str object is not a Database"):
        App("shop").state("x", as_type=Database)


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("add", print, "declared as a tool"),
        ("add", 3, "not a tool"),
        ("policy", object(), "object object is not a policy for application 'shop': it needs check"),
        ("sink", 3, "int object is not a sink"),
        ("store", 3, "int object is not a store"),
        ("authenticate", "token", "str object is not an authenticator"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_added(method: str, value: object, words: str) -> None:
    """Adding something of a wrong kind is refused at that line, saying what it needs."""
    with pytest.raises(DeclarationError, match=words):
        getattr(App("shop"), method)(value)


def test_there_is_one_authenticator_and_one_check_of_a_name() -> None:
    """A second authenticator or a second check of one name would silently replace the first, so it is refused."""
    app = App("shop").authenticate(lambda credentials: None).ready("database", lambda: True)
    with pytest.raises(DeclarationError, match="authenticator already"):
        app.authenticate(lambda credentials: None)
    with pytest.raises(DeclarationError, match="'database' already"):
        app.ready("database", lambda: True)
    with pytest.raises(DeclarationError, match="not a readiness check"):
        app.ready("cache", "soon")  # type: ignore[arg-type] # on purpose


async def test_policies_sinks_and_checks_reach_the_engine() -> None:
    """The engine asks the added policies, sends records to the added sinks, and has the added readiness checks."""
    sink = MemorySink()
    app = App("shop").add(other_count).policy(RequireToolPermission()).policy(RateLimit(100, 60)).sink(sink)
    app.store(MemoryStore()).ready("database", lambda: True)
    async with app.open() as engine:
        refused = await engine.execute(ExecutionRequest(tool="count"))
        assert list(engine.ready_checks) == ["database"]
    assert refused.error is not None
    assert refused.error.code == "FORBIDDEN"
    assert [record.error_code for record in sink.newest()] == ["FORBIDDEN"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nowhere", "store.url must be a scheme, a colon"),
        ("memory:x", "takes nothing after the colon"),
        ("paper:here", "no store 'paper' \\(it has: memory"),
    ],
)
async def test_store_urls(url: str, words: str) -> None:
    """A store's URL that means nothing here is refused when the application opens."""
    with pytest.raises(ConfigurationError, match=words):
        async with App("shop").store(url).open():
            pytest.fail("it opened")


def test_a_store_that_two_packages_have_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two packages with a store of the same name neither is chosen in silence; the same store twice is one."""
    for package, offer in (("first", "first:make"), ("second", "second:make"), ("third", "first:make")):
        information = tmp_path / package / f"{package}-1.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (information / "entry_points.txt").write_text(f"[carmy.stores]\npaper = {offer}\n")
    (tmp_path / "first" / "first.py").write_text(
        "from carmy_engine import MemoryStore\ndef make(_): return MemoryStore()"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "first"))
    monkeypatch.syspath_prepend(str(tmp_path / "third"))
    assert App("shop").store("paper:here").check() == []
    monkeypatch.syspath_prepend(str(tmp_path / "second"))
    (problem,) = App("shop").store("paper:here").check()
    assert "several packages have a store 'paper': first:make of first, first:make of third, second:make" in str(
        problem
    )


async def test_an_application_can_be_opened_again() -> None:
    """Each opening makes a fresh engine; settings given to it hold for that run alone."""
    app = App("shop").add(other_count).store("memory:")
    async with app.open(settings=Settings(name="once")) as engine:
        assert engine.name == "once"
    async with app.open() as engine:
        assert engine.name == "shop"


def test_an_explicit_application_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """App(...) looks at no file and no variable."""
    (tmp_path / "carmy.toml").write_text("this is not TOML")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CARMY_TIMEOUT_SECS", "1")
    assert App("shop").settings == Settings(name="shop")


@pytest.mark.usefixtures("_conventional")
def test_a_conventional_application_reads_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """app() takes the file and the environment, which win over what the program gives."""
    (tmp_path / "carmy.toml").write_text("name = 'file'\ntimeout_secs = 2\n")
    assert carmy_engine.app().name == "file"
    monkeypatch.setenv("CARMY_NAME", "environment")
    assert carmy_engine.app().settings == Settings(name="environment", timeout_secs=2)
    assert carmy_engine.app("code", timeout=3).settings == Settings(name="environment", timeout_secs=2)
    assert App("code", timeout=3, configure=True).settings == Settings(name="environment", timeout_secs=2)


@pytest.mark.usefixtures("_conventional")
def test_what_the_program_gives_wins_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a configured application, what the program gives counts where neither environment nor file has the key."""
    monkeypatch.setenv("CARMY_MAX_EXECUTIONS", "5")
    assert carmy_engine.app("code", timeout=3).settings == Settings(name="code", timeout_secs=3, max_executions=5)


@pytest.mark.usefixtures("_conventional")
def test_a_store_url_of_the_environment_wins_over_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """`store` with a URL is what the program gave, however late it was called."""
    monkeypatch.setenv("CARMY_STORE_URL", "sqlite:environment.db")
    assert carmy_engine.app().store("sqlite:program.db").settings.store.url == "sqlite:environment.db"


@pytest.mark.usefixtures("_conventional")
async def test_a_setting_that_a_store_object_leaves_without_effect_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store object stays, so a setting of the store from outside the program is refused, not ignored."""
    monkeypatch.setenv("CARMY_STORE_RETENTION_DAYS", "1")
    app = App("kept", configure=True).store(MemoryStore())
    (problem,) = app.check()
    assert str(problem).startswith("CARMY_STORE_RETENTION_DAYS: store.retention_days has no effect")
    with pytest.raises(ConfigurationError, match="MemoryStore object as its store"):
        async with app.open():
            raise AssertionError


@pytest.mark.usefixtures("_conventional")
def test_a_wrong_setting_stops_a_conventional_application(tmp_path: Path) -> None:
    """app() raises for settings that cannot be meant."""
    (tmp_path / "carmy.toml").write_text("nmae = 'file'\n")
    with pytest.raises(ConfigurationError, match="did you mean name"):
        carmy_engine.app()


@pytest.mark.usefixtures("_conventional")
async def test_a_conventional_application_has_every_registered_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """app() serves what was declared before or after it, each tool once, also one that was added by hand as well."""
    known = declared()
    monkeypatch.setattr("carmy_engine._app.conventional.declared", lambda: declared()[len(known) :])
    app = carmy_engine.app("shop")

    @tool(effect="none")
    async def registered() -> int:
        return 1

    @tool(effect="none")
    async def added() -> int:
        return 2

    @tool(effect="none", register=False)
    async def hidden() -> int:
        return 3

    async with app.add(added).open() as engine:
        assert [spec.name for spec in (await engine.catalog()).tools] == ["added", "registered"]
