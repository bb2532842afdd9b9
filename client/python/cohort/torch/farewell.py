"""How a rank leaves a process group."""

import atexit
import os
import sys
import time
import traceback
import weakref
from typing import Any

import cohort
from cohort.torch import completer, timer

_LEAST = 0.03  # seconds of a farewell when the budget has none left
_THREADS_SECONDS = 0.5  # in which threads end at the end of the process

_open: 'weakref.WeakSet[Any]' = weakref.WeakSet()


def leave_at_exit(group: Any) -> None:
    """The process leaves the group when the interpreter ends, if it has not done so before."""
    _open.add(group)


class _Budget:
    """The seconds of the farewells of this process. Many groups that are left one after the other
    get the time of one, because the time of the first is that of all: a rank that still waits for
    its wake-up in a last call needs milliseconds."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._at = 0.0

    def left(self, seconds: float) -> float:
        """How many of `seconds` are left. Spent seconds come back as time passes."""
        now = time.monotonic()
        self._spent = max(0.0, self._spent - (now - self._at))
        self._at = now
        return max(min(seconds, _LEAST), seconds - self._spent)

    def spend(self, seconds: float) -> None:
        """Tells that a farewell took so long."""
        self._spent += seconds
        self._at = time.monotonic()


_budget = _Budget()


def say(group: Any) -> None:
    """Waits until the other ranks leave as well, at most for the time of the options.

    A rank that returns from a collective may leave while another one still waits in it for its own
    wake-up. Leaving ends the generation, so the other rank would get an error for a collective that
    has succeeded.
    """
    seconds = group.cohort_options.farewell
    if seconds > 0 and group.size() > 1:
        begin = time.monotonic()
        try:
            group.cohort_group.all_gather_objects(b'', timeout=_budget.left(seconds))
        except cohort.Error:
            pass  # the group is broken, or a rank stays longer
        finally:
            _budget.spend(time.monotonic() - begin)


def leave(group: Any, reason: str = 'the process group was destroyed') -> None:
    """Ends the messages, and leaves the group of Cohort."""
    _open.discard(group)
    group._end_calls(reason)  # pylint: disable=protected-access
    group.cohort_group.close()


def _end_pending(group: Any) -> None:
    """Waits for asynchronous calls in flight, but no longer than for a farewell."""
    seconds = group.cohort_options.farewell
    begin = time.monotonic()
    is_idle = group._calls.drain(_budget.left(seconds))  # pylint: disable=protected-access
    _budget.spend(time.monotonic() - begin)
    if not is_idle:
        group.cohort_group.abort(
            f'rank {group.rank()} ended with an asynchronous call of process group '
            f'{group.group_name} in flight')


def _leave_all() -> None:
    error = getattr(sys, 'last_value', None)  # of the main thread, uncaught
    # In the same order on all ranks, which wait for each other.
    groups = sorted(_open, key=lambda group: group.cohort_name)
    for group in groups:
        try:
            if error is None:
                _end_pending(group)
                say(group)
            else:  # the others may wait for this rank
                group.cohort_group.abort(
                    f'rank {group.rank()} ended with {type(error).__name__}: {error}')
        except Exception:  # pylint: disable=broad-exception-caught
            traceback.print_exc()  # the other groups are left nevertheless
    for group in groups:
        try:
            leave(group, 'the process ends')
        except Exception:  # pylint: disable=broad-exception-caught
            traceback.print_exc()
    completer.stop()
    timer.stop()
    end = time.monotonic() + _THREADS_SECONDS
    for group in groups:
        group._join_threads(end)  # pylint: disable=protected-access


# Runs before the function of cohort that closes all open groups, because it is registered later.
atexit.register(_leave_all)
os.register_at_fork(after_in_child=_open.clear)
