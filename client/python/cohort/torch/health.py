"""Tells whether the group of Cohort is broken, and which ranks have left it. It does not wait for
the calls of the group."""

import threading
import time
from typing import Callable, Dict, Optional, Tuple

import cohort

_PERIOD = 0.25  # seconds


class Health:
    """Looks at the group four times a second, from the first question on, on a thread of its own.

    A look takes its turn among the group's calls, so it may wait for a collective. A collective
    ends by itself if a rank is lost.
    """

    def __init__(self, name: str,
                 look: Callable[[], Tuple[Dict[int, cohort.Error], Optional[cohort.Error]]]):
        """`look` raises an error of Cohort if the group is broken. Else it returns the errors about
        the ranks that have left, by rank, and the group's if all others have. `name` is for the
        thread."""
        self._name = name
        self._look = look
        self._changed = threading.Condition()
        self._error: Optional[cohort.Error] = None
        self._left: Dict[int, cohort.Error] = {}
        self._thread: Optional[threading.Thread] = None
        self._stopped = False

    def error(self, patience: float = 0) -> Optional[cohort.Error]:
        """Returns the error that has broken the group, which names the rank that was lost. Waits
        for at most `patience` seconds until there is one; None: it is not known to be
        broken."""
        return self.error_of(None, patience)

    def error_of(self, rank: Optional[int], patience: float = 0) -> Optional[cohort.Error]:
        """As `error`; also returns the error that the rank has left, so that only calls that need
        it end."""
        with self._changed:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._run, name=f'cohort health {self._name}', daemon=True)
                self._thread.start()
            self._changed.wait_for(
                lambda: self._error is not None or rank in self._left or self._stopped, patience)
            return self._left.get(rank) or self._error  # type: ignore[arg-type]

    def stop(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self, end: float) -> None:
        """Waits for the thread, after `stop`."""
        if self._thread is not None:
            self._thread.join(max(0, end - time.monotonic()))

    def _run(self) -> None:
        while True:
            try:
                left, error = self._look()
            except cohort.Error as broken:
                left, error = self._left, broken
            with self._changed:
                if self._stopped:
                    return
                if left.keys() != self._left.keys() or error is not None:
                    self._left, self._error = left, error
                    self._changed.notify_all()
                if error is not None:
                    return
                if self._changed.wait_for(lambda: self._stopped, _PERIOD):
                    return
