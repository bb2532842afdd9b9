"""The asynchronous calls of a process group, in the order in which they were started."""

import datetime
import queue
import threading
import time
from typing import Any, Callable, List

import torch.distributed as dist

import cohort
from cohort.torch.completer import completer, yield_turn
from cohort.torch.work import PendingWork, StartedWork


class CallQueue:
    """Runs the calls of one group in order: a call that is one collective of Cohort on the thread
    of the library, and any other function on a thread of Python, which starts with the first one.
    Neither thread runs callbacks of futures: see `completer`.

        work = calls.start(lambda: group.all_reduce(x, out=x), [x], lambda: "all_reduce")
        if not calls.busy and calls.last is None:
            group.all_reduce(y, out=y)      # no call is on its way: this thread may call the group

    Attributes:
      busy: how many functions are not over.
      last: the last collective that the library runs or has run; None if it is known to be over.
    """

    def __init__(self, name: str, on_interrupt: Callable[[str, BaseException], None]):
        """
        Args:
          name: for the thread.
          on_interrupt: is told that the handler of a signal has ended a wait for a function: what
            goes on, and the exception.
        """
        self.busy = 0
        self.last: Any = None
        self._name = name
        self._on_interrupt = on_interrupt
        self._lock = threading.Lock()
        self._queue: 'queue.SimpleQueue[Any]' = queue.SimpleQueue()
        self._thread: Any = None
        self._ended: List[threading.Thread] = []

    def start_collective(self, call: Any, result: Any, explained: Callable[[Any], Any]
                         ) -> dist._Work:
        """Takes a collective that the library has started. Only while `busy` is 0.

        Args:
          call: the PendingCall of the extension module.
          result: the tensors that it writes.
          explained: makes the error that a caller gets.
        """
        self.last = call
        yield_turn()
        return StartedWork(call, result, explained, self)

    def start(self, call: Callable[[], None], result: Any, describe: Callable[[], str]
              ) -> PendingWork:
        """Runs a function when the calls before it are over. Does not block."""
        yield_turn()
        work = PendingWork(result, describe,
                           on_interrupt=lambda error: self._on_interrupt(describe(), error))
        with self._lock:
            self.busy += 1
            last, self.last = self.last, None
            self._put_locked((work, call, last))
        return work

    def follow(self, call: Any, result: Any, explained: Callable[[Any], Any]) -> PendingWork:
        """Returns work that is over soon after a collective of the library."""
        work = PendingWork(result, lambda: 'a collective')
        completer().when_over(call, lambda error: work.finish(
            explained(error) if isinstance(error, cohort.Error) else error, runs_callbacks=True))
        return work

    def is_over(self, call: Any) -> None:
        """Tells that a collective of the library is over."""
        with self._lock:
            if self.last is call:
                self.last = None

    def settle(self) -> None:
        """Waits for the collectives of the library."""
        last = self.last
        if last is not None:
            _end_of(last)
            self.is_over(last)

    def drain(self, seconds: float) -> bool:
        """Waits for the calls in flight. Returns whether they are over."""
        if not self.busy and self.last is None:
            return True
        try:
            if self.busy:
                work = self.start(lambda: None, (), lambda: 'the end')
                work.wait(datetime.timedelta(seconds=max(seconds, 1e-3)))
            else:
                last = self.last
                last.wait(seconds)
                self.is_over(last)
        except cohort.Error:
            return not self.busy and (self.last is None or _is_over(self.last))
        return True

    def join(self, end: float) -> None:
        """Waits for the thread, after `stop`."""
        for thread in self._ended:
            thread.join(max(0, end - time.monotonic()))

    def stop(self) -> None:
        """Lets the thread end after the calls that were started."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)
                self._ended.append(self._thread)
                self._thread = None

    def _put_locked(self, item: Any) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f'cohort {self._name}',
                                            daemon=True)
            self._thread.start()
        self._queue.put(item)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            work, call, before = item
            if before is not None:
                _end_of(before)
            error = None
            try:
                call()
            except BaseException as caught:  # pylint: disable=broad-exception-caught
                error = caught
            with self._lock:
                self.busy -= 1
            work.finish(error)
            del item, work, call, before, error  # a waiting thread keeps nothing alive


def _is_over(call: Any) -> bool:
    try:
        return call.test()
    except cohort.Error:
        return True


def _end_of(call: Any) -> None:
    """Waits until a collective of the library is over, however it ends."""
    try:
        call.wait(None)
    except cohort.Error:
        pass
