"""Closes open groups and stores when the interpreter ends, while its threads may still run."""

import atexit
import os
import sys
import time
import weakref
from typing import Any, Callable, Iterable, List, Optional, TypeVar

from cohort import _core

T = TypeVar('T')

# How long the functions that run at the end of the process wait together, for any number of objects.
_SECONDS = 1.3
_LEAST = 0.05  # seconds for each object when the others have taken longer

_end: Optional[float] = None
_open: 'weakref.WeakKeyDictionary[Any, Callable[[Any], None]]' = weakref.WeakKeyDictionary()


def close_at_exit(closeable: Any, close: Optional[Callable[[Any], None]] = None) -> None:
    """Calls close(closeable), or closeable.close(), when the interpreter ends, if the object still
    lives. `close` must not refer to the object. An object that has a method `_start_leaving(why)`
    leaves by that one, at the same time as others; `why` is the uncaught exception, or empty."""
    _open[closeable] = close or type(closeable).close


def living(objects: Iterable[T]) -> List[T]:
    """Returns the objects of a weak set, or the keys of a weak dictionary, also while other threads
    add some."""
    while True:
        try:
            return list(objects)
        except RuntimeError:  # its size changed
            pass


def seconds_left() -> float:
    """Returns the seconds that the end of the process may still wait. The first call begins them."""
    global _end  # pylint: disable=global-statement
    now = time.monotonic()
    _end = _end or now + _SECONDS
    return max(_LEAST, _end - now)


def uncaught() -> str:
    """Returns the exception that ends the process, such as "ValueError: bad"; empty if none does."""
    error = getattr(sys, 'last_value', None)
    return '' if error is None else f'{type(error).__name__}: {error}'


def _close_all() -> None:
    """The last object closes first. An error of one does not keep others open."""
    _core.begin_exit()
    why = uncaught()
    leaving = False
    for closeable in reversed(living(_open)):
        close = _open.get(closeable)
        if close is None:
            continue
        try:
            start_leaving = getattr(closeable, '_start_leaving', None)
            if start_leaving is not None:
                start_leaving(why)
                leaving = True
                continue
            if leaving:  # they may need it
                _core.await_departures(seconds_left())
                leaving = False
            close(closeable)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            import logging  # pylint: disable=import-outside-toplevel  # it loads much
            logging.getLogger('cohort').warning('%r was not closed at the end of the process: %s',
                                                closeable, error)
    _core.await_departures(seconds_left())


atexit.register(_close_all)
# They belong to the parent.
os.register_at_fork(after_in_child=_open.clear)
