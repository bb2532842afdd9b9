#!/usr/bin/python3
"""Runs the files of tests that are its arguments, with the package `cohort` of this tree.

It needs Debian's Python, which has numpy and pytest: another one may be first on the path.
"""

import os
import sys

import pytest

PYTHON = os.path.join(os.getcwd(), 'client', 'python')


class SkippedFiles:
    """A plugin of pytest that counts the files that skip all their tests, without PyTorch for
    example."""
    count = 0

    def pytest_collectreport(self, report):
        self.count += report.skipped


if __name__ == '__main__':
    sys.path.insert(0, PYTHON)
    # For the processes that tests start.
    os.environ['PYTHONPATH'] = PYTHON
    os.environ['PATH'] = os.pathsep.join([os.path.abspath('coordinator'), os.environ['PATH']])
    skipped = SkippedFiles()
    status = pytest.main(['-q', '-rs', '-p', 'no:cacheprovider', '--import-mode=importlib',
                          *sys.argv[1:]], [skipped])
    # For pytest it is an error that no test ran.
    no_tests = status == pytest.ExitCode.NO_TESTS_COLLECTED
    sys.exit(0 if no_tests and skipped.count == len(sys.argv) - 1 else status)
