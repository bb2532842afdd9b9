"""How a rank leaves a process group."""

import atexit
import os
import select
import time
import traceback
import weakref
from typing import Any

import cohort
from cohort import _core
from cohort._lifetime import living, seconds_left, uncaught
from cohort.torch import completer, timer
from cohort.torch.monitored_barrier import FAREWELL

_LEAST = 0.03  # seconds of a farewell when the budget has none left
_CALLS_SECONDS = 1.0  # in which calls end that were started
_LEAVE_SECONDS = 1.0  # in which the coordinator hears that this rank leaves
_SILENT_SECONDS = 2.0
_MESSAGES_SECONDS = 0.3  # of the time of a farewell are for the end of the messages
_AT_EXIT_SECONDS = 0.8  # of the end of the process are for its farewells

_open: 'weakref.WeakSet[Any]' = weakref.WeakSet()


def leave_at_exit(group: Any) -> None:
    """The process leaves the group when the interpreter ends, if it has not done so before."""
    _open.add(group)


class _Budget:
    """The seconds of the farewells of this process. Many groups that are left one after the other
    get the time of one, because the time of the first is that of all: a rank that still waits for
    its wake-up in a last call needs milliseconds."""

    def __init__(self) -> None:
        self.silent_until = 0.0  # the coordinator did not answer, so no group asks it before then
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


def say(group: Any, most: float = float('inf')) -> None:
    """Ends the calls in flight, and waits until the other ranks leave as well: at most for the time
    of the options, or a second if that is less, and for `most` seconds.

    A rank that returns from a collective may leave while another one still waits in it for its own
    wake-up. Leaving ends the generation, so the other rank would get an error for a collective that
    has succeeded.
    """
    begin = time.monotonic()
    try:
        # pylint: disable-next=protected-access
        if not group._await_calls(_budget.left(min(most, _CALLS_SECONDS))):
            group.cohort_group.abort(f'rank {group.rank()} left process group {group.group_name} '
                                     'with a call in flight')
            return
        seconds = min(most, group.cohort_options.farewell)
        if seconds > 0 and group.size() > 1:
            seconds -= min(_MESSAGES_SECONDS, seconds / 2) + time.monotonic() - begin
            _await_others(group, _budget.left(max(_LEAST, seconds)))
    except cohort.Error:
        pass  # the group is broken
    finally:
        _budget.spend(time.monotonic() - begin)


def _await_others(group: Any, seconds: float) -> None:
    """Waits until all ranks leave, or call a monitored barrier. A timeout would end the round for
    ranks in such a barrier, too, so this rank cancels its own wait."""
    completions = _core.create_completions()
    try:
        call = group._core.start_all_gather_objects(  # pylint: disable=protected-access
            completions, FAREWELL, float('inf'))
        poll = select.poll()
        poll.register(completions.fileno(), select.POLLIN)
        if not poll.poll(seconds * 1000):
            completions.cancel(call, 'the other ranks stay longer')
            poll.poll(200)  # the call ends soon
    finally:
        completions.close()


def leave(group: Any, reason: str = 'the process group was destroyed') -> None:
    """Ends the messages, and leaves the group of Cohort."""
    _end_messages(group, reason, group.cohort_options.farewell, '')
    begin = time.monotonic()
    _core.await_departures(_budget.left(_LEAVE_SECONDS))
    _budget.spend(time.monotonic() - begin)


def _end_messages(group: Any, reason: str, most: float, why: str) -> None:
    """Ends the messages, and begins to leave the group of Cohort."""
    _open.discard(group)
    begin = time.monotonic()
    # pylint: disable=protected-access
    if not group._end_calls(reason, _budget.left(most), begin >= _budget.silent_until):
        _budget.silent_until = time.monotonic() + _SILENT_SECONDS
    group.cohort_group._start_leaving(why)
    _budget.spend(time.monotonic() - begin)


def _leave_all() -> None:
    why = uncaught()
    # In the same order on all ranks, which wait for each other.
    groups = sorted(living(_open), key=lambda group: group.cohort_name)
    for group in groups:
        try:
            if not why:
                say(group, min(_AT_EXIT_SECONDS, seconds_left()))
            else:  # the others may wait for this rank
                group.cohort_group.abort(f'rank {group.rank()} ended with {why}')
        except Exception:  # pylint: disable=broad-exception-caught
            traceback.print_exc()  # the other groups are left nevertheless
    for group in groups:
        try:
            _end_messages(group, 'the process ends',
                          min(group.cohort_options.farewell, seconds_left()), why)
        except Exception:  # pylint: disable=broad-exception-caught
            traceback.print_exc()
    completer.stop()
    timer.stop()
    end = time.monotonic() + seconds_left()
    for group in groups:
        group._join_threads(end)  # pylint: disable=protected-access


# Runs before the function of cohort that closes all open groups, because it is registered later.
atexit.register(_leave_all)
os.register_at_fork(after_in_child=_open.clear)
