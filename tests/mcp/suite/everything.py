"""The application that the official conformance suite describes: ``carmy mcp tests/mcp/suite/everything.py --http``."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import trio
from pydantic import Field

from carmy_engine import AgentContext, AgentError, App, Effect, ToolSpec
from carmy_engine.content import Audio, Content, File, Image, Message, Text

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")

app = App("everything", version="1.0", title="Everything", instructions="Call what the suite calls.", timeout=60)


@app.tool(effect="none", parallel_safe=True)
async def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@app.tool(effect="none", parallel_safe=True)
async def test_image_content() -> Image:
    """Return an image."""
    return Image(PNG, "image/png")


@app.tool(effect="none", parallel_safe=True)
async def test_audio_content() -> Audio:
    """Return a recording."""
    return Audio(WAV, "audio/wav")


@app.tool(effect="none", parallel_safe=True)
async def test_embedded_resource() -> File:
    """Return a file."""
    return File(uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content.")


@app.tool(effect="none", parallel_safe=True)
async def test_multiple_content_types() -> list[Content]:
    """Return several pieces of content."""
    file = File(uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data","value":123}')
    return [Text("Multiple content types test:"), Image(PNG, "image/png"), file]


@app.tool(effect="none", parallel_safe=True)
async def test_tool_with_logging(ctx: AgentContext) -> str:
    """Log while it runs."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", line)
        await trio.sleep(0.05)
    return "logged"


@app.tool(effect="none", parallel_safe=True)
async def test_logging_tool(ctx: AgentContext) -> str:
    """Log once."""
    ctx.log("info", "a line")
    return "logged"


@app.tool(effect="none", parallel_safe=True)
async def test_tool_with_progress(ctx: AgentContext) -> str:
    """Report while it runs."""
    for step in (0, 50, 100):
        ctx.progress.report(step, 100, f"Completed step {step} of 100")
        await trio.sleep(0.05)
    return "reported"


@app.tool(effect="none", parallel_safe=True)
async def test_error_handling() -> str:
    """Fail."""
    raise AgentError("FAILED", "This tool intentionally returns an error for testing", "internal")


@app.tool(effect="none", parallel_safe=True)
async def test_reconnection(ctx: AgentContext) -> str:
    """Take a moment."""
    await trio.sleep(0.1)
    return "Reconnection test completed successfully"


@app.tool(effect="none", parallel_safe=True)
async def test_sampling(ctx: AgentContext, prompt: str) -> str:
    """Ask the client's model."""
    found = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {found.text}"


@dataclass
class Person:
    username: Annotated[str, Field(description="User's response")]
    email: Annotated[str, Field(description="User's email address")]


@app.tool(effect="none", parallel_safe=True)
async def test_elicitation(ctx: AgentContext, message: str) -> str:
    """Ask the person."""
    found = await ctx.ask(Person, message)
    return f"User response: action=accept, content={found}"


@dataclass
class Defaults:
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@app.tool(effect="none", parallel_safe=True)
async def test_elicitation_sep1034_defaults(ctx: AgentContext) -> str:
    """Ask with defaults."""
    return f"Elicitation completed: action=accept, content={await ctx.ask(Defaults, 'Check the defaults.')}"


def _titled(*titles: str) -> list[Any]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


ONE = Field(json_schema_extra={"oneOf": _titled("First Option", "Second Option", "Third Option")})
MANY = Field(json_schema_extra={"items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")}})
LEGACY = Field(json_schema_extra={"enumNames": ["Option One", "Option Two", "Option Three"]})


@dataclass
class Choices:
    untitledSingle: Literal["option1", "option2", "option3"]
    titledSingle: Annotated[str, ONE]
    legacyEnum: Annotated[Literal["opt1", "opt2", "opt3"], LEGACY]
    untitledMulti: list[Literal["option1", "option2", "option3"]] = field(default_factory=list)
    titledMulti: Annotated[list[str], MANY] = field(default_factory=list)


@app.tool(effect="none", parallel_safe=True)
async def test_elicitation_sep1330_enums(ctx: AgentContext) -> str:
    """Ask for choices."""
    return f"Elicitation completed: action=accept, content={await ctx.ask(Choices, 'Choose.')}"


class JsonSchemaTool:
    """A tool with the schema that the suite compares."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            name="json_schema_2020_12_tool",
            description="Tool with JSON Schema 2020-12 features",
            input_schema={
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": {
                    "address": {
                        "$anchor": "addressDef",
                        "type": "object",
                        "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                    }
                },
                "properties": {
                    "name": {"type": "string"},
                    "address": {"$ref": "#/$defs/address"},
                    "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                    "phone": {"type": "string"},
                    "email": {"type": "string"},
                },
                "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
                "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
                "then": {"required": ["phone"]},
                "else": {"required": ["email"]},
                "additionalProperties": False,
            },
            output_schema={},
            effect=Effect.NONE,
        )

    async def execute(self, ctx: AgentContext, input: Any) -> str:  # noqa: A002 - the interface
        return "ok"


app.add(JsonSchemaTool())


@app.tool(effect="none", parallel_safe=True)
async def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Have headers that repeat arguments."""
    return region


# Since 2026-07-28 the same questions come back as the answer of a call.


@dataclass
class Name:
    name: str


@dataclass
class Topic:
    context: str


@dataclass
class Ok:
    ok: bool


@dataclass
class Color:
    color: str


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_elicitation(ctx: AgentContext) -> str:
    """Ask the person."""
    return f"Hello, {(await ctx.ask(Name, 'What is your name?')).name}!"


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_sampling(ctx: AgentContext) -> str:
    """Ask the model."""
    return (await ctx.sample("What is the capital of France?", max_tokens=100)).text


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_list_roots(ctx: AgentContext) -> str:
    """Ask for the roots."""
    return ", ".join(root.uri for root in await ctx.roots())


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_request_state(ctx: AgentContext) -> str:
    """Ask once."""
    await ctx.ask(Ok, "Please confirm")
    return "state-ok"


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_tampered_state(ctx: AgentContext) -> str:
    """Ask once."""
    await ctx.ask(Ok, "Please confirm")
    return "state-ok"


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_multiple_inputs(ctx: AgentContext) -> str:
    """Ask three things at one time."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ctx.ask, Name, "What is your name?")
        nursery.start_soon(ctx.sample, "Greet.")
        nursery.start_soon(ctx.roots)
    return "all of them"


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_multi_round(ctx: AgentContext) -> str:
    """Ask twice."""
    name = (await ctx.ask(Name, "Step 1: What is your name?")).name
    return f"{name} likes {(await ctx.ask(Color, 'Step 2: What is your favorite color?')).color}"


@app.tool(effect="none", parallel_safe=True)
async def test_input_required_result_capabilities(ctx: AgentContext) -> str:
    """Ask for what the client offers."""
    async with trio.open_nursery() as nursery:
        if ctx.can_ask:
            nursery.start_soon(ctx.ask, Name, "What is your name?")
        if ctx.can_sample:
            nursery.start_soon(ctx.sample, "Greet.")
        if ctx.has_roots:
            nursery.start_soon(ctx.roots)
    return "all that there is"


@app.tool(effect="none", parallel_safe=True)
async def test_streaming_elicitation(ctx: AgentContext) -> str:
    """Report, and ask."""
    ctx.progress.report(1, 2)
    return (await ctx.ask(Name, "What is your name?")).name


@app.tool(effect="none", parallel_safe=True)
async def test_missing_capability(ctx: AgentContext) -> str:
    """Need a model."""
    return (await ctx.sample("Greet.")).text


@app.prompt
async def test_input_required_result_prompt(ctx: AgentContext) -> str:
    """A prompt that asks."""
    return f"About {(await ctx.ask(Topic, 'What is it about?')).context}"


@app.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@app.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """An image."""
    return PNG


@app.resource("test://example-resource", mime_type="text/plain")
async def example_resource() -> str:
    """A text."""
    return "An example."


@app.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text that changes."""
    return "Watched."


@app.resource("test://template/{id}/data", mime_type="application/json")
async def template(id: str) -> dict[str, Any]:  # noqa: A002 - the suite's
    """Data by id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@app.prompt
async def test_simple_prompt() -> str:
    """A prompt."""
    return "This is a simple prompt for testing."


def _completed(argument: str, value: str, given: Any) -> list[str]:
    return ["paris", "park", "party"]


@app.prompt(completion=_completed)
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@app.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:
    """A prompt with a file."""
    file = File(uri=resourceUri, mime_type="text/plain", text="Embedded resource content for testing.")
    return [Message(file), Message(Text("Please process the embedded resource above."))]


@app.prompt
async def test_prompt_with_image() -> list[Message]:
    """A prompt with an image."""
    return [Message(Image(PNG, "image/png")), Message(Text("Please analyze the image above."))]


if __name__ == "__main__":
    app.run()
