"""Content: where a tool may return it, its JSON, and its recognition by transports and providers."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from carmy_engine import App, DeclarationError, Engine, ExecutionRequest, ExecutionResult, ModelCall, ModelResult, tool
from carmy_engine.content import Audio, Content, File, Image, ResourceLink, Text, content_of, has_content
from carmy_engine.providers import Provider

PIXEL = b"\x89PNG\r\n\x1a\n"
EVERYTHING: list[Content] = [
    Text("two"),
    Image(PIXEL, "image/png"),
    Audio(b"RIFF", "audio/wav"),
    File(uri="file:///a.csv", mime_type="text/csv", text="a,b"),
    File(uri="file:///a.pdf", mime_type="application/pdf", data=b"%PDF"),
    ResourceLink(uri="orders://7", name="order 7"),
]

app = App("studio")


@app.tool(effect="read")
async def chart(kind: str) -> Image:
    """Draw a chart."""
    return Image(kind.encode(), "image/png")


@app.tool(effect="read")
async def everything() -> list[str | Content]:
    """Return one of each kind."""
    return ["one", *EVERYTHING]


@app.tool(effect="read")
async def report() -> tuple[dict[str, int], Image] | None:
    """Return data beside an image."""
    return {"sold": 3}, Image(PIXEL, "image/png")


@app.tool(effect="read", max_output_bytes=64)
async def huge() -> list[Image]:
    """Return more than the limit."""
    return [Image(b"\0" * 64, "image/png")]


@app.tool(effect="read")
async def lookalike() -> dict[str, str]:
    """Return plain data in the form of content."""
    return {"type": "text", "text": "data"}


async def run(engine: Engine, name: str, **arguments: str) -> tuple[ExecutionResult, list[Content] | None]:
    result = await engine.execute(ExecutionRequest(tool=name, arguments=arguments))
    (spec,) = [spec for spec in (await engine.catalog()).tools if spec.name == name]
    return result, content_of(spec.output_schema, result)


async def test_content_travels_as_json_and_is_recognised() -> None:
    """Each kind is an object with its type, bytes in base64; the schema shows which results hold content."""
    async with app.open() as engine:
        result, found = await run(engine, "chart", kind="bars")
        assert result.data == {"type": "image", "mime_type": "image/png", "data": "YmFycw=="}
        assert found == [Image(b"bars", "image/png")]
        result, found = await run(engine, "everything")
        assert found == [Text("one"), *EVERYTHING]
        assert result.data[5] == {
            "type": "file",
            "uri": "file:///a.pdf",
            "mime_type": "application/pdf",
            "data": "JVBERg==",
        }
        assert result.data[6] == {"type": "resource_link", "uri": "orders://7", "name": "order 7"}


async def test_other_values_beside_content_are_text() -> None:
    """A list may mix content with data, which a reader of content gets as JSON."""
    async with app.open() as engine:
        result, found = await run(engine, "report")
        assert result.data == [{"sold": 3}, {"type": "image", "mime_type": "image/png", "data": "iVBORw0KGgo="}]
        assert found == [Text('{"sold":3}'), Image(PIXEL, "image/png")]


async def test_plain_data_is_never_taken_for_content() -> None:
    """The mark in the schema decides, not the form of the value."""
    async with app.open() as engine:
        result, found = await run(engine, "lookalike")
        assert result.data == {"type": "text", "text": "data"}
        assert found is None


async def test_the_limit_of_outputs_counts_bytes_of_content() -> None:
    """Content over the limit of its tool is refused like any other output."""
    async with app.open() as engine:
        result, found = await run(engine, "huge")
        assert result.error is not None
        assert result.error.code == "OUTPUT_TOO_LARGE"
        assert found is None


@pytest.mark.parametrize("returns", [dict[str, Image], list[list[Image]], list[dict[str, Text]]])
def test_content_inside_other_types_is_refused(returns: Any) -> None:
    """Transports look for content at the root and in a list; elsewhere the declaration is refused."""
    with pytest.raises(DeclarationError, match=r"stands inside another type\. Return content alone or in a list"):

        @tool(effect="read", register=False)
        def draw() -> returns: ...


@pytest.mark.parametrize("takes", [Image, list[Image], Text | None, Annotated[dict[str, File], "files"]])
def test_content_is_no_argument(takes: Any) -> None:
    """A model cannot send content, wherever it stands in a parameter."""
    with pytest.raises(DeclarationError, match="is content, which a tool can only return"):

        @tool(effect="read", register=False)
        def draw(first: takes, second: int) -> str: ...


def test_a_file_has_either_text_or_data() -> None:
    """A file without a content, or with two, cannot be made."""
    with pytest.raises(ValueError, match="either text or data"):
        File(uri="a:b")
    with pytest.raises(ValueError, match="either text or data"):
        File(uri="a:b", text="x", data=b"x")


def test_an_image_is_read_from_a_file(tmp_path: Path) -> None:
    """The type comes from the name, and a name without one is refused."""
    (tmp_path / "a.png").write_bytes(PIXEL)
    (tmp_path / "a").write_bytes(PIXEL)
    assert Image.read(tmp_path / "a.png") == Image(PIXEL, "image/png")
    assert Image.read(tmp_path / "a", "image/png") == Image(PIXEL, "image/png")
    with pytest.raises(ValueError, match="no known type"):
        Image.read(tmp_path / "a")


async def rendered(form: Any) -> tuple[Provider, Any]:
    async with app.open() as engine:
        provider = engine.provider(form)
        result = await engine.execute(ExecutionRequest(tool="everything"))
        call = ModelCall(tool="everything", arguments=None, call_id="7", name="everything")
        return provider, json.loads(json.dumps(provider.render([ModelResult(call=call, result=result)])))


WORDS = (
    "one\ntwo\n[image image/png, 8 bytes]\n[audio audio/wav, 4 bytes]\na,b\n[file file:///a.pdf, 4 bytes]\n"
    "[order 7](orders://7)"
)


async def test_openai_gets_images_where_its_format_has_them() -> None:
    """Chat Completions gets text with placeholders; Responses gets images and files as such."""
    from openai.types.responses.response_input_item_param import FunctionCallOutput
    from pydantic import TypeAdapter

    assert (await rendered("openai"))[1][0]["content"] == WORDS
    (item,) = (await rendered("openai-responses"))[1]
    TypeAdapter(FunctionCallOutput).validate_python(item)
    assert [part["type"] for part in item["output"]] == ["input_text"] * 2 + ["input_image"] + ["input_text"] * 2 + [
        "input_file",
        "input_text",
    ]
    assert item["output"][2]["image_url"] == "data:image/png;base64,iVBORw0KGgo="
    assert item["output"][5]["filename"] == "a.pdf"


async def test_anthropic_gets_images_and_documents() -> None:
    """A result is a list of blocks, which the library takes."""
    from anthropic.types import ToolResultBlockParam
    from pydantic import TypeAdapter

    (message,) = (await rendered("anthropic"))[1]
    (block,) = message["content"]
    TypeAdapter(ToolResultBlockParam).validate_python(block)
    assert [part["type"] for part in block["content"]] == ["text", "text", "image", "text", "text", "document", "text"]
    assert block["content"][2]["source"]["data"] == "iVBORw0KGgo="


async def test_gemini_gets_images_as_parts_of_the_response() -> None:
    """The text keeps a placeholder where an image stands beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.genai import types
    (content,) = (await rendered("gemini"))[1]
    response = content["parts"][0]["functionResponse"]
    assert response["response"] == {"output": WORDS}
    read = types.FunctionResponse.model_validate(response)
    assert [part.inline_data.mime_type for part in read.parts or () if part.inline_data] == ["image/png", "audio/wav"]


async def test_mcp_gets_blocks_and_no_output_schema() -> None:
    """Content is unstructured there, so that clients look for no structured output."""
    from mcp_types import CallToolResult

    provider, (answer,) = await rendered("mcp")
    CallToolResult.model_validate(answer["result"])
    assert [block["type"] for block in answer["result"]["content"]] == [
        "text", "text", "image", "audio", "resource", "resource", "resource_link",
    ]  # fmt: skip
    assert "structuredContent" not in answer["result"]
    assert not [each for each in provider.tools if each["name"] in ("chart", "everything") and "outputSchema" in each]


def test_schemas_without_the_mark_have_no_content() -> None:
    """Any schema of another server can be asked, whatever it refers to."""
    assert not has_content({"$ref": "#"})
    assert not has_content({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}})
    assert has_content({"type": "array", "items": {"x-carmy-content": "image"}})
    unread = ExecutionResult(execution_id="1", data_json=msgspec.json.encode([{"type": "image", "data": 1}]))
    assert content_of({"items": {"x-carmy-content": "image"}}, unread) == [Text('{"type":"image","data":1}')]
