"""Asynchronous calls."""

from typing import Optional

from cohort.arrays import Array


class PendingCall:
    """An asynchronous call. The call keeps its arrays alive; it may be dropped without waiting.

    Attributes:
      result: the array that has the result once `wait` has returned.
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

    def cancel(self) -> None:
        """Aborts the group on all ranks if the call is not over: other ranks wait for it."""
        self._call.cancel()
