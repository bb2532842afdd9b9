#!/usr/bin/python3
"""Runs the files of tests that are its arguments, with the package `cohort` of this tree.

It needs Debian's Python, which has numpy and pytest: another one may be first on the path.
"""

import os
import sys

import pytest

PYTHON = os.path.join(os.getcwd(), 'client', 'python')

if __name__ == '__main__':
    sys.path.insert(0, PYTHON)
    # For the processes that tests start.
    os.environ['PYTHONPATH'] = PYTHON
    os.environ['PATH'] = os.pathsep.join([os.path.abspath('coordinator'), os.environ['PATH']])
    sys.exit(pytest.main(['-q', '-rs', '-p', 'no:cacheprovider', '--import-mode=importlib',
                          *sys.argv[1:]]))
