"""Resources, prompts, completion, content, logging, changes, and what tools ask of clients, on a connection in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import App
from tests.mcp.inside import MODERN, Client, Ran, connected
from tests.mcp.suite.everything import app as everything

OFFERS: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
ANSWERS: dict[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ana", "color": "red", "context": "cats"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///srv", "name": "srv"}]},
}
VERSIONS = ["2025-11-25", MODERN]


def answer_to(request: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The answer of a client; of a form only the values that it asks for."""
    answer = {**ANSWERS, **values}[request["method"]]
    if "content" in answer and request["method"] == "elicitation/create":
        asked = request["params"]["requestedSchema"]["properties"]
        answer = {**answer, "content": {key: value for key, value in answer["content"].items() if key in asked}}
    return answer


async def outcome(client: Client, method: str, values: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """The outcome of a request, whose questions are answered on either wire; other notifications are skipped."""
    sent = await client.request(method, **params)
    while True:
        message = await client.receive()
        if "method" in message and "id" in message:
            await client.send({"jsonrpc": "2.0", "id": message["id"], "result": answer_to(message, values or {})})
        elif message.get("id") == sent:
            break
    if "error" in message:
        return message["error"]
    result: dict[str, Any] = message["result"]
    if result.get("resultType") != "input_required":
        return result
    answers = {key: answer_to(request, values or {}) for key, request in result["inputRequests"].items()}
    again = {"requestState": result["requestState"], "inputResponses": answers}
    return await outcome(client, method, values, **{**params, **again})


@pytest.mark.parametrize("version", VERSIONS)
async def test_resources(version: str) -> None:
    """Fixed resources and templates are listed and read; an unknown address has the code of its version."""
    async with connected(Ran(), app=everything, version=version) as client:
        listed = await client.outcome("resources/list")
        assert "test://static-text" in {resource["uri"] for resource in listed["resources"]}
        assert (listed.get("cacheScope") == "private") == (version == MODERN)
        templates = (await client.outcome("resources/templates/list"))["resourceTemplates"]
        assert [template["uriTemplate"] for template in templates] == ["test://template/{id}/data"]
        (part,) = (await client.outcome("resources/read", uri="test://template/7/data"))["contents"]
        assert (part["uri"], part["mimeType"]) == ("test://template/7/data", "application/json")
        (binary,) = (await client.outcome("resources/read", uri="test://static-binary"))["contents"]
        assert binary["blob"].startswith("iVBOR")
        unknown = await client.outcome("resources/read", uri="test://nothing")
        assert unknown["code"] == (-32602 if version == MODERN else -32002)
        assert unknown["data"]["uri"] == "test://nothing"


@pytest.mark.parametrize("version", VERSIONS)
async def test_prompts_and_completion(version: str) -> None:
    """Prompts are listed with their arguments, rendered and completed; missing arguments and unknown names are refused."""
    async with connected(Ran(), app=everything, version=version) as client:
        prompts = {prompt["name"]: prompt for prompt in (await client.outcome("prompts/list"))["prompts"]}
        arguments = prompts["test_prompt_with_arguments"]["arguments"]
        assert arguments[0] == {"name": "arg1", "description": "First test argument.", "required": True}
        given = {"arg1": "x", "arg2": "y"}
        found = await client.outcome("prompts/get", name="test_prompt_with_arguments", arguments=given)
        assert found["messages"][0]["content"]["text"] == "Prompt with arguments: arg1='x', arg2='y'"
        image = (await client.outcome("prompts/get", name="test_prompt_with_image"))["messages"][0]
        assert (image["role"], image["content"]["mimeType"]) == ("user", "image/png")
        assert (await client.outcome("prompts/get", name="test_prompt_with_arguments"))["code"] == -32602
        assert (await client.outcome("prompts/get", name="nothing"))["code"] == -32602
        ref = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
        completed = await client.outcome("completion/complete", ref=ref, argument={"name": "arg1", "value": "par"})
        assert completed["completion"] == {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}


async def test_content_by_version() -> None:
    """Content becomes blocks without structured content; older clients get words for kinds that they do not have."""
    async with connected(Ran(), app=everything) as client:
        result = await client.result("test_multiple_content_types", {})
        assert [block["type"] for block in result["content"]] == ["text", "image", "resource"]
        assert "structuredContent" not in result
        listed = {tool["name"]: tool for tool in (await client.outcome("tools/list"))["tools"]}
        assert "outputSchema" not in listed["test_image_content"]
        assert (await client.result("test_audio_content", {}))["content"][0]["type"] == "audio"
    async with connected(Ran(), app=everything, version="2024-11-05") as client:
        assert (await client.result("test_audio_content", {}))["content"][0]["type"] == "text"


async def test_the_level_of_logging() -> None:
    """A client gets lines from the level that it has set on; since 2026-07-28 only those of requests that ask for them."""
    async with connected(Ran(), app=everything) as client:
        for level, expected in (("error", []), ("debug", ["a line"])):
            assert await client.outcome("logging/setLevel", level=level) == {}
            sent = await client.call("test_logging_tool", {})
            lines = []
            while (message := await client.receive()).get("id") != sent:
                lines.append(message["params"]["data"])
            assert lines == expected
        assert (await client.outcome("logging/setLevel", level="loud"))["code"] == -32602
    async with connected(Ran(), app=everything, version=MODERN) as client:
        assert (await client.result("test_logging_tool", {}))["isError"] is False
        meta = {"io.modelcontextprotocol/logLevel": "info"}
        sent = await client.call("test_logging_tool", {}, meta=meta)
        assert (await client.receive())["params"] == {"level": "info", "logger": "tool", "data": "a line"}
        assert (await client.receive())["id"] == sent


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_tools_and_prompts_ask(version: str) -> None:
    """A tool gets what it asks of the person, the model and the roots, one after the other or together, and so does a prompt."""
    async with connected(Ran(), app=everything, capabilities=OFFERS, version=version) as client:
        for tool, text in (
            ("elicitation", "Hello, Ana!"),
            ("sampling", "Paris"),
            ("list_roots", "file:///srv"),
            ("multi_round", "Ana likes red"),
            ("multiple_inputs", "all of them"),
        ):
            found = await outcome(client, "tools/call", name=f"test_input_required_result_{tool}", arguments={})
            assert found["content"][0]["text"] == text
        prompt = await outcome(client, "prompts/get", name="test_input_required_result_prompt")
        assert prompt["messages"][0]["content"]["text"] == "About cats"


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_that_do_not_fit(version: str) -> None:
    """A declined question, and an answer of another shape, are errors of the call that a model can read."""
    name = "test_input_required_result_elicitation"
    async with connected(Ran(), app=everything, capabilities=OFFERS, version=version) as client:
        for bad, code in (
            ({"action": "decline"}, "ANSWER_DECLINED"),
            ({"action": "accept", "content": {"name": 5}}, "INVALID_ANSWER"),
            ({"nonsense": True}, "INVALID_ANSWER"),
        ):
            found = await outcome(client, "tools/call", {"elicitation/create": bad}, name=name, arguments={})
            assert found["_meta"]["carmy/error"]["code"] == code


async def test_the_state_of_a_question() -> None:
    """It counts for the same call of the same caller, once; without an answer the question comes again."""
    name = "test_input_required_result_elicitation"
    async with connected(Ran(), app=everything, capabilities=OFFERS, version=MODERN) as client:
        asked = await client.result(name, {})
        ((key, _),) = asked["inputRequests"].items()
        again = await client.result(name, {}, requestState=asked["requestState"], inputResponses={"else": {}})
        assert again["inputRequests"].keys() == {key}
        assert again["requestState"] != asked["requestState"]
        assert (await client.result(name, {}, requestState=asked["requestState"]))["code"] == -32602
        other = "test_input_required_result_request_state"
        assert (await client.result(other, {}, requestState=again["requestState"]))["code"] == -32602
        asked = await client.result(name, {})
        client.caller = client.engine.bind(principal="ben")
        assert (await client.result(name, {}, requestState=asked["requestState"]))["code"] == -32602


@pytest.mark.parametrize("version", VERSIONS)
async def test_clients_that_offer_nothing(version: str) -> None:
    """A tool that needs a model fails; since 2026-07-28 with the error that names the capability."""
    async with connected(Ran(), app=everything, version=version) as client:
        found = await client.result("test_missing_capability", {})
        if version == MODERN:
            assert (found["code"], found["data"]) == (-32021, {"requiredCapabilities": {"sampling": {}}})
        else:
            assert found["_meta"]["carmy/error"]["code"] == "CLIENT_UNAVAILABLE"


async def test_leaving_a_question(autojump_clock: trio.testing.MockClock) -> None:
    """A client that does not come back with an answer leaves nothing behind when the time of the call is over."""
    async with connected(Ran(), app=everything, capabilities=OFFERS, version=MODERN) as client:
        asked = await client.result("test_input_required_result_elicitation", {})
        assert client.engine.statistics().running == 1
        await trio.sleep(61)
        assert client.engine.statistics().running == 0
        again = {"requestState": asked["requestState"], "inputResponses": {}}
        late = await client.result("test_input_required_result_elicitation", {}, **again)
        assert late["_meta"]["carmy/error"]["code"] == "TIMEOUT"


def switched() -> App:
    app = App("switched")

    @app.tool(effect="none")
    async def one() -> None:
        """Do nothing."""

    @app.resource("test://one")
    async def first() -> str:
        """Read it."""
        return "1"

    return app


async def test_changes_in_a_session() -> None:
    """A client is notified when a list changes, and of resources that it has subscribed to."""
    async with connected(Ran(), app=switched()) as client:
        assert await client.outcome("resources/subscribe", uri="test://one") == {}
        client.engine.disable("one")
        assert (await client.receive())["method"] == "notifications/tools/list_changed"
        assert (await client.outcome("tools/list"))["tools"] == []
        client.engine.notify_resource("test://one")
        updated = await client.receive()
        assert (updated["method"], updated["params"]) == ("notifications/resources/updated", {"uri": "test://one"})
        assert await client.outcome("resources/unsubscribe", uri="test://one") == {}
        client.engine.notify_resource("test://one")
        assert (await client.outcome("resources/subscribe", uri="test://other"))["code"] == -32600


async def test_changes_that_are_listened_to() -> None:
    """Since 2026-07-28 a request names the changes; it gets these alone, with its id, and ends when it is cancelled."""
    async with connected(Ran(), app=switched(), version=MODERN) as client:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["test://one"]}
        sent = await client.request("subscriptions/listen", notifications=wanted)
        acknowledged = await client.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == wanted
        client.engine.disable("resource:first")  # which it has not asked for
        client.engine.disable("one")
        changed = await client.receive()
        assert changed["method"] == "notifications/tools/list_changed"
        assert changed["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": sent}
        await client.cancel(sent)
        assert (await client.outcome("tools/list"))["tools"] == []
        client.engine.enable("one")
        assert len((await client.outcome("tools/list"))["tools"]) == 1
