"""Answers of models that call tools, in the shape that each provider's documentation shows, whole and streamed.

All of them make the same three calls: one without fault, one without a needed argument, one of a tool that does not exist.
The tools are those of `warehouse`, whose names have dots, which no provider but MCP takes.
"""

from __future__ import annotations

import json
from typing import Any

CALLS = [
    ("inventory_lookup", {"sku": "AB-12", "warehouse": None}),
    ("inventory_reserve", {"sku": "AB-12"}),
    ("inventory_restock", {}),
]
TEXTS = [json.dumps(arguments) for _, arguments in CALLS]

# OpenAI, API reference, "Chat Completions": the completion object, and the chunk object.
OPENAI: dict[str, Any] = {
    "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",
    "object": "chat.completion",
    "created": 1741570283,
    "model": "gpt-5",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "tool_calls": [
                    {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": TEXTS[n]}}
                    for n, (name, _) in enumerate(CALLS)
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 82, "completion_tokens": 17, "total_tokens": 99},
}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": OPENAI["id"], "object": "chat.completion.chunk", "model": "gpt-5", "choices": [choice]}


OPENAI_STREAM: list[dict[str, Any]] = [
    _chunk({"role": "assistant", "content": None}),
    *(
        _chunk({"tool_calls": [{"index": n, **delta}]})
        for n, (name, _) in enumerate(CALLS)
        for delta in (
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": ""}},
            {"function": {"arguments": TEXTS[n][:1]}},
            {"function": {"arguments": TEXTS[n][1:]}},
        )
    ),
    _chunk({}, "tool_calls"),
    {"id": OPENAI["id"], "object": "chat.completion.chunk", "model": "gpt-5", "choices": [], "usage": None},
]

# OpenAI, API reference, "Responses": the response object, and "Streaming events".
_ITEMS: list[dict[str, Any]] = [
    {
        "id": f"fc_{n}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{n}",
        "name": name,
        "arguments": TEXTS[n],
    }
    for n, (name, _) in enumerate(CALLS)
]
RESPONSES: dict[str, Any] = {
    "id": "resp_67ca09c5efe0819096d0511c92b8c890096610f474011cc0",
    "object": "response",
    "created_at": 1741294021,
    "status": "completed",
    "model": "gpt-5",
    "output": [{"id": "rs_0", "type": "reasoning", "summary": []}, *_ITEMS],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
RESPONSES_STREAM: list[dict[str, Any]] = [
    {
        "type": "response.created",
        "sequence_number": 0,
        "response": {**RESPONSES, "status": "in_progress", "output": []},
    },
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"id": "rs_0", "type": "reasoning", "summary": []},
    },
    *(
        event
        for n, item in enumerate(_ITEMS)
        for event in (
            {"type": "response.output_item.added", "output_index": n + 1, "item": {**item, "arguments": ""}},
            {
                "type": "response.function_call_arguments.delta",
                "item_id": item["id"],
                "output_index": n + 1,
                "delta": item["arguments"][:1],
            },
            {
                "type": "response.function_call_arguments.delta",
                "item_id": item["id"],
                "output_index": n + 1,
                "delta": item["arguments"][1:],
            },
            {
                "type": "response.function_call_arguments.done",
                "item_id": item["id"],
                "output_index": n + 1,
                "arguments": item["arguments"],
            },
            {"type": "response.output_item.done", "output_index": n + 1, "item": item},
        )
    ),
    {"type": "response.completed", "response": RESPONSES},
]

# Anthropic, API reference, "Create a Message", and the guide "Streaming messages".
_BLOCKS: list[dict[str, Any]] = [
    {"type": "tool_use", "id": f"call_{n}", "name": name, "input": arguments}
    for n, (name, arguments) in enumerate(CALLS)
]
ANTHROPIC: dict[str, Any] = {
    "id": "msg_01Aq9w938a90dw8q",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-6",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "content": [{"type": "text", "text": "Let me look."}, *_BLOCKS],
    "usage": {"input_tokens": 472, "output_tokens": 89},
}
ANTHROPIC_STREAM: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**ANTHROPIC, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me look."}},
    {"type": "content_block_stop", "index": 0},
    *(
        event
        for n, block in enumerate(_BLOCKS)
        for event in (
            {"type": "content_block_start", "index": n + 1, "content_block": {**block, "input": {}}},
            {"type": "content_block_delta", "index": n + 1, "delta": {"type": "input_json_delta", "partial_json": ""}},
            *(
                {
                    "type": "content_block_delta",
                    "index": n + 1,
                    "delta": {"type": "input_json_delta", "partial_json": part},
                }
                for part in ((TEXTS[n][:5], TEXTS[n][5:]) if block["input"] else ())
            ),
            {"type": "content_block_stop", "index": n + 1},
        )
    ),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 89},
    },
    {"type": "message_stop"},
]

# Google, Gemini API reference, "GenerateContentResponse"; the id of a call is optional there.
_PARTS: list[dict[str, Any]] = [
    {"functionCall": {"id": f"call_{n}", "name": name, "args": arguments}} for n, (name, arguments) in enumerate(CALLS)
]


def _gemini(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 120, "totalTokenCount": 140},
        "modelVersion": "gemini-2.5-flash",
        "responseId": "abcDEF123",
    }


GEMINI = _gemini([{"text": "Let me look.", "thought": True}, *_PARTS])
GEMINI_STREAM = [_gemini([{"text": "Let me look."}]), *(_gemini([part]) for part in _PARTS), _gemini([])]

# Model Context Protocol, specification, "Tools": "Calling Tools".
MCP: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    *(
        {
            "jsonrpc": "2.0",
            "id": f"call_{n}",
            "method": "tools/call",
            "params": {"name": name.replace("_", "."), "arguments": arguments},
        }
        for n, (name, arguments) in enumerate(CALLS)
    ),
]

WHOLE: dict[str, Any] = {
    "openai": OPENAI,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "mcp": MCP,
}
STREAMED: dict[str, list[dict[str, Any]]] = {
    "openai": OPENAI_STREAM,
    "openai-responses": RESPONSES_STREAM,
    "anthropic": ANTHROPIC_STREAM,
    "gemini": GEMINI_STREAM,
    "mcp": MCP,
}
IN_WORDS: dict[str, Any] = {
    "openai": {"choices": [{"message": {"role": "assistant", "content": "Hello."}}]},
    "openai-responses": {"object": "response", "output": [{"type": "message", "role": "assistant", "content": []}]},
    "anthropic": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
    "gemini": _gemini([{"text": "Hello."}]),
    "mcp": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
}

_SAID = [
    "7",
    "invalid arguments: argument 'count' is missing",
    "no such tool; did you mean inventory_reserve or inventory_lookup?",
]
_SAID_MCP = [*_SAID[:2], "no such tool; did you mean inventory.reserve or inventory.lookup?"]
RENDERED: dict[str, list[dict[str, Any]]] = {
    "openai": [{"role": "tool", "tool_call_id": f"call_{n}", "content": said} for n, said in enumerate(_SAID)],
    "openai-responses": [
        {"type": "function_call_output", "call_id": f"call_{n}", "output": said} for n, said in enumerate(_SAID)
    ],
    "anthropic": [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_0", "content": _SAID[0]},
                {"type": "tool_result", "tool_use_id": "call_1", "content": _SAID[1], "is_error": True},
                {"type": "tool_result", "tool_use_id": "call_2", "content": _SAID[2], "is_error": True},
            ],
        }
    ],
    "gemini": [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "call_0", "name": "inventory_lookup", "response": {"output": 7}}},
                {"functionResponse": {"id": "call_1", "name": "inventory_reserve", "response": {"error": _SAID[1]}}},
                {"functionResponse": {"id": "call_2", "name": "inventory_restock", "response": {"error": _SAID[2]}}},
            ],
        }
    ],
    "mcp": [
        {
            "jsonrpc": "2.0",
            "id": f"call_{n}",
            "result": {"content": [{"type": "text", "text": said}], "isError": n > 0},
        }
        for n, said in enumerate(_SAID_MCP)
    ],
}
