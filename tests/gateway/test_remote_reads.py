"""The resources and prompts of a mounted executor."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from carmy_engine import AgentError, App, Catalog, ClosedError, ExecutionResult, StartupError
from carmy_engine.content import ResourceCatalog, ResourceSpec
from carmy_engine.testing import RecordingSink


def far() -> App:
    app = App("far")

    @app.resource("orders://{number}")
    async def order(number: int) -> str:
        """An order."""
        return f"far {number}"

    @app.resource("config://shop")
    async def config() -> str:
        """The configuration there."""
        return "far"

    @app.prompt(title="Greet")
    async def greet(name: str, tone: Literal["friendly", "formal"] = "formal") -> str:
        """Greet."""
        return f"{tone}: {name}"

    return app


def text_of(result: ExecutionResult) -> str:
    return result.unwrap()["contents"][0]["text"]


async def test_reads_pass_through() -> None:
    """Under the prefix, with the checks and errors of the other side, and with records here."""
    sink = RecordingSink()
    async with App("near").sink(sink).mount(far().open(), prefix="far.").open() as engine:
        listed = await engine.resources()
        assert [(spec.name, spec.uri) for spec in listed.resources] == [("far.config", "config://shop")]
        assert [spec.uri_template for spec in listed.templates] == ["orders://{number}"]
        assert [(spec.name, spec.title) for spec in (await engine.prompts()).prompts] == [("far.greet", "Greet")]
        assert text_of(await engine.read_resource("orders://7")) == "far 7"
        found = (await engine.get_prompt("far.greet", {"name": "Ana"})).data
        assert found["messages"][0]["content"]["text"] == "formal: Ana"
        assert (await engine.complete("prompt", "far.greet", "tone", "fr")).values == ("friendly",)
        for result, code in (
            (await engine.read_resource("orders://x"), "INVALID_ARGUMENTS"),
            (await engine.read_resource("orders://7/8"), "RESOURCE_NOT_FOUND"),
            (await engine.get_prompt("far.greet"), "INVALID_ARGUMENTS"),
            (await engine.get_prompt("greet"), "PROMPT_NOT_FOUND"),
        ):
            assert result.error is not None
            assert result.error.code == code
    assert [record.tool for record in sink.records][:2] == ["resource:far.order", "prompt:far.greet"]


async def test_own_resources_come_first() -> None:
    """Of two with one address, the application's own is read."""
    app = App("near").mount(far().open(), prefix="far.")

    @app.resource("config://shop")
    async def config() -> str:
        """The configuration here."""
        return "near"

    async with app.open() as engine:
        assert text_of(await engine.read_resource("config://shop")) == "near"


async def test_two_of_one_name_need_a_prefix() -> None:
    """The start fails and names both kinds."""
    app = App("near").mount(far().open()).mount(far().open())
    with pytest.raises(StartupError, match="'resource:config'"):
        async with app.open():
            pass


class Foreign:
    """An executor with resources of a form that no template matches, and with a lost connection."""

    def execute(self, request: Any) -> Any: ...

    def stream(self, request: Any) -> Any: ...

    async def catalog(self) -> Any:
        return Catalog(tools=(), document=b'{"tools":[]}', version="0")

    async def resources(self) -> ResourceCatalog:
        return ResourceCatalog(
            resources=(ResourceSpec(name="My file!", uri="file:///a"), ResourceSpec(name="My file?", uri="file:///b")),
            templates=(ResourceSpec(name="odd", uri_template="a://{x*}"),),
            document=b"",
            version="0",
        )

    async def read_resource(self, uri: str, *, timeout_ms: float | None = None) -> ExecutionResult:
        if uri == "file:///b":
            raise ClosedError("lost: secret")
        return ExecutionResult(execution_id="1", data_json=msgspec.json.encode({"contents": []}))


async def test_names_and_losses_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """Names are made safe and unique; a form that cannot be matched is left out; a loss is an error of the read."""
    async with App("near").mount(Foreign()).open() as engine:
        listed = await engine.resources()
        assert [spec.name for spec in listed.resources] == ["My_file", "My_file_2"]
        assert listed.templates == ()
        assert "left out" in caplog.text
        assert (await engine.prompts()).prompts == ()
        assert (await engine.read_resource("file:///a")).data == {"contents": []}
        with pytest.raises(AgentError, match="EXECUTOR_UNAVAILABLE") as raised:
            (await engine.read_resource("file:///b")).unwrap()
        assert "secret" not in str(raised.value)
