"""A request to stop is heard wherever it arrives."""

from __future__ import annotations

import gc
import os
import signal
import time
from typing import Any

import pytest

from ubp2.signals import CHECKPOINTED, left_early


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_in_a_collection_of_garbage_is_not_lost(number: int, kind: type[BaseException]) -> None:
    """jax has a callback of the collector, in which Python reports an exception and forgets it."""
    sent = False

    def callback(*_: Any) -> None:
        nonlocal sent
        if not sent:
            sent = True
            os.kill(os.getpid(), number)

    gc.callbacks.append(callback)
    try:
        with pytest.raises(kind) as error, left_early():
            gc.collect()
            for _ in range(1000):
                time.sleep(0.01)
    finally:
        gc.callbacks.remove(callback)
    assert sent
    if kind is SystemExit:
        assert error.value.args == (CHECKPOINTED,)


def test_a_request_that_comes_out_as_another_error_is_still_one() -> None:
    """A compiled module that is interrupted while it is imported raises an ImportError."""
    with pytest.raises(KeyboardInterrupt), left_early():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            raise ImportError("Encountered an error while initializing the extension.") from None
