"""The programs of the wheel, as console scripts. They replace the Python process."""

import os
import sys


def _run(name: str) -> None:
    path = os.path.join(os.path.dirname(__file__), 'bin', name)
    os.execv(path, [name, *sys.argv[1:]])


def cohort() -> None:
    """The command line: cohort who-is-missing and others."""
    _run('cohort')


def coordinator() -> None:
    """The coordinator."""
    _run('cohort-coordinator')


def worker() -> None:
    """The worker daemon."""
    _run('cohort-worker')
