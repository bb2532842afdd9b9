"""The asynchronous calls of a process group, in the order in which they were started."""

import queue
import threading
from typing import Any, Callable

from cohort.torch.work import PendingWork


class CallQueue:
    """Runs calls of one group on a thread of its own, which starts with the first of them.

        work = calls.start(lambda: group.all_reduce(x, out=x), [x], "all_reduce of group 0")
        if not calls.busy:
            group.all_reduce(y, out=y)      # no call is on its way: this thread may call the group

    Attributes:
      busy: how many calls are not over.
    """

    def __init__(self, name: str):
        self.busy = 0
        self._name = name
        self._lock = threading.Lock()
        self._queue: 'queue.SimpleQueue[Any]' = queue.SimpleQueue()
        self._thread = None

    def start(self, call: Callable[[], None], result: Any, describe: Callable[[], str]
              ) -> PendingWork:
        """Runs `call` when the calls before it are over. Does not block."""
        work = PendingWork(result, describe)
        with self._lock:
            self.busy += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f'cohort {self._name}',
                                                daemon=True)
                self._thread.start()
        self._queue.put((work, call))
        return work

    def stop(self) -> None:
        """Lets the thread end after the calls that were started."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)
                self._thread = None

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            work, call = item
            error = None
            try:
                call()
            except BaseException as caught:  # pylint: disable=broad-exception-caught
                error = caught
            with self._lock:
                self.busy -= 1
            work.finish(error)
            del item, work, call, error  # a waiting thread keeps nothing alive
