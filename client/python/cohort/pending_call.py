"""Asynchronous calls."""

import select
import time
from typing import Any, Callable, Generator, Generic, List, Optional, Sequence, TypeVar

from cohort import _core
from cohort.errors import DeadlineExceeded, Error, FailedPrecondition
from cohort.timeouts import Timeout, seconds

T = TypeVar('T')


class PendingCall(Generic[T]):
    """An asynchronous call. The call keeps its arrays alive; it may be dropped without waiting.

        call = group.all_reduce(x, wait=False)
        total = call.wait()      # blocks
        total = await call       # in a coroutine: the event loop continues

    Any number of threads and of tasks, on any event loops, may wait for one call, and any number of
    times. `done`, `exception` and `add_done_callback` are those of concurrent.futures.Future;
    `wait` stands for its `result`.
    """

    def __init__(self, call, result: Any, operation: str = 'call',
                 finish: Optional[Callable[[Any], T]] = None):
        self._call = call
        self._result = result
        self._operation = operation
        self._finish = finish

    @property
    def result(self) -> T:
        """The call's result: the array, or None if the call has no result. Does not block. Raises
        the call's error, or FailedPrecondition if the call has not ended: `wait` blocks until it
        has."""
        if not self._call.test():
            raise FailedPrecondition(
                f'{self._operation}: the call has not ended, so it has no result yet; use wait()')
        return self._take()

    def _take(self) -> T:
        return self._result if self._finish is None else self._finish(self._result)

    def test(self) -> bool:
        """Returns whether the call has ended, without blocking. Raises its error."""
        return self._call.test()

    def done(self) -> bool:
        """Returns whether the call has ended, with a result or an error. Does not block."""
        try:
            return self._call.test()
        except Error:
            return True

    def wait(self, timeout: Timeout = None) -> T:
        """Blocks until the call has ended, and returns its result. Raises its error, or
        DeadlineExceeded if it has not ended after `timeout` seconds (None: no limit); the call then
        continues. Source: MPI_Wait."""
        self._await_end(timeout)
        return self._take()

    def _await_end(self, timeout: Timeout) -> None:
        try:
            self._call.wait(timeout)
        except DeadlineExceeded:
            if self.done():
                raise
            raise DeadlineExceeded(f'{self._operation}: the call has not ended after '
                                   f'{seconds(timeout)} s, and continues') from None

    def exception(self, timeout: Timeout = None) -> Optional[Error]:
        """Blocks until the call has ended, and returns its error, or None if it succeeded. Raises
        DeadlineExceeded if it has not ended after `timeout` seconds (None: no limit)."""
        try:
            self._await_end(timeout)
        except Error as error:
            if not self.done():
                raise
            return error
        return None

    def add_done_callback(self, function: Callable[['PendingCall[T]'], Any]) -> None:
        """Calls function(this call) once the call has ended, or at once if it has. Does not block.

        One thread of the library runs all callbacks in turn, so a callback does not block; a call
        that it starts has wait=False. An exception of a callback goes to
        logging.getLogger("cohort").
        """
        from cohort import _callbacks  # pylint: disable=import-outside-toplevel  # loads threading
        _callbacks.add(self, self._call.start_wait, function)

    def __await__(self) -> Generator[Any, None, T]:
        """Returns the call's result, or raises its error, as `wait`. No thread waits.

        If the task is cancelled, it stops waiting and the call continues, as with asyncio.shield.
        It may be awaited again; `cancel` ends it.
        """
        return self._wait_on_event_loop().__await__()

    async def _wait_on_event_loop(self) -> T:
        from cohort import _event_loop  # pylint: disable=import-outside-toplevel  # loads asyncio
        await _event_loop.wait_for(self._call.start_wait)
        return self._take()

    def cancel(self) -> None:
        """Aborts the group on all ranks if the call has not ended: other ranks wait for it."""
        self._call.cancel()

    def __repr__(self) -> str:
        try:
            state = 'done' if self._call.test() else 'pending'
        except Error as error:
            state = f'failed: {type(error).__name__}'
        return f'<cohort.PendingCall {self._operation}, {state}>'


def wait_all(calls: Sequence[PendingCall], timeout: Timeout = None) -> List[Any]:
    """Blocks until all calls have ended, and returns their results in order.

    Raises:
      DeadlineExceeded: a call has not ended after `timeout` seconds (None: no limit) for all of
        them; says how many. The calls continue.
      Others: the error of the first call in `calls` that failed, once all have ended.

    Source: MPI_Waitall.
    """
    calls = list(calls)
    limit = seconds(timeout)
    deadline = None if limit is None else time.monotonic() + limit
    for call in calls:
        left = None if deadline is None else max(0, deadline - time.monotonic())
        try:
            call.exception(left)
        except DeadlineExceeded:
            late = sum(not each.done() for each in calls)
            if late:
                raise DeadlineExceeded(
                    f'wait_all: {late} of {len(calls)} calls have not ended after {limit} s'
                ) from None
    return [call.wait() for call in calls]


def wait_any(calls: Sequence[PendingCall], timeout: Timeout = None) -> int:
    """Blocks until one of the calls has ended, with a result or an error, and returns its index;
    the lowest if several are. calls[index].wait() then returns at once.

    Raises:
      ValueError: `calls` is empty.
      DeadlineExceeded: no call has ended after `timeout` seconds (None: no limit). The calls
        continue.

    Source: MPI_Waitany.
    """
    calls = list(calls)
    if not calls:
        raise ValueError('wait_any: expected at least one call')
    limit = seconds(timeout)
    completions = _core.create_completions()
    try:
        for call in calls:
            call._call.start_wait(completions)  # pylint: disable=protected-access
        poll = select.poll()
        poll.register(completions.fileno(), select.POLLIN)
        # Any longer time is no limit for poll.
        if not poll.poll(None if limit is None or limit > 1e6 else limit * 1000):
            raise DeadlineExceeded(f'wait_any: none of {len(calls)} calls has ended after {limit} s')
    finally:
        completions.close()
    return next(index for index, call in enumerate(calls) if call.done())
