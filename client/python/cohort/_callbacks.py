"""The thread that runs the callbacks of pending calls, and the logger of errors that no caller
sees."""

import logging
import os
import select
import threading
from typing import Any, Callable, Dict, Optional, Tuple

from cohort import _core

# Errors that a thread of the library meets.
logger = logging.getLogger('cohort')


class _Callbacks:
    """Callbacks that wait for the ends of their calls, and their thread."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._completions = _core.create_completions()
        self._lock = threading.Lock()
        self._waiting: Dict[int, Tuple[Any, Callable]] = {}
        threading.Thread(target=self._run, name='cohort-callbacks', daemon=True).start()

    def add(self, call: Any, start_wait: Callable, function: Callable) -> None:
        """Calls function(call) at the call's end."""
        with self._lock:
            self._waiting[start_wait(self._completions)] = call, function

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._completions.fileno(), select.POLLIN)
        while True:
            poll.poll()
            for number, _, _ in self._completions.take():
                with self._lock:
                    call, function = self._waiting.pop(number)
                try:
                    function(call)
                except BaseException:  # pylint: disable=broad-exception-caught  # sys.exit, too
                    logger.exception('a callback of %r raised an exception', call)
                del call, function


_lock = threading.Lock()
_callbacks: Optional[_Callbacks] = None


def add(call: Any, start_wait: Callable, function: Callable) -> None:
    """Calls function(call) on the thread of callbacks when the call has ended."""
    global _callbacks  # pylint: disable=global-statement
    with _lock:
        if _callbacks is None or _callbacks.process != os.getpid():
            _callbacks = _Callbacks()
        callbacks = _callbacks
    callbacks.add(call, start_wait, function)
