"""Closes open groups and stores when the interpreter ends, while its threads may still run."""

import atexit
import weakref
from typing import Any, Callable, Optional

_open: 'weakref.WeakKeyDictionary[Any, Callable[[Any], None]]' = weakref.WeakKeyDictionary()


def close_at_exit(closeable: Any, close: Optional[Callable[[Any], None]] = None) -> None:
    """Calls close(closeable), or closeable.close(), when the interpreter ends, if the object still
    lives. `close` must not refer to the object."""
    _open[closeable] = close or type(closeable).close


def _close_all() -> None:
    for closeable, close in list(_open.items()):
        close(closeable)


atexit.register(_close_all)
