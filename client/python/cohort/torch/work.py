"""Calls as torch.distributed returns them: `Work`.

One file, though long: all kinds have the same methods, so that a change of one shows the others.
"""

import _thread
import datetime
import time
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

import cohort
from cohort import _core
from cohort.torch import timer
from cohort.torch.callbacks import Callbacks
from cohort.torch.completer import completer, yield_turn

_NO_TIMEOUT = datetime.timedelta(0)


def completed_future(result: Any) -> torch.futures.Future:
    """A future that has its value."""
    future: torch.futures.Future = torch.futures.Future()
    future.set_result(result)
    return future


def _value_of(work: Any) -> Any:
    return list(work._result) if work.value is None else work.value()


class CompletedWork(dist._Work):
    """A call that was over when it returned.

    Attributes:
      value: makes the value of the future, if that is not the result.
    """

    value: Optional[Callable[[], Any]] = None

    def __init__(self, result: Any = ()):
        super().__init__()
        self._result = result

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """Returns at once."""
        return True

    def is_completed(self) -> bool:
        """Always."""
        return True

    def is_success(self) -> bool:
        """Always: the call would have raised its error."""
        return True

    def exception(self) -> None:
        """Returns None: the call would have raised its error."""
        return None

    def synchronize(self) -> None:
        """Returns at once."""

    def result(self) -> List[torch.Tensor]:
        """The tensors that the call has written."""
        return list(self._result)

    def get_future(self) -> torch.futures.Future:
        """A future that has the result."""
        return completed_future(_value_of(self))

    def get_future_result(self) -> torch.futures.Future:
        """A future that has 0, the number of success."""
        return completed_future(0)

    def source_rank(self) -> int:
        """Raises RuntimeError: only a receive has a source."""
        raise RuntimeError('source_rank: this call is no receive')

    _source_rank = source_rank


class PendingWork(dist._Work):
    """A call that goes on. Another thread ends it with `finish`.

    `wait` may be called by several threads, and several times. The tensors stay alive until the
    call is over. A waiting thread looks at the limit and calls `check`; the timer does so for those
    who ask `is_completed` or wait for the future.

    Attributes:
      value: makes the value of the future, if that is not the result.
    """

    value: Optional[Callable[[], Any]] = None

    def __init__(self, result: Any, describe: Callable[[], str],
                 limit: Optional[float] = None,
                 on_expiry: Optional[Callable[['PendingWork'], None]] = None,
                 check: Optional[Callable[[], None]] = None,
                 on_future: Optional[Callable[[], Callbacks]] = None,
                 on_interrupt: Optional[Callable[[BaseException], None]] = None):
        """
        Args:
          result: the tensors that the call writes.
          describe: what goes on, for an error; such as "recv from rank 1 of group 0".
          limit: the call itself may take so many seconds. None: its own thread enforces a limit.
          on_expiry: is told that the limit has passed.
          check: raises an error if the call can never succeed. It does not block.
          on_future: is called when the future is asked for; it returns its callbacks.
          on_interrupt: is told the exception by which the handler of a signal ended a wait.
        """
        _core.raise_if_forked()  # no thread would end it
        super().__init__()
        self._result = result
        self._describe = describe
        self._deadline = None if limit is None else time.monotonic() + limit
        self._limit = limit
        self._on_expiry = on_expiry
        self._check = check
        self._on_future = on_future
        self._callbacks: Optional[Callbacks] = None
        self._on_interrupt = on_interrupt
        self._is_watched = limit is None and check is None
        self._over = _thread.allocate_lock()
        self._over.acquire()  # pylint: disable=consider-using-with
        self._changes = _thread.allocate_lock()
        self._future: Optional[torch.futures.Future] = None
        self._error: Optional[BaseException] = None
        self._completed = False
        self._source = -1

    def finish(self, error: Optional[BaseException] = None, source: int = -1,
               runs_callbacks: bool = False) -> None:
        """Ends the call. Only the first call of this method counts. With `runs_callbacks`, the
        callbacks of the future run before it returns, and else on the completer's thread."""
        with self._changes:
            if self._completed:
                return
            self._error = error
            self._source = source
            self._completed = True
            future = self._future
        self._over.release()
        if future is None:
            return
        if runs_callbacks:
            self._run_callbacks(future)
        else:
            completer().put(lambda: self._run_callbacks(future))

    def _run_callbacks(self, future: torch.futures.Future) -> None:
        if self._callbacks is None:
            future.set_result(None)
        else:
            self._callbacks.run(lambda: future.set_result(None))

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """Blocks until the call is over, and raises its error, or DeadlineExceeded after `timeout`,
        if that is positive; the call then goes on."""
        if not self._completed:
            self._wait(timeout.total_seconds())
        if self._error is not None:
            raise self._error
        return True

    def _wait(self, timeout: float) -> None:
        _core.raise_if_forked()
        yield_turn()
        now = time.monotonic()
        until = now + timeout if timeout > 0 else None
        while True:
            ends = [end for end in (until, self._deadline) if end is not None]
            if self._check is not None:
                ends.append(now + 0.25)
            if self._acquire(max(0.0, min(ends) - now) if ends else -1):
                self._over.release()
                return
            now = time.monotonic()
            if until is not None and now >= until and (
                    self._deadline is None or now < self._deadline):
                raise cohort.DeadlineExceeded(
                    f'{self._describe()}: it was not over after the {timeout:g} s of this wait; it '
                    f'goes on')
            if not self.look():
                return

    def _acquire(self, seconds: float) -> bool:
        try:
            return self._over.acquire(timeout=seconds)
        except BaseException as error:
            if self._on_interrupt is not None:
                self._on_interrupt(error)
            raise

    def look(self) -> bool:
        """Ends the call if its limit has passed, or if it can never succeed. Returns whether it
        goes on."""
        if self._completed:
            return False
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self.finish(cohort.DeadlineExceeded(
                f'{self._describe()}: it was not over after {self._limit:g} s'))
            if self._on_expiry is not None:
                self._on_expiry(self)
        elif self._check is not None:
            try:
                self._check()
            except Exception as error:  # pylint: disable=broad-exception-caught
                self.finish(error)
        return not self._completed

    @property
    def is_over(self) -> bool:
        """As is_completed, for a caller that does not ask for the limit to be enforced."""
        return self._completed

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            timer.watch(self)

    def is_completed(self) -> bool:
        """Whether the call is over."""
        if not self._completed:
            self._watch()
        return self._completed

    def is_success(self) -> bool:
        """Whether the call is over and has no error."""
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[BaseException]:
        """The error of the call, or None."""
        return self._error if self.is_completed() else None

    def synchronize(self) -> None:
        """Waits for the call."""
        self.wait()

    def result(self) -> List[torch.Tensor]:
        """The tensors that the call has written."""
        return list(self._result)

    def get_future(self) -> torch.futures.Future:
        """A future that gets the result, or the error."""
        with self._changes:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._completed:
                    self._future.set_result(None)
                elif self._on_future is not None:
                    self._callbacks = self._on_future()
            future = self._future
            over = self._completed
        if not over:
            self._watch()
        return future.then(self._value)

    def _value(self, _: torch.futures.Future) -> Any:
        if self._error is not None:
            raise self._error
        return _value_of(self)

    def get_future_result(self) -> torch.futures.Future:
        """A future that gets 0 if the call succeeds, and else 100."""
        return self.get_future().then(lambda _: 0 if self._error is None else 100)

    def source_rank(self) -> int:
        """The rank from which a receive got its tensor, in the group. Raises RuntimeError for other
        calls."""
        if self._source < 0:
            raise RuntimeError(f'source_rank: {self._describe()} has none')
        return self._source

    _source_rank = source_rank


class StartedWork(dist._Work):
    """A collective that the library runs on its own thread."""

    def __init__(self, call: Any, result: Any, explained: Callable[[Any], Any], calls: Any):
        """For `CallQueue.start_collective`, whose arguments it has; `calls` is the queue."""
        super().__init__()
        self._call = call
        self._result = result
        self._explained = explained
        self._calls = calls
        self._followed: Optional[PendingWork] = None

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """As PendingWork."""
        try:
            self._call.wait(timeout.total_seconds() if timeout > _NO_TIMEOUT else None)
        except cohort.DeadlineExceeded as error:
            if not self.is_completed():
                raise
            raise self._explained(error) from error
        except cohort.Error as error:
            raise self._explained(error) from error
        self._calls.is_over(self._call)
        return True

    def is_completed(self) -> bool:
        """Whether the call is over."""
        try:
            return self._call.test()
        except cohort.Error:
            return True

    def is_success(self) -> bool:
        """Whether the call is over and has no error."""
        try:
            return self._call.test()
        except cohort.Error:
            return False

    def exception(self) -> Optional[BaseException]:
        """The error of the call, or None."""
        try:
            self._call.test()
        except cohort.Error as error:
            return self._explained(error)
        return None

    def synchronize(self) -> None:
        """Waits for the call."""
        self.wait()

    def result(self) -> List[torch.Tensor]:
        """The tensors that the call has written."""
        return list(self._result)

    def _follow(self) -> PendingWork:
        if self._followed is None:
            self._followed = self._calls.follow(self._call, self._result, self._explained)
        return self._followed

    def get_future(self) -> torch.futures.Future:
        """A future that gets the result, or the error."""
        return self._follow().get_future()

    def get_future_result(self) -> torch.futures.Future:
        """A future that gets 0 if the call succeeds, and else 100."""
        return self._follow().get_future_result()

    def source_rank(self) -> int:
        """Raises RuntimeError: only a receive has a source."""
        raise RuntimeError('source_rank: this call is no receive')

    _source_rank = source_rank


class StreamWork(CompletedWork):
    """Work that is enqueued on the stream which is current when this object is made. `wait` and
    the future order other streams after it, as with NCCL, and no one waits on the host."""

    def __init__(self, result: Any, device: torch.device, keep: Any = None):
        """`keep` stays alive until `wait`, as the tensors of `result` do."""
        super().__init__(result)
        self._device = device
        self._stream = torch.cuda.current_stream(device)
        self._event = self._stream.record_event()
        self._keep = keep

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """The current stream waits for the work."""
        torch.cuda.current_stream(self._device).wait_event(self._event)
        self._keep = None
        return True

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the GPU has done the work."""
        return self._event.query()

    def is_success(self) -> bool:
        """As is_completed: errors of the GPU come from its runtime."""
        return self._event.query()

    def get_future(self) -> torch.futures.Future:
        """A future that has the result. Its `wait` and its callbacks order their streams."""
        future: torch.futures.Future = torch.futures.Future(devices=[self._device])
        with torch.cuda.stream(self._stream):
            future.set_result(_value_of(self))
        return future


class AllOf(CompletedWork):
    """Several calls as one."""

    def __init__(self, works: List[dist._Work]):
        super().__init__()
        self._works = works

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """Waits for each of them, and for at most `timeout` in all if that is positive."""
        end = time.monotonic() + timeout.total_seconds()
        for work in self._works:
            if timeout > _NO_TIMEOUT:
                left = max(1e-3, end - time.monotonic())
                work.wait(datetime.timedelta(seconds=left))
            else:
                work.wait()
        return True

    def is_completed(self) -> bool:
        """Whether all are over."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all have succeeded."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Optional[BaseException]:
        """The first error."""
        return next((error for error in (work.exception() for work in self._works)
                     if error is not None), None)

    def synchronize(self) -> None:
        """Waits for all."""
        self.wait()

    def result(self) -> List[torch.Tensor]:
        """The tensors of all."""
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> torch.futures.Future:
        """A future that gets the tensors of all."""
        return torch.futures.collect_all([work.get_future() for work in self._works]).then(
            lambda futures: [tensor for future in futures.value() for tensor in future.value()])

    def get_future_result(self) -> torch.futures.Future:
        """A future that gets 0 if all succeed, and else 100."""
        return torch.futures.collect_all([work.get_future_result() for work in self._works]).then(
            lambda futures: max([future.value() for future in futures.value()], default=0))
