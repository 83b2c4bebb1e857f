"""Whatever a server sends in a provider's place: calls, nothing, or `ValueError`, and never anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carmy_engine import ToolRegistry, tool
from carmy_engine.providers import FORMATS, Provider
from tests.providers.transcripts import STREAMED, WHOLE


@tool(effect="none", name="inventory.lookup", register=False)
async def lookup(sku: str) -> int:
    """Look up."""
    return len(sku)


REGISTRY = ToolRegistry().register(lookup)


def words_in(value: Any) -> set[str]:
    """Every name and text of the transcripts: what a malformed response is likely to be made of."""
    if isinstance(value, dict):
        return {*value, *(word for part in value.values() for word in words_in(part))}
    if isinstance(value, list):
        return {word for part in value for word in words_in(part)}
    return {value} if isinstance(value, str) else set()


WORDS = st.sampled_from(
    sorted(words_in([WHOLE, STREAMED]) | {"partialArgs", "willContinue", "jsonPath", "$.a", "$.a[0]"})
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | WORDS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(WORDS, part, max_size=4),
    max_leaves=12,
)


@st.composite
def spoilt(draw: st.DrawFn, form: str) -> Any:
    """A response or chunk of the transcripts with some of its parts replaced."""

    def spoil(value: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            return draw(ANYTHING)
        if isinstance(value, dict):
            return {name: spoil(part) for name, part in value.items()}
        return [spoil(part) for part in value] if isinstance(value, list) else value

    return spoil(draw(st.sampled_from([WHOLE[form], *STREAMED[form]])))


def check(calls: Any) -> None:
    """Every call is one that can be run and answered."""
    for call in calls:
        assert isinstance(call.name, str)
        assert isinstance(call.call_id, str)
        assert call.call_id
        assert call.arguments is None or call.problem is None


@pytest.mark.timeout(600)  # with --long
@pytest.mark.parametrize("form", FORMATS)
def test_malformed_responses_are_refused_or_read(form: str) -> None:
    """Spoilt responses and streams give calls that can be answered, or `ValueError`; a stream's chunks are always taken."""
    provider: Provider = REGISTRY.provider(form)  # type: ignore[arg-type]

    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(response=spoilt(form) | ANYTHING, chunks=st.lists(spoilt(form), max_size=4))
    def whatever_comes(response: Any, chunks: list[Any]) -> None:
        stream = provider.stream()
        for chunk in chunks:
            stream.feed(chunk)
        refusals: list[str] = []
        for read in (lambda: provider.parse(response), stream.calls):
            try:
                check(read())
            except ValueError as refusal:
                refusals.append(str(refusal))
        assert all(refusal.startswith(f"{form}: ") for refusal in refusals)

    whatever_comes()
