"""Closes open groups and stores when the interpreter ends, while its threads may still run."""

import atexit
import weakref

_open = weakref.WeakSet()


def close_at_exit(closeable) -> None:
    """Calls closeable.close() when the interpreter ends, if the object still lives."""
    _open.add(closeable)


def _close_all() -> None:
    for closeable in list(_open):
        closeable.close()


atexit.register(_close_all)
