"""A thread that does something every so often, while something else goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)


class Repeating:
    """Calls a function at once and then every so often, until the block or `stop` ends it.

    Args:
        fn: what is called, in a thread that ends with the process.
        every: seconds between two calls.
        name: of the thread.
        patience: seconds to wait at the end for a call that goes on; without end by default.
    """

    def __init__(
        self, fn: Callable[[], None], *, every: float, name: str, patience: float | None = None
    ) -> None:
        self._fn = fn
        self._every = every
        self._patience = patience
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)

    def start(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def call_off(self) -> None:
        """Let there be no further call; for the function itself."""
        self._stop.set()

    def stop(self) -> None:
        """Let there be no further call, and wait for the one that goes on."""
        self.call_off()
        self._thread.join(timeout=self._patience)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _repeat(self) -> None:
        while not self._stop.is_set():
            try:
                self._fn()
            except Exception:  # the next call may well succeed, and somebody relies on it
                _log.exception("%s failed once and goes on", self._thread.name)
            self._stop.wait(self._every)
