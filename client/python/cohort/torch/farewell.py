"""How a rank leaves a process group."""

import atexit
import sys
import weakref
from typing import Any

import cohort

_open: 'weakref.WeakSet[Any]' = weakref.WeakSet()


def leave_at_exit(group: Any) -> None:
    """The process leaves the group when the interpreter ends, if it has not done so before."""
    _open.add(group)


def say(group: Any) -> None:
    """Waits until the other ranks leave as well, at most for the time of the options.

    A rank that returns from a collective may leave while another one still waits in it for its own
    wake-up. Leaving ends the generation, so the other rank would get an error for a collective that
    has succeeded.
    """
    seconds = group.cohort_options.farewell
    if seconds > 0 and group.size() > 1:
        try:
            group.cohort_group.all_gather_objects(b'', timeout=seconds)
        except cohort.Error:
            pass  # the group is broken, or a rank stays longer


def leave(group: Any, reason: str = 'the process group was destroyed') -> None:
    """Ends the messages, and leaves the group of Cohort."""
    _open.discard(group)
    group._end_calls(reason)  # pylint: disable=protected-access
    group.cohort_group.close()


def _leave_all() -> None:
    error = getattr(sys, 'last_value', None)  # of the main thread, uncaught
    for group in list(_open):
        if error is None:
            say(group)
        else:  # the others may wait for this rank
            group.cohort_group.abort(
                f'rank {group.rank()} ended with {type(error).__name__}: {error}')
        leave(group, 'the process ends')


# Runs before the function of cohort that closes all open groups, because it is registered later.
atexit.register(_leave_all)
