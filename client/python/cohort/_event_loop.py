"""Calls of the extension module as futures of asyncio, without a thread for each call."""

import asyncio
import collections
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from cohort import _core

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


class LoopCalls:
    """The calls in flight of one event loop. The loop watches one descriptor for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._completions = _core.create_completions()
        self._calls: Dict[int, _Call] = {}
        loop.add_reader(self._completions.fileno(), self._take)

    async def run(self, method: Callable, arguments: Tuple, late: Optional[Late],
                  waiting: Optional[List[asyncio.Future]]) -> Any:
        """Runs a call; see `run` below."""
        loop = asyncio.get_running_loop()
        number = method(self._completions, *arguments)
        call = self._calls[number] = _Call(loop.create_future(), late)
        if waiting is not None:
            waiting.append(call.future)
        try:
            return await call.future
        except asyncio.CancelledError:
            # The result came before the task could take it.
            if late is not None and _succeeded(call.future):
                late(call.future.result())
            raise
        finally:
            if waiting is not None:
                waiting.remove(call.future)
            # The task was cancelled, or another call's value ended it. Once this call is over, the
            # next one may begin: it takes this one's place in a round.
            if number in self._calls:
                self._completions.cancel(number)
                call.ended = loop.create_future()
                await call.ended

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
                call.late(result)
            if call.ended is not None and not call.ended.done():
                call.ended.set_result(None)


async def run(method: Callable, *arguments: Any, late: Optional[Late] = None,
              waiting: Optional[List[asyncio.Future]] = None) -> Any:
    """Runs a call, `method` of the extension module, on the running event loop. If the task is
    cancelled, so is the call.

    Args:
      late: called with the result if the task was cancelled before it took it.
      waiting: contains the future of the call while it waits.
    """
    return await _of_running_loop().run(method, arguments, late, waiting)


async def wait_for(start_wait: Callable) -> None:
    """Waits on the running event loop for the end of a call that has started, and raises its error.
    If the task is cancelled, the call goes on."""
    await _of_running_loop().wait_for(start_wait)


def _of_running_loop() -> LoopCalls:
    loop = asyncio.get_running_loop()
    calls = _of_loops.get(loop)
    if calls is None:
        calls = _of_loops[loop] = LoopCalls(loop)
    return calls


class Inbox:
    """Objects of one source. The next call gets the object that a cancelled call left."""

    def __init__(self) -> None:
        self._kept: Deque[Any] = collections.deque()
        self._waiting: List[asyncio.Future] = []

    def empty(self) -> bool:
        """Whether it keeps nothing, and no call waits."""
        return not self._kept and not self._waiting

    async def take(self, method: Callable, *arguments: Any) -> Any:
        """Returns the next object, by `method` if no cancelled call has left one."""
        if self._kept:
            return self._kept.popleft()
        return await run(method, *arguments, late=self._keep, waiting=self._waiting)

    def _keep(self, value: Any) -> None:
        if value is None:  # an empty queue
            return
        loop = asyncio.get_running_loop()
        for future in self._waiting:
            if future.get_loop() is loop and not future.done():
                future.set_result(value)
                return
        self._kept.append(value)
