#!/usr/bin/env python3
"""Runs torchft's own lighthouse_test.py with the coordinator as the lighthouse.

    PYTHON tests/adoption/torchft/run.py [FILE_OF_TESTS ...] [-k NAME]

Without a file it runs the lighthouse_test.py of the installed package. The arguments are pytest's. PYTHON has the packages torchft (0.2.0) and
pytest, and cohort-coordinator is on the PATH. LighthouseServer is a class of this file; torchft's
LighthouseClient, Manager and everything else are torchft's. It prints each test that did not pass,
and the counts.
"""

import os
import subprocess
import sys
import tempfile
import time

import pytest
import torchft
from torchft import _torchft

# Longer than a coordinator takes to start.
START_SECONDS = 30


class LighthouseServer:
    """A coordinator, with the constructor and the methods of torchft's LighthouseServer."""

    def __init__(self, bind, min_replicas, join_timeout_ms=None, quorum_tick_ms=None,
                 heartbeat_timeout_ms=None):
        del quorum_tick_ms  # the coordinator decides when something changes
        flags = {
            'listen': bind, 'metrics-listen': '', 'torchft-min-replicas': str(min_replicas),
            'torchft-join-timeout': f'{100 if join_timeout_ms is None else join_timeout_ms}ms',
        }
        if heartbeat_timeout_ms is not None:
            flags['torchft-heartbeat-timeout'] = f'{heartbeat_timeout_ms}ms'
        with tempfile.TemporaryDirectory(prefix='cohort') as folder:
            self._start(flags, os.path.join(folder, 'log'), os.path.join(folder, 'port'))

    def _start(self, flags, log, port_file):
        """Starts the coordinator and waits until it serves."""
        command = ['cohort-coordinator', '--insecure', '--until-stdin-closes', '--port-file',
                   port_file]
        for name, value in flags.items():
            command += [f'--{name}', value]
        with open(log, 'w', encoding='utf-8') as output:
            self._process = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        end = time.monotonic() + START_SECONDS
        while not os.path.exists(port_file):
            if self._process.poll() is not None or time.monotonic() > end:
                with open(log, encoding='utf-8') as lines:
                    raise RuntimeError(f'cohort-coordinator does not serve: {lines.read()}')
            time.sleep(0.01)
        with open(port_file, encoding='utf-8') as lines:
            self._port = lines.read().split()[0].rsplit(':', 1)[1]

    def address(self):
        """The address for TORCHFT_LIGHTHOUSE."""
        return f'http://localhost:{self._port}'

    def shutdown(self):
        """Ends the coordinator; its end is not awaited, as with torchft's."""
        self._process.terminate()


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
