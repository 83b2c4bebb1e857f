"""What a boundary lets through, and what it keeps."""

from __future__ import annotations

import logging
import signal

import pytest
import trio

from carmy_engine.transport import contain, raise_own
from tests.boundary.escapes import ESCAPES, foreign

log = logging.getLogger("carmy")


@pytest.mark.parametrize("escape", ESCAPES)
async def test_a_failure_is_kept(escape: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever was called and raises, no scope round the boundary is cancelled: nothing leaves it, and the log has it once."""
    error = ESCAPES[escape]()
    raise_own(error)
    contain(error, log, "it failed")
    (record,) = caplog.records
    assert record.getMessage() == "it failed"
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "it failed" in caplog.text  # the handler could write it


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_the_cancel_of_a_scope_round_it_passes(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    """A cancel that a scope further out has asked for goes on to that scope, alone or in groups, and is not logged."""
    for boundary in (raise_own, _contain):
        with trio.CancelScope() as outer, trio.CancelScope() as scope:
            outer.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                boundary(_grouped(error, depth))
            pytest.fail("it was kept")
        assert outer.cancelled_caught
        assert not scope.cancelled_caught
    assert caplog.records == []


async def test_a_failure_beside_the_cancel_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Of a group that holds both, the log gets the failure and the scope gets its cancel."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            contain(BaseExceptionGroup("", [BaseExceptionGroup("", [SystemExit(), error])]), log, "it failed")
    assert scope.cancelled_caught
    (record,) = caplog.records
    assert "SystemExit" in caplog.text
    assert "Cancelled" not in str(record.exc_info)


async def test_the_cancel_of_a_scope_inside_is_a_failure() -> None:
    """A cancel that no scope round the boundary has asked for is kept, also where a shield stands before one that is cancelled."""
    with trio.CancelScope() as outer:
        outer.cancel()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
            raise_own(foreign())
    raise_own(foreign())


@pytest.mark.parametrize("held", [False, True])
def test_a_ctrl_c_passes(*, held: bool) -> None:
    """A Ctrl-C leaves the boundary, whether it comes at once or, where trio holds it back, at the next checkpoint."""

    async def interrupted() -> None:
        try:
            if held:
                _raise_protected()
                await trio.sleep_forever()
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            contain(error, log, "it failed")

    with pytest.raises(KeyboardInterrupt):
        trio.run(interrupted)


@trio.lowlevel.enable_ki_protection
def _raise_protected() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_coroutine_that_is_thrown_away_ends() -> None:
    """Where no loop runs any more, ``GeneratorExit`` is the interpreter's, and not a failure."""
    with pytest.raises(GeneratorExit):
        raise_own(GeneratorExit())


def _grouped(error: BaseException, depth: int) -> BaseException:
    return BaseExceptionGroup("", [_grouped(error, depth - 1)]) if depth else error


def _contain(error: BaseException) -> None:
    contain(error, log, "it failed")
