"""The examples of agents run, and print what the document shows."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "agent_frameworks"

ASKED = "{'type': 'confirmation', 'tool': 'clear_cart', 'arguments': {}}"
PRINTED = {
    "langgraph_agent": (
        "langgraph",
        [
            f"asked: {ASKED}",
            "human: Find a mouse, and clear my cart.",
            "ai: ",
            'tool: ["quiet mouse","loud mouse"]',
            "ai: ",
            "tool: the cart is empty",
            "ai: Done.",
        ],
    ),
    "openai_agent": ("agents", ["asked: clear_cart", "agent: Done."]),
    "pydantic_ai_agent": ("pydantic_ai", ["asked: clear_cart", "agent: Done."]),
    "llama_index_agent": (
        "llama_index",
        ['search: ["quiet mouse","loud mouse"]', "clear_cart: the cart is empty", "agent: Done."],
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str) -> None:
    """Without a network, under a scripted model."""
    framework, printed = PRINTED[name]
    if importlib.util.find_spec(framework) is None:
        pytest.skip("make test-agents installs the frameworks")
    done = subprocess.run(
        [sys.executable, f"{name}.py"], cwd=EXAMPLES, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == printed
