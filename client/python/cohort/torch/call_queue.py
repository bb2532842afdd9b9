"""The asynchronous calls of a process group, in the order in which they were started."""

import contextlib
import datetime
import queue
import threading
import time
import weakref
from typing import Any, Callable, List, Optional

import torch.distributed as dist

import cohort
from cohort.torch.callbacks import Callbacks, current_callbacks
from cohort.torch.completer import completer, yield_turn
from cohort.torch.work import PendingWork, StartedWork


class CallQueue:
    """Runs the calls of one group in order: a call that is one collective of Cohort on the thread
    of the library, and any other function on a thread of Python, which starts with the first one.
    Neither thread runs callbacks of futures: see `completer`.

        calls = calls.here()
        work = calls.start(lambda: group.all_reduce(x, out=x), [x], lambda: "all_reduce")
        if not calls.busy and calls.last is None:
            group.all_reduce(y, out=y)      # no call is on its way: this thread may call the group

    All ranks make the same calls in the same order, also in callbacks, which run at another time on
    each rank. So a call waits for the callbacks of earlier calls whose futures were asked for, and
    the calls of callbacks have a queue of their own.

    Attributes:
      busy: how many functions, and callbacks of calls, are not over.
      last: the last collective that the library runs or has run; None if it is known to be over.
      blocks: whether a thread is in a blocking call.
    """

    def __init__(self, name: str, on_interrupt: Callable[[str, BaseException], None],
                 parent: Optional['CallQueue'] = None):
        """
        Args:
          name: for the thread.
          on_interrupt: is told that the handler of a signal has ended a wait for a function: what
            goes on, and the exception.
          parent: the queue of the calls whose callbacks use this one.
        """
        self.busy = 0
        self.blocks = False
        self._parent = parent
        self._depth: int = 0 if parent is None else parent._depth + 1
        self._of_callbacks: Optional[CallQueue] = None
        self._callbacks: List[Callbacks] = []  # those that have not ended
        self._latest: Any = None  # a weak reference to the work of the latest function
        self.last: Any = None
        self._name = name
        self._on_interrupt = on_interrupt
        self._lock = threading.Lock()
        self._queue: 'queue.SimpleQueue[Any]' = queue.SimpleQueue()
        self._thread: Any = None
        self._running = False  # whether the thread is in a call
        self._ended: List[threading.Thread] = []

    def here(self) -> 'CallQueue':
        """The queue for calls of this thread."""
        callbacks = current_callbacks()
        if callbacks is None:
            return self
        callbacks.await_earlier()
        calls = self
        for _ in range(callbacks.depth + 1):
            calls = calls._below()
        return calls

    def _below(self) -> 'CallQueue':
        with self._lock:
            if self._of_callbacks is None:
                self._of_callbacks = CallQueue(f'{self._name} callbacks', self._on_interrupt, self)
            return self._of_callbacks

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
        work = PendingWork(result, describe, on_future=self._await_callbacks,
                           on_interrupt=lambda error: self._on_interrupt(describe(), error))
        self._count(1)
        with self._lock:
            self._latest = weakref.ref(work)
            last, self.last = self.last, None
            self._put_locked((work, call, last, list(self._callbacks)))
        return work

    def _count(self, change: int) -> None:
        """Adds to `busy`, also of the queues above."""
        with self._lock:
            self.busy += change
        if self._parent is not None:
            self._parent._count(change)  # pylint: disable=protected-access

    def _await_callbacks(self) -> Callbacks:
        """The future of a call was asked for: later calls wait for its callbacks."""
        self._count(1)
        with self._lock:
            last, latest = self.last, self._latest and self._latest()

            def await_earlier() -> None:
                if last is not None:
                    _end_of(last)
                if latest is not None:
                    latest.wait()
            callbacks = Callbacks(self._depth, await_earlier, self._end_callbacks)
            self._callbacks.append(callbacks)
        return callbacks

    def _end_callbacks(self, callbacks: Callbacks) -> None:
        with self._lock:
            self._callbacks.remove(callbacks)
        self._count(-1)

    def _is_in_call(self) -> bool:
        """Whether a call is on its way, here or in the queues below."""
        last, below = self.last, self._of_callbacks
        return (self.blocks or self._running or (last is not None and not _is_over(last))
                or (below is not None and below._is_in_call()))  # pylint: disable=protected-access

    def follow(self, call: Any, result: Any, explained: Callable[[Any], Any]) -> PendingWork:
        """Returns work that is over soon after a collective of the library."""
        work = PendingWork(result, lambda: 'a collective', on_future=self._await_callbacks)
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
        """Waits for the calls in flight, and for callbacks. Returns whether they are over."""
        if self._of_callbacks is not None and not self.busy:
            self._of_callbacks.drain(seconds)
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
        if self._of_callbacks is not None:
            self._of_callbacks.join(end)
        for thread in self._ended:
            thread.join(max(0, end - time.monotonic()))

    def stop(self) -> None:
        """Lets the thread end after the calls that were started."""
        if self._of_callbacks is not None:
            self._of_callbacks.stop()
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
            work, call, before, callbacks = item
            if before is not None:
                _end_of(before)
            self._await_below(callbacks)
            error = None
            self._running = True
            try:
                call()
            except BaseException as caught:  # pylint: disable=broad-exception-caught
                error = caught
            self._running = False
            self._count(-1)
            work.finish(error)
            # A waiting thread keeps nothing alive.
            del item, work, call, before, callbacks, error

    def _await_below(self, callbacks: List[Callbacks]) -> None:
        """Waits for callbacks, and for the calls that they have started."""
        for each in callbacks:
            each.await_over(lambda: self._of_callbacks is not None
                            and self._of_callbacks._is_in_call())
        below = self._of_callbacks
        if below is not None and all(each.over.is_set() for each in callbacks):
            if below.busy:
                with contextlib.suppress(Exception):  # of that call, whose waiter gets it
                    below.start(lambda: None, (), lambda: 'the end of callbacks').wait()
            below.settle()


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
