"""Looks at calls that wait: one thread for the process, which sleeps while no call waits."""

import os
import threading
from typing import Any, Optional, Set

_PERIOD = 0.1  # seconds


class Timer:
    """Calls `look()` of each object ten times a second, until that returns False.

    `look` must not block. It runs on the thread of the timer, and later on no other one.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: Set[Any] = set()
        self._thread: Optional[threading.Thread] = None
        self._stopped = False

    def watch(self, watched: Any) -> None:
        """Begins to look at an object. Any thread may call it."""
        with self._changed:
            if self._stopped:
                return
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name='cohort timer', daemon=True)
                self._thread.start()
            elif len(self._watched) == 1:
                self._changed.notify()

    def stop(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._stopped = True
            self._watched.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched or self._stopped)
                self._changed.wait_for(lambda: self._stopped, _PERIOD)
                if self._stopped:
                    return
                watched = list(self._watched)
            over = {each for each in watched if not each.look()}
            with self._changed:
                self._watched -= over
            del watched, over


_timer = Timer()


def watch(watched: Any) -> None:
    """Lets the process's timer look at an object."""
    _timer.watch(watched)


def stop() -> None:
    """Ends the process's timer: the process ends."""
    _timer.stop()


def _forget() -> None:
    global _timer  # pylint: disable=global-statement
    _timer = Timer()


os.register_at_fork(after_in_child=_forget)
