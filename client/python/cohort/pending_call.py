"""Asynchronous calls."""

from typing import Any, Generator, Optional

from cohort.arrays import Array


class PendingCall:
    """An asynchronous call. The call keeps its arrays alive; it may be dropped without waiting.

        call = group.all_reduce(x, wait=False)
        total = call.wait()      # blocks
        total = await call       # in a coroutine: the event loop goes on

    Any number of threads and of tasks, on any event loops, may wait for one call, and any number of
    times.

    Attributes:
      result: the array that has the result once the call is over.
    """

    def __init__(self, call, result: Array):
        self._call = call
        self.result = result

    def test(self) -> bool:
        """Returns whether the call is over, without blocking. Raises its error."""
        return self._call.test()

    def wait(self, timeout: Optional[float] = None) -> Array:
        """Blocks until the call is over, and returns its result. Raises its error, or
        DeadlineExceeded if it is not over after `timeout` seconds; the call then goes on."""
        self._call.wait(timeout)
        return self.result

    def __await__(self) -> Generator[Any, None, Array]:
        """Returns the call's result, or raises its error, as `wait`. No thread waits.

        If the task is cancelled, it stops waiting and the call goes on, as with asyncio.shield. It
        may be awaited again; `cancel` ends it.
        """
        return self._wait_on_event_loop().__await__()

    async def _wait_on_event_loop(self) -> Array:
        from cohort import _event_loop  # pylint: disable=import-outside-toplevel  # loads asyncio
        await _event_loop.wait_for(self._call.start_wait)
        return self.result

    def cancel(self) -> None:
        """Aborts the group on all ranks if the call is not over: other ranks wait for it."""
        self._call.cancel()
