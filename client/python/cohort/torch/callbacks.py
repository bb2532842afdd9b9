"""The callbacks of the future of one call, and the thread that runs them."""

import contextlib
import os
import threading
from typing import Any, Callable, Optional

_LOOK_SECONDS = 0.05
# So many looks in a row find a thread asleep that waits for another thread of this program.
_LOOKS = 4
# A look counts so much while other threads run: it may wait for one of them, such as the holder of
# the interpreter's lock on a machine with more to do than processors.
_BUSY_LOOK = 0.02

_local = threading.local()


class Callbacks:
    """The functions that run when the future of a call gets its value.

    Attributes:
      depth: 0 for a call of the program, and 1 more for a call of such a callback.
      over: is set when all have ended.
    """

    def __init__(self, depth: int, earlier: Callable[[], None], on_over: Callable[['Callbacks'], None]):
        """
        Args:
          earlier: waits for the calls that were started before the future was asked for.
          on_over: is called when all have ended.
        """
        self.depth = depth
        self.over = threading.Event()
        self._earlier = earlier
        self._on_over = on_over
        self._thread: Optional[int] = None

    def run(self, function: Callable[[], Any]) -> None:
        """Calls the function, which runs the callbacks."""
        outer = getattr(_local, 'callbacks', None)
        _local.callbacks = self
        self._thread = threading.get_native_id()
        try:
            function()
        finally:
            _local.callbacks = outer
            self._thread = None
            self._on_over(self)
            self.over.set()

    def await_earlier(self) -> None:
        """Waits for the calls that were started before the future was asked for."""
        with contextlib.suppress(Exception):  # of those calls, whose waiters get it
            self._earlier()

    def await_over(self, is_in_call: Callable[[], bool]) -> None:
        """Waits until all have ended. Gives up if they sleep outside of a call: one of them may wait
        for a call that waits for them."""
        looks = 0.0
        while looks < _LOOKS and not self.over.wait(_LOOK_SECONDS):
            if is_in_call() or self._thread is None or not _sleeps(self._thread):
                looks = 0
            else:
                looks += 1 if _all_sleep() else _BUSY_LOOK


def _sleeps(thread: int) -> bool:
    try:
        with open(f'/proc/self/task/{thread}/stat', encoding='ascii') as file:
            return file.read().rpartition(')')[2].split()[0] == 'S'
    except OSError:
        return False


def _all_sleep() -> bool:
    """Whether no other thread of this program has anything to do."""
    own = threading.get_native_id()
    return all(_sleeps(int(thread)) for thread in os.listdir('/proc/self/task')
               if int(thread) != own)


def current_callbacks() -> Optional[Callbacks]:
    """The callbacks that this thread runs, or None."""
    return getattr(_local, 'callbacks', None)
