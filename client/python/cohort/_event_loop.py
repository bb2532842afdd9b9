"""Calls of the extension module as futures of asyncio, without a thread for each call."""

import asyncio
import collections
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set, Tuple

from cohort import _core
from cohort._callbacks import logger
from cohort._lifetime import living

_of_loops: 'weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls]' = (
    weakref.WeakKeyDictionary())


Late = Callable[[Any], None]


class _Call:
    """A call in flight. `ended` is set when its task was cancelled, and waits for its end."""

    def __init__(self, future: asyncio.Future, late: Optional[Late]):
        self.future = future
        self.late = late
        self.ended: Optional[asyncio.Future] = None


def _succeeded(future: asyncio.Future) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


async def _until_done(future: asyncio.Future) -> None:
    """Waits also if the task is cancelled once more."""
    cancelled: Optional[asyncio.CancelledError] = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class LoopCalls:
    """The calls in flight of one event loop. The loop watches one descriptor for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._completions = _core.create_completions()
        self._calls: Dict[int, _Call] = {}
        loop.add_reader(self._completions.fileno(), self._take)

    def close(self) -> None:
        """For a loop that is closed: no task takes the results of its calls."""
        for number in self._calls:
            self.cancel(number, 'the event loop of this call was closed')
        self._calls.clear()
        self._completions.close()

    def cancel(self, number: int, reason: str) -> None:
        """Ends a call with Cancelled. Any thread may call it."""
        self._completions.cancel(number, reason)

    async def run(self, method: Callable, arguments: Tuple, late: Optional[Late],
                  on_start: Optional[Callable[[asyncio.Future], None]],
                  owner: Optional['CallsInFlight']) -> Any:
        """Runs a call; see `run` below."""
        loop = asyncio.get_running_loop()
        number = method(self._completions, *arguments)
        call = self._calls[number] = _Call(loop.create_future(), late)
        if owner is not None:
            owner.add(self, number)
        if on_start is not None:
            on_start(call.future)
        try:
            result = await call.future
            # Another call's value may have ended it.
            await self._end(number, call)
            return result
        except asyncio.CancelledError:
            # The result came before the task could take it.
            if late is not None and _succeeded(call.future):
                late(call.future.result())
            await self._end(number, call)
            raise
        finally:
            if owner is not None:
                owner.remove(self, number)

    async def _end(self, number: int, call: _Call) -> None:
        """Cancels a call that is not over, and waits for its end. Then the next one may begin: it
        takes this one's place in a round."""
        if number in self._calls:
            self.cancel(number, 'the task that made this call was cancelled')
            call.ended = asyncio.get_running_loop().create_future()
            await _until_done(call.ended)

    async def wait_for(self, start_wait: Callable) -> None:
        """Waits for the end of a call; see `wait_for` below."""
        number = start_wait(self._completions)
        call = self._calls[number] = _Call(asyncio.get_running_loop().create_future(), None)
        try:
            await call.future
        finally:
            self._calls.pop(number, None)

    def _take(self) -> None:
        for number, succeeded, result in self._completions.take():
            call = self._calls.pop(number, None)
            if call is None:  # its task stopped waiting
                continue
            if not call.future.done():
                if succeeded:
                    call.future.set_result(result)
                else:
                    call.future.set_exception(result)
                continue
            if succeeded and call.late is not None:
                try:
                    call.late(result)
                except Exception:  # pylint: disable=broad-exception-caught
                    # The other calls of this turn get their results.
                    logger.exception('a result that came after its task was cancelled is lost')
            if call.ended is not None and not call.ended.done():
                call.ended.set_result(None)


async def run(method: Callable, *arguments: Any, late: Optional[Late] = None,
              on_start: Optional[Callable[[asyncio.Future], None]] = None,
              owner: Optional['CallsInFlight'] = None) -> Any:
    """Runs a call, `method` of the extension module, on the running event loop. If the task is
    cancelled, so is the call.

    Args:
      late: called with the result if the task was cancelled before it took it.
      on_start: called with the future of the call, whose result ends the call, too.
      owner: contains the call while it runs.
    """
    return await _of_running_loop().run(method, arguments, late, on_start, owner)


async def wait_for(start_wait: Callable) -> None:
    """Waits on the running event loop for the end of a call that has started, and raises its error.
    If the task is cancelled, the call goes on."""
    await _of_running_loop().wait_for(start_wait)


def _of_running_loop() -> LoopCalls:
    loop = asyncio.get_running_loop()
    calls = _of_loops.get(loop)
    if calls is None:
        # Futures of calls in flight keep their loop alive.
        for old in living(_of_loops):
            # Another thread, with a loop of its own, may be here, too.
            ended = _of_loops.pop(old, None) if old.is_closed() else None
            if ended is not None:
                ended.close()
        calls = _of_loops[loop] = LoopCalls(loop)
    return calls


class CallsInFlight:
    """The calls of an object, of any event loop."""

    def __init__(self) -> None:
        self._calls: Set[Tuple[LoopCalls, int]] = set()

    def add(self, calls: LoopCalls, number: int) -> None:
        self._calls.add((calls, number))

    def remove(self, calls: LoopCalls, number: int) -> None:
        self._calls.discard((calls, number))

    def cancel(self, reason: str) -> None:
        """Ends all of them with Cancelled."""
        for calls, number in list(self._calls):
            calls.cancel(number, reason)


class _Taker(NamedTuple):
    """A call that waits for a value of an inbox."""
    future: asyncio.Future
    takes: Callable[[Any], bool]


def _any(_: Any) -> bool:
    return True


class Inbox:
    """Values of one queue or mailbox. The next call gets the value that a cancelled call left. Calls
    may run on several event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: Deque[Any] = collections.deque()
        self._takers: List[_Taker] = []  # also those whose calls have not ended yet
        # Values that are on their way to the event loop of a taker.
        self._promised: List[Tuple[_Taker, Any]] = []

    def empty(self) -> bool:
        """Whether it keeps no value, and no call may leave one."""
        return not self._kept and not self._takers

    async def take(self, method: Callable, *arguments: Any, takes: Callable[[Any], bool] = _any,
                   owner: Optional[CallsInFlight] = None) -> Any:
        """Returns the next value, by `method` if no cancelled call has left one that
        `takes(value)`."""
        with self._lock:
            for value in self._kept:
                if takes(value):
                    self._kept.remove(value)
                    return value
        taker: Optional[_Taker] = None

        def add(future: asyncio.Future) -> None:
            nonlocal taker
            taker = _Taker(future, takes)
            with self._lock:
                self._takers.append(taker)

        try:
            return await run(method, *arguments, late=self._keep, on_start=add, owner=owner)
        finally:
            if taker is not None:
                with self._lock:
                    self._takers.remove(taker)
                    promised = self._take_promised(taker)
                for value in promised:
                    self._keep(value)

    def _take_promised(self, taker: _Taker) -> List[Any]:
        mine = [each for each in self._promised if each[0] is taker]
        self._promised = [each for each in self._promised if each[0] is not taker]
        return [value for _, value in mine]

    def _keep(self, value: Any) -> None:
        if value is None:  # an empty queue
            return
        running = asyncio.get_running_loop()
        with self._lock:
            for taker in self._takers:
                if taker.future.done() or not taker.takes(value) or any(
                        other is taker for other, _ in self._promised):
                    continue
                if taker.future.get_loop() is running:
                    taker.future.set_result(value)
                    return
                try:
                    taker.future.get_loop().call_soon_threadsafe(self._give, taker)
                except RuntimeError:  # that event loop is closed
                    continue
                self._promised.append((taker, value))
                return
            self._kept.append(value)

    def _give(self, taker: _Taker) -> None:
        """Runs on the taker's event loop."""
        with self._lock:
            promised = self._take_promised(taker)
        for value in promised:
            if taker.future.done():
                self._keep(value)
            else:
                taker.future.set_result(value)
