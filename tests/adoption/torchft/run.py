#!/usr/bin/env python3
"""Runs torchft's own lighthouse_test.py with the coordinator as the lighthouse.

    PYTHON tests/adoption/torchft/run.py [FILE_OF_TESTS ...] [-k NAME]

Without a file it runs the lighthouse_test.py of the installed package. The arguments are pytest's.
PYTHON has the packages torchft (0.2.0) and pytest, and cohort-coordinator is on the PATH. The class
LighthouseServer is this file's; LighthouseClient, Manager and all others are torchft's. It prints
the counts, and each test that did not pass.
"""

import contextlib
import os
import sys

import pytest
import torchft
from torchft import _torchft

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'client', 'python'))

from testing.coordinator import tcp_coordinator  # pylint: disable=wrong-import-position


class LighthouseServer:
    """A coordinator, with the constructor and the methods of torchft's LighthouseServer."""

    def __init__(self, bind, min_replicas, join_timeout_ms=None, quorum_tick_ms=None,
                 heartbeat_timeout_ms=None):
        del quorum_tick_ms  # the coordinator decides when something changes
        flags = ['--insecure', '--torchft-min-replicas', str(min_replicas),
                 '--torchft-join-timeout',
                 f'{100 if join_timeout_ms is None else join_timeout_ms}ms']
        if heartbeat_timeout_ms is not None:
            flags += ['--torchft-heartbeat-timeout', f'{heartbeat_timeout_ms}ms']
        self._running = contextlib.ExitStack()
        address, = self._running.enter_context(tcp_coordinator(bind, flags=flags))
        self._port = address.rsplit(':', 1)[1]

    def address(self):
        """The address for TORCHFT_LIGHTHOUSE."""
        return f'http://localhost:{self._port}'

    def shutdown(self):
        """Ends the coordinator."""
        self._running.close()


class Counts:
    """A plugin of pytest that prints each test that did not pass, and the counts."""

    def __init__(self):
        self._results = {}

    def pytest_runtest_logreport(self, report):
        """Keeps the worst result of the three parts of a test."""
        if report.when == 'call' or not report.passed:
            self._results.setdefault(report.nodeid, report)
            if report.failed:
                self._results[report.nodeid] = report

    def pytest_sessionfinish(self):
        """Prints them."""
        outcomes = [report.outcome for report in self._results.values()]
        print('\n' + ', '.join(f'{outcomes.count(outcome)} {outcome}'
                               for outcome in ('passed', 'failed', 'skipped')))
        for name, report in sorted(self._results.items()):
            if not report.passed:
                print(f'  {report.outcome} {name}: {report.longreprtext.strip().splitlines()[-1]}')


def main():
    """Runs the tests of the command line."""
    _torchft.LighthouseServer = LighthouseServer
    arguments = sys.argv[1:]
    if not arguments:
        arguments = [os.path.join(os.path.dirname(torchft.__file__), 'lighthouse_test.py')]
    failed = pytest.main(['-q', '-p', 'no:cacheprovider', *arguments], plugins=[Counts()])
    sys.stdout.flush()
    os._exit(failed)  # threads of torchft may still run


if __name__ == '__main__':
    main()
