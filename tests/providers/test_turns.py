"""A model's turn: its calls read, run and answered, whole and streamed, with every provider."""

from __future__ import annotations

import copy
import json
import types
import warnings
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import App, ErrorInfo, ExecutionResult, ModelCall, ModelResult, RunContext, ToolRegistry, tool
from carmy_engine.providers import FORMATS, Provider, text_of
from carmy_engine.providers._names import NameRule, wire_names
from tests.providers.transcripts import IN_WORDS, RENDERED, STREAMED, WHOLE
from tests.toolbox.inventory import InventoryTools, refund

every_format = pytest.mark.parametrize("form", FORMATS)


def warehouse(stock: dict[str, int] | None = None) -> ToolRegistry:
    return ToolRegistry().register(InventoryTools({"AB-12": 7} if stock is None else stock), refund)


def made(form: str) -> Provider:
    return warehouse().provider(form)  # type: ignore[arg-type]


def told(calls: list[ModelCall]) -> list[tuple[str, str, Any]]:
    """What tells calls apart."""
    found = []
    for call in calls:
        assert isinstance(call.arguments, msgspec.Raw | None)
        found.append((call.tool, call.call_id, None if call.arguments is None else json.loads(bytes(call.arguments))))
    return found


@every_format
async def test_a_turn_is_read_run_and_answered(form: str) -> None:
    """Each call gets exactly one result, in words that a model can act on, under the model's own id."""
    async with App("shop").add(warehouse()).open() as engine:
        provider = engine.provider(form)  # type: ignore[arg-type]
        calls = provider.parse(WHOLE[form])
        assert [call.call_id for call in calls] == ["call_0", "call_1", "call_2"]
        assert [call.tool for call in calls][:2] == ["inventory.lookup", "inventory.reserve"]
        results = await engine.run_calls(calls)
        assert [result.call for result in results] == calls
        assert provider.render(results) == RENDERED[form]


@every_format
async def test_a_call_is_made_of_its_parts(form: str) -> None:
    """As a framework has taken them out of a response: the same calls as of the whole response, and the same texts."""
    async with App("shop").add(warehouse()).open() as engine:
        provider = engine.provider(form)  # type: ignore[arg-type]
        whole = provider.parse(WHOLE[form])
        calls = [provider.call(call.name, _text(call.arguments), call.call_id) for call in whole]
        assert told(calls) == told(whole)
        results = await engine.run_calls(calls)
        texts = [provider.text(result) for result in results]
    assert [text in json.dumps(RENDERED[form], ensure_ascii=False) for text in texts[1:]] == [True, True]
    nameless = provider.call(calls[0].name, {"sku": "AB-12"})
    assert (nameless.generated, nameless.tool) == (True, "inventory.lookup")
    assert provider.call(calls[0].name, "{").problem is not None


def _text(arguments: Any) -> str | None:
    return None if arguments is None else bytes(arguments).decode()


@every_format
def test_a_streamed_turn_is_the_same(form: str) -> None:
    """The calls that are put together from deltas are those of the whole response."""
    provider = made(form)
    stream = provider.stream()
    for chunk in STREAMED[form]:
        stream.feed(chunk)
    assert told(stream.calls()) == told(provider.parse(WHOLE[form]))


def as_object(value: Any) -> Any:
    """What a provider's library makes of JSON: objects with attributes."""
    if isinstance(value, dict):
        kept = {"args", "input"}
        return types.SimpleNamespace(
            **{snake(name): part if name in kept else as_object(part) for name, part in value.items()}
        )
    return [as_object(part) for part in value] if isinstance(value, list) else value


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "mcp"])
def test_the_objects_of_libraries_are_read_as_well(form: str) -> None:
    """Attributes count like members, for whole responses and for chunks."""
    provider = made(form)
    expected = told(provider.parse(WHOLE[form]))
    assert told(provider.parse(as_object(WHOLE[form]))) == expected
    stream = provider.stream()
    for chunk in STREAMED[form]:
        stream.feed(as_object(chunk))
    assert told(stream.calls()) == expected


def test_the_libraries_own_objects_are_read() -> None:
    """The classes of the libraries themselves, where they are installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chat = pytest.importorskip("openai.types.chat")
        responses = pytest.importorskip("openai.types.responses")
        anthropic = pytest.importorskip("anthropic.types")
        google = pytest.importorskip("google.genai.types")
        whole = {
            "openai": chat.ChatCompletion.model_validate(WHOLE["openai"]),
            "openai-responses": responses.Response.model_validate(WHOLE["openai-responses"]),
            "anthropic": anthropic.Message.model_validate(WHOLE["anthropic"]),
            "gemini": google.GenerateContentResponse.model_validate(WHOLE["gemini"]),
        }
        for form, found in whole.items():
            assert told(made(form).parse(found)) == told(made(form).parse(WHOLE[form])), form


def test_the_libraries_take_what_is_rendered() -> None:
    """The types of the libraries accept the messages with the results for a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pydantic import TypeAdapter

        chat = pytest.importorskip("openai.types.chat")
        items = pytest.importorskip("openai.types.responses.response_input_item_param")
        anthropic = pytest.importorskip("anthropic.types")
        google = pytest.importorskip("google.genai.types")
        mcp = pytest.importorskip("mcp.types")
        for message in RENDERED["openai"]:
            TypeAdapter(chat.ChatCompletionToolMessageParam).validate_python(message)
        for item in RENDERED["openai-responses"]:
            TypeAdapter(items.FunctionCallOutput).validate_python(item)
        for block in RENDERED["anthropic"][0]["content"]:
            TypeAdapter(anthropic.ToolResultBlockParam).validate_python(block)
        for content in RENDERED["gemini"]:
            google.Content.model_validate(content)
        for response in RENDERED["mcp"]:
            mcp.CallToolResult.model_validate(response["result"])


@every_format
def test_an_answer_in_words_calls_nothing(form: str) -> None:
    """A response without calls has none, and there is nothing to answer."""
    assert made(form).parse(IN_WORDS[form]) == []
    assert made(form).render([]) == []


@every_format
@pytest.mark.parametrize("wrong", ["Hello.", {}, None, 7, {"error": {"message": "overloaded"}}])
def test_what_is_no_response_is_refused(form: str, wrong: object) -> None:
    """Something else than a response, such as an error of the provider, is not taken for an answer without calls."""
    with pytest.raises(ValueError, match=form):
        made(form).parse(wrong)


def test_the_part_that_is_kept_in_a_conversation_is_read_as_well() -> None:
    """A turn can be run again from the history: the assistant's message, the list of items or blocks, the content."""
    message = WHOLE["openai"]["choices"][0]["message"]
    assert told(made("openai").parse(message)) == told(made("openai").parse(WHOLE["openai"]))
    for form, kept in (
        ("openai-responses", WHOLE["openai-responses"]["output"]),
        ("anthropic", WHOLE["anthropic"]["content"]),
        ("gemini", WHOLE["gemini"]["candidates"][0]["content"]),
        ("gemini", WHOLE["gemini"]["candidates"][0]["content"]["parts"]),
    ):
        assert told(made(form).parse(kept)) == told(made(form).parse(WHOLE[form]))


@every_format
def test_strict_nulls_are_fields_left_out(form: str) -> None:
    """A null that strict mode made the model send is dropped; one that the tool takes stays."""

    @tool(effect="none", register=False)
    def take(a: int = 1, b: int | None = 2, c: str = "null") -> None:
        """Take."""

    provider = ToolRegistry().register(take).provider(form)  # type: ignore[arg-type]
    response = json.loads(
        json.dumps(WHOLE[form]).replace("inventory_lookup", "take").replace("inventory.lookup", "take")
    )
    text = json.dumps({"a": None, "b": None, "c": "null"})
    before = json.dumps(WHOLE["openai"]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
    written = json.dumps(response).replace(before, json.dumps(text)).replace(json.loads(before), text)
    (call, *_) = provider.parse(json.loads(written))
    strict = form.startswith("openai")
    assert told([call])[0][2] == ({"b": None, "c": "null"} if strict else {"a": None, "b": None, "c": "null"})


def chat(*calls: tuple[str, str], ids: tuple[str | None, ...] = ()) -> dict[str, Any]:
    """An OpenAI message that makes these calls, of name and arguments."""
    return {
        "role": "assistant",
        "tool_calls": [
            {
                "id": ids[n] if ids else f"call_{n}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for n, (name, arguments) in enumerate(calls)
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "done: {}"),
        ("null", "done: {}"),
        ("{}", "done: {}"),
        (
            '{"a": 1',
            "invalid arguments: the arguments are not valid JSON: Input data was truncated; they may have been cut off",
        ),
        ("[1]", "invalid arguments: the arguments must be a JSON object"),
        ('"{}"', "invalid arguments: the arguments must be a JSON object"),
        ('{"a": 1}', "invalid arguments: argument 'a' is not known; there are no arguments"),
        (
            "[" * 300,
            "invalid arguments: the arguments are not valid JSON: the JSON is nested more than 128 levels deep",
        ),
        (
            '{"a": "\ud800"}',
            "invalid arguments: the arguments are not valid JSON: the arguments contain a lone surrogate",
        ),
        ('{"a": NaN}', "invalid arguments: the arguments are not valid JSON: "),
    ],
)
async def test_arguments_that_cannot_be_read_are_answered(arguments: str, said: str) -> None:
    """No arguments are none, and what cannot be read is an error for the model; the tool does not run."""
    ran = []

    @tool(effect="write", register=False)
    async def act() -> str:
        """Act."""
        ran.append(1)
        return "done: {}"

    async with App("shop").add(act).open() as engine:
        provider = engine.provider("openai")
        results = await engine.run_calls(provider.parse(chat(("act", arguments))))
        (message,) = provider.render(results)
    assert message["content"].startswith(said)
    assert len(ran) == said.startswith("done")


async def test_arguments_that_cannot_be_read_are_on_record() -> None:
    """They are a refusal like any other: in the audit trail with the ids of call and run, after what comes before arguments."""

    @tool(effect="write", register=False)
    async def act() -> None:
        """Act."""

    async with App("shop").add(act).open() as engine:
        agent = engine.bind(principal="ana", run=RunContext(run_id="run-1"))
        for view, code in ((agent, "INVALID_ARGUMENTS"), (agent.subset(), "TOOL_NOT_PERMITTED")):
            (answer,) = await view.run_calls(view.provider("openai").parse(chat(("act", '{"a": '))))
            (record,) = engine.audit.newest(1)
            assert (record.tool, record.principal, record.run_id, record.call_id) == (
                *("act", "ana", "run-1"),
                answer.call.call_id,
            )
            assert record.error_code == code
            assert record.execution_id == answer.result.execution_id
            assert answer.result.error is not None
            assert answer.result.error.code == code


async def test_calls_run_together_and_turns_are_respected() -> None:
    """Parallel-safe calls run side by side; calls that take turns run one by one, in the order of the model."""
    order: list[int] = []

    @tool(effect="read", parallel_safe=True, register=False)
    async def meet(place: int) -> int:
        """Return when all are here."""
        arrived.append(place)
        if len(arrived) == 8:
            everyone.set()
        await everyone.wait()
        return place

    @tool(effect="write", register=False)
    async def append(number: int) -> int:
        """Keep the order."""
        await trio.lowlevel.checkpoint()
        order.append(number)
        return number

    arrived: list[int] = []
    everyone = trio.Event()
    calls = [ModelCall(tool="meet", arguments={"place": n}, call_id=f"m{n}") for n in range(8)]
    calls += [ModelCall(tool="append", arguments={"number": n}, call_id=f"a{n}") for n in range(8)]
    with trio.fail_after(5):
        async with App("shop").add(meet, append).open() as engine:
            results = await engine.run_calls(calls)
            assert await engine.run_calls([]) == []
    assert [result.result.unwrap() for result in results] == [*range(8), *range(8)]
    assert order == [*range(8)]


RUN = RunContext(thread_id="order-1001", run_id="run-7", node_path="fulfil", attempt=1)


async def test_a_turn_that_is_run_again_repeats_no_effect() -> None:
    """The identity of a call is its id together with the run, so that the second time is a replay; another run is another."""
    stock = {"AB-12": 7}
    message = chat(("inventory_reserve", '{"sku": "AB-12", "count": 2}'))
    async with App("shop").add(warehouse(stock)).open() as engine:
        bound = engine.bind(run=RUN)
        provider = bound.provider("openai")
        first = await bound.run_calls(provider.parse(message))
        again = engine.bind(run=msgspec.structs.replace(RUN, attempt=2, node_path="other"))
        second = await again.run_calls(provider.parse(message))
        assert (first[0].result.replayed, second[0].result.replayed) == (False, True)
        assert provider.render(first) == provider.render(second)
        assert stock == {"AB-12": 5}
        other = engine.bind(run=msgspec.structs.replace(RUN, run_id="run-8"))
        assert not (await other.run_calls(provider.parse(message)))[0].result.replayed
        assert stock == {"AB-12": 3}
        newest = engine.audit.newest()
    assert [record.call_id for record in newest] == ["call_0"] * 3
    assert [record.attempt for record in newest] == [1, 2, 1]
    assert newest[2].request_id == "call:order-1001/run-7//call_0"


async def test_turns_are_told_apart_when_ids_are_not() -> None:
    """A model that numbers its calls from 0 in every turn needs the number of the turn; without it, it is a conflict."""
    stock = {"AB-12": 7}
    one = chat(("inventory_reserve", '{"sku": "AB-12", "count": 1}'))
    two = chat(("inventory_reserve", '{"sku": "AB-12", "count": 2}'))
    async with App("shop").add(warehouse(stock)).open() as engine:
        bound = engine.bind(run=RUN)
        provider = bound.provider("openai")
        await bound.run_calls(provider.parse(one, turn="1"))
        await bound.run_calls(provider.parse(two, turn="2"))
        assert stock == {"AB-12": 4}
        await bound.run_calls(provider.parse(one))
        (conflict,) = await bound.run_calls(provider.parse(two))
        assert conflict.result.error is not None
        assert conflict.result.error.code == "IDEMPOTENCY_CONFLICT"
        assert stock == {"AB-12": 3}


async def test_the_same_id_twice_in_one_turn_is_two_calls() -> None:
    """Calls of one turn that share an id are distinguished by their order, and each gets its own result."""
    message = chat(
        ("inventory_lookup", '{"sku": "AB-12", "warehouse": null}'),
        ("inventory_lookup", '{"sku": "CD-34", "warehouse": null}'),
        ids=("same", "same"),
    )
    async with App("shop").add(warehouse()).open() as engine:
        provider = engine.provider("openai")
        results = await engine.run_calls(provider.parse(message))
        assert [result.result.unwrap() for result in results] == [7, 0]
        again = await engine.run_calls(provider.parse(message))
    assert [result.result.replayed for result in again] == [True, True]


@pytest.mark.parametrize("form", ["openai", "gemini"])
def test_calls_without_an_id_get_one(form: str) -> None:
    """Made up from the response's id, so that the same response gives the same; at random when it has none."""

    def without_ids(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: without_ids(part)
                for name, part in value.items()
                if not (name == "id" and isinstance(part, str) and part.startswith("call_"))
            }
        return [without_ids(part) for part in value] if isinstance(value, list) else value

    response = without_ids(WHOLE[form])
    provider = made(form)
    calls = provider.parse(response)
    assert all(call.generated for call in calls)
    ids = [call.call_id for call in calls]
    assert len(set(ids)) == 3
    assert [call.call_id for call in provider.parse(response)] == ids
    nameless = copy.deepcopy(response)
    nameless.pop("id", None)
    nameless.pop("responseId", None)
    assert {call.call_id for call in provider.parse(nameless)}.isdisjoint(
        call.call_id for call in provider.parse(nameless)
    )


async def test_gemini_is_not_told_ids_that_it_did_not_give() -> None:
    """A response to a call without an id has none either: names and order say which is which."""
    content = {"role": "model", "parts": [{"functionCall": {"name": "inventory_lookup", "args": {"sku": "AB-12"}}}]}
    async with App("shop").add(warehouse()).open() as engine:
        provider = engine.provider("gemini")
        rendered = provider.render(await engine.run_calls(provider.parse(content)))
    assert rendered[0]["parts"] == [{"functionResponse": {"name": "inventory_lookup", "response": {"output": 7}}}]


@pytest.mark.parametrize("form", ["openai", "openai-responses", "anthropic"])
def test_a_stream_that_is_cut_off_gives_a_call_that_is_answered(form: str) -> None:
    """The arguments of a call that never ended cannot be read; the call is there all the same, and gets its answer."""
    provider = made(form)
    stream = provider.stream()
    cut = {"openai": 3, "openai-responses": 4, "anthropic": 8}[form]
    for chunk in STREAMED[form][:cut]:
        stream.feed(chunk)
    (call,) = stream.calls()
    assert call.problem is not None
    assert call.problem.code == "INVALID_ARGUMENTS"
    assert call.problem.message.endswith("they may have been cut off")


def test_a_stream_without_indexes_is_told_apart_by_ids() -> None:
    """Servers that leave the index out begin a new call with a new id."""
    provider = made("openai")
    stream = provider.stream()
    for chunk in STREAMED["openai"]:
        bare = copy.deepcopy(chunk)
        for choice in bare["choices"]:
            for delta in choice["delta"].get("tool_calls", ()):
                del delta["index"]
        stream.feed(bare)
    assert told(stream.calls()) == told(provider.parse(WHOLE["openai"]))


def test_a_stream_with_one_index_for_all_is_told_apart_by_ids() -> None:
    """Some servers number no calls, or say an id anew with each piece: a name under a new id begins a call, no more."""
    stream = made("openai").stream()
    for call_id, name, arguments in [
        ("a", "search", '{"query": '),
        ("other", None, '"x"}'),
        ("b", "search", "{}"),
        (None, None, " "),
    ]:
        delta = {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments}}
        stream.feed({"id": "c1", "choices": [{"delta": {"tool_calls": [delta]}}]})
    calls = stream.calls()
    assert [(call.call_id, bytes(call.arguments or b"").strip()) for call in calls] == [  # type: ignore[arg-type]
        ("a", b'{"query": "x"}'),
        ("b", b"{}"),
    ]


@pytest.mark.parametrize("given", [1, 0, -5, "1", "abc", '"x"', "", "007"])
async def test_mcp_ids_keep_their_type(given: int | str) -> None:
    """The id of a request comes back in the response as it was, number or text."""
    message = {
        "jsonrpc": "2.0",
        "id": given,
        "method": "tools/call",
        "params": {"name": "inventory.lookup", "arguments": {"sku": "AB-12"}},
    }
    async with App("shop").add(warehouse()).open() as engine:
        provider = engine.provider("mcp")
        (answer,) = provider.render(await engine.run_calls(provider.parse(message)))
    assert answer["id"] == given
    assert type(answer["id"]) is type(given)


async def test_mcp_connections_do_not_share_ids() -> None:
    """Ids begin at 1 on every connection, so the same one on another is another request."""
    stock = {"AB-12": 7}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "inventory.reserve", "arguments": {"sku": "AB-12", "count": 1}},
    }
    async with App("shop").add(warehouse(stock)).open() as engine:
        one, two = engine.provider("mcp"), engine.provider("mcp")
        for provider in (one, one, two):
            await engine.run_calls(provider.parse(message))
    assert stock == {"AB-12": 5}


async def test_mcp_has_a_place_for_objects() -> None:
    """An output that is always an object is there as such, beside its text."""

    @tool(effect="read", register=False)
    def stock() -> dict[str, int]:
        """Count."""
        return {"AB-12": 7}

    async with App("shop").add(stock).open() as engine:
        provider = engine.provider("mcp")
        assert provider.tools[0]["outputSchema"]["type"] == "object"
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "stock"}}
        (answer,) = provider.render(await engine.run_calls(provider.parse(message)))
    assert answer["result"] == {
        "content": [{"type": "text", "text": '{"AB-12":7}'}],
        "isError": False,
        "structuredContent": {"AB-12": 7},
    }


async def test_a_subset_answers_for_what_it_leaves_out() -> None:
    """A model that calls what its agent may not use gets an error, and the tool does not run."""
    async with App("shop").add(warehouse()).open() as engine:
        support = engine.subset("inventory.lookup")
        provider = support.provider("openai")
        for name in ("billing_refund", "billing.refund"):
            results = await support.run_calls(provider.parse(chat((name, '{"order": "1"}'))))
            assert provider.render(results)[0]["content"] == "not permitted for this agent"


async def test_a_cancelled_turn_cancels_its_calls() -> None:
    """A cancel of the caller's scope reaches every call of the turn."""
    ended: list[int] = []

    @tool(effect="read", parallel_safe=True, register=False)
    async def wait(number: int) -> None:
        """Wait."""
        try:
            await trio.sleep_forever()
        finally:
            ended.append(number)

    calls = [ModelCall(tool="wait", arguments={"number": n}, call_id=str(n)) for n in range(3)]
    with trio.fail_after(5):
        async with App("shop").add(wait).open() as engine, trio.open_nursery() as nursery:
            nursery.start_soon(engine.run_calls, calls)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert sorted(ended) == [0, 1, 2]


def error(code: str, message: str, **more: Any) -> ExecutionResult:
    info = ErrorInfo(code=code, message=message, category="internal", recoverable=False, retryable=False, **more)  # type: ignore[arg-type]
    return ExecutionResult(execution_id="e", error=info)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (ExecutionResult(execution_id="e", data_json=b'"a \\"text\\""'), 'a "text"'),
        (ExecutionResult(execution_id="e", data_json=b'{"a":[1,null]}'), '{"a":[1,null]}'),
        (ExecutionResult(execution_id="e", data_json=b"null"), "null"),
        (error("OUT_OF_STOCK", "only 7 x AB-12 in stock"), "the tool failed: only 7 x AB-12 in stock"),
        (error("TOOL_NOT_PERMITTED", "x"), "not permitted for this agent"),
        (error("TOOL_NOT_FOUND", "x"), "no such tool"),
        (error("TOOL_NOT_FOUND", "x", details={"near": ["a.b", "c"]}), "no such tool; did you mean A.B or C?"),
        (error("TOOL_PANIC", "the tool x failed unexpectedly", suggested_action="Look at the log."), "the tool x failed unexpectedly"),
        (error("TOOL_BUSY", "100 calls wait", retry_after=1.0), "100 calls wait. Try again in 1 seconds."),
        (error("CONFIRMATION_REQUIRED", "x needs it.", suggested_action="Ask."), "x needs it. Ask."),
    ],
)  # fmt: skip
def test_every_outcome_has_words(result: ExecutionResult, said: str) -> None:
    """Texts are sent as they are, other outputs as JSON, errors by what there is to do."""
    assert text_of(result, str.upper) == said


def test_results_can_be_rendered_by_another_provider() -> None:
    """Calls and results belong to no provider: what one has read, another one can write."""
    call = ModelCall(tool="inventory.lookup", call_id="1")
    result = ModelResult(call=call, result=ExecutionResult(execution_id="e", data_json=b"7"))
    assert made("gemini").render([result])[0]["parts"][0]["functionResponse"]["name"] == "inventory_lookup"


def test_names_are_mapped_one_to_one() -> None:
    """What fits stays; what does not gets a name that no other tool has, and long twins are not cut into one."""
    rule = NameRule(first="A-Za-z_", rest="A-Za-z0-9_-", limit=20)
    names = ["a.b", "a_b", "a-b", "1a", "x" * 20, "x" * 21, "x" * 22, "a..b", "a._b", "search"]
    found = wire_names(names, rule)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(rule.fits(name) for name in found.values())
    assert {name: found[name] for name in ("a_b", "a-b", "x" * 20, "search")} == {
        "a_b": "a_b",
        "a-b": "a-b",
        "x" * 20: "x" * 20,
        "search": "search",
    }
    assert found["1a"] == "_1a"
    assert found["a.b"].startswith("a_b_")
    assert wire_names(["a.b"], rule) == {"a.b": "a_b"}
