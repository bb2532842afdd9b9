"""The programs of the wheel, as console scripts, which replace the Python process."""

import os
import shutil
import sys


def find(name: str) -> str:
    """Returns the path of a program: the wheel's own, or else the first of this name on PATH."""
    own = os.path.join(os.path.dirname(__file__), 'bin', name)
    found = own if os.path.exists(own) else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f'{name} is neither in this package nor on PATH')
    return found


def _run(name: str) -> None:
    os.execv(find(name), [name, *sys.argv[1:]])


def cohort() -> None:
    """The command line: cohort who-is-missing and others."""
    _run('cohort')


def coordinator() -> None:
    """The coordinator."""
    _run('cohort-coordinator')


def worker() -> None:
    """The worker daemon."""
    _run('cohort-worker')
