"""Sets the values of futures, whose callbacks run then."""

import collections
import os
import select
import threading
import traceback
from typing import Any, Callable, Deque, Dict, Optional

from cohort import _core
from cohort.torch import timer



class Completer:
    """Ends futures one after the other, on a thread that runs no calls of a group.

    A callback of a future may start calls, wait for them, and block for any other reason. Then
    another thread ends the futures that follow: at once if the callback starts a call, and else
    when the timer sees that it blocks while other futures could end. So callbacks run in the order
    in which their calls end, unless one of them blocks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._completions = _core.create_completions()
        self._waiting: Dict[int, Callable[[Optional[BaseException]], None]] = {}
        self._ready: Deque[Callable[[], None]] = collections.deque()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._completions.fileno(), select.POLLIN)
        self._poll.register(self._reader, select.POLLIN)
        self._turn = 0  # grows when another thread takes over
        self._thread: Optional[threading.Thread] = None
        self._count = 0  # of the functions that have begun
        self._seen = 0
        self._is_running = False
        self._watched = False
        self._stopped = False

    def when_over(self, call: Any, then: Callable[[Optional[BaseException]], None]) -> None:
        """Calls then(error) when a collective of the library is over."""
        with self._lock:
            # Under the lock, so that the thread finds `then`.
            self._waiting[call.start_wait(self._completions)] = then
            self._start_locked()

    def put(self, function: Callable[[], None]) -> None:
        """Runs a function that may block."""
        with self._lock:
            self._ready.append(function)
            self._start_locked()
        self._wake()

    def yield_turn(self) -> None:
        """Another thread takes over if this one runs a callback: it may wait for a later call."""
        if threading.current_thread() is self._thread:
            with self._lock:
                if threading.current_thread() is self._thread:
                    self._take_over_locked()

    def look(self) -> bool:
        """For the timer."""
        with self._lock:
            if self._stopped or not (self._waiting or self._ready or self._is_running):
                self._watched = False
                return False
            if self._is_running and self._seen == self._count:  # for one period
                self._take_over_locked()
            self._seen = self._count
            return True

    def stop(self) -> None:
        """Ends the thread, unless it is in a callback."""
        with self._lock:
            self._stopped = True
            self._turn += 1
            thread, self._thread = self._thread, None
        self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(0.2)

    def _start_locked(self) -> None:
        if self._thread is None and not self._stopped:
            self._take_over_locked()
        if not self._watched:
            self._watched = True
            timer.watch(self)

    def _take_over_locked(self) -> None:
        if self._stopped:
            return
        self._turn += 1
        self._is_running = False
        self._thread = threading.Thread(target=self._run, args=[self._turn],
                                        name='cohort futures', daemon=True)
        self._thread.start()

    def _wake(self) -> None:
        try:
            os.write(self._writer, b'0')
        except BlockingIOError:
            pass  # it wakes already

    def _run(self, turn: int) -> None:
        while True:
            with self._lock:
                if self._turn != turn:
                    return
                function = self._ready.popleft() if self._ready else None
                self._is_running = function is not None
                self._count += 1
            if function is None:
                self._collect()
            else:
                try:
                    function()
                except BaseException:  # pylint: disable=broad-exception-caught
                    traceback.print_exc()
                del function  # nothing stays alive until the next one

    def _collect(self) -> None:
        """Waits until functions are ready."""
        if any(fd == self._reader for fd, _ in self._poll.poll()):
            os.read(self._reader, 4096)
        with self._lock:
            for number, succeeded, result in self._completions.take():
                then = self._waiting.pop(number)
                self._ready.append(lambda then=then, error=None if succeeded else result:
                                   then(error))


_completer: Optional[Completer] = None
_lock = threading.Lock()


def completer() -> Completer:
    """The completer of this process."""
    global _completer  # pylint: disable=global-statement
    if _completer is None:
        with _lock:
            if _completer is None:
                _completer = Completer()
    return _completer


def yield_turn() -> None:
    """See Completer."""
    if _completer is not None:
        _completer.yield_turn()


def stop() -> None:
    """Ends the threads: the process ends."""
    if _completer is not None:
        _completer.stop()


def _forget() -> None:
    global _completer, _lock  # pylint: disable=global-statement
    _completer, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
