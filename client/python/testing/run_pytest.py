#!/usr/bin/python3
"""Runs the files of tests that are its arguments, with the package `cohort` of this tree.

It needs Debian's Python, which has numpy and pytest: another one may be first on the path. PyTorch
comes from the folder COHORT_TORCH, which deploy/bootstrap.sh --torch fills, or else from Debian.
Ray comes from the folder COHORT_RAY, such as one that `pip install --target` has filled.
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
    folders = [PYTHON]
    folders += [os.environ[name] for name in ('COHORT_TORCH', 'COHORT_RAY')
                if os.path.isdir(os.environ.get(name, ''))]
    sys.path[:0] = folders
    # For the processes that tests start.
    os.environ['PYTHONPATH'] = os.pathsep.join(folders)
    os.environ['PATH'] = os.pathsep.join(
        [os.path.abspath('coordinator'), os.path.abspath('worker/daemon'),
         os.path.abspath('worker/cli'), os.environ['PATH']])
    skipped = SkippedFiles()
    status = pytest.main(['-q', '-rs', '-p', 'no:cacheprovider', '--import-mode=importlib',
                          *sys.argv[1:]], [skipped])
    # For pytest it is an error that no test ran.
    no_tests = status == pytest.ExitCode.NO_TESTS_COLLECTED
    sys.exit(0 if no_tests and skipped.count == len(sys.argv) - 1 else status)
