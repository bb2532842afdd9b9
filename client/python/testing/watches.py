"""A coordinator that tests of watches kill, stop and ask for its open streams."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import urllib.request

import pytest

import cohort
from testing.coordinator import LONG, eventually


class Coordinator:
    """A coordinator that a test kills and starts again at the same address."""

    def __init__(self, folder, *flags):
        self.address = f'unix:{folder}/coordinator'
        self._log = os.path.join(folder, 'log')
        self._flags = flags
        self._process = None
        self.start()

    def start(self):
        """Starts it; clients wait until it serves."""
        with open(self._log, 'w', encoding='utf-8') as log:
            self._process = subprocess.Popen(  # pylint: disable=consider-using-with
                ['cohort-coordinator', '--listen', self.address, '--metrics-listen', '127.0.0.1:0',
                 *self._flags], stdout=log, stderr=log)

    def kill(self):
        """Kills it by SIGKILL."""
        self._process.kill()
        self._process.wait(LONG)

    @contextlib.contextmanager
    def stopped(self):
        """Stops all its threads for the statement."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _metrics(self):
        def port():
            with open(self._log, encoding='utf-8') as log:
                return re.search(r'metrics_port\W+(\d+)', log.read())
        eventually(port)
        with urllib.request.urlopen(f'http://127.0.0.1:{port()[1]}/metrics') as page:
            return page.read().decode()

    def streams(self):
        """How many watches are open."""
        count = 0
        for line in self._metrics().splitlines():
            if 'grpc_method="Watch' in line and 'server_' in line and '_total' in line:
                value = int(float(line.rsplit(' ', 1)[1]))
                count += value if line.startswith('grpc_server_started') else -value
        return count


def watch(store, prefix, *arguments, **options):
    """A watch that ends in any case."""
    return store.watch(prefix, *arguments, **{'timeout': LONG, **options})


@contextlib.contextmanager
def running(*flags):
    """Runs a coordinator with these flags, and yields it when it serves."""
    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        made = Coordinator(folder, *flags)
        try:
            with cohort.Store(made.address) as client:
                client.get('ready')
            yield made
        finally:
            made.kill()


def run(coroutine):
    """Runs it on a loop of its own, with a deadline."""
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


def coordinator_fixture():
    """Returns the fixture `coordinator`, for all tests of a file."""
    @pytest.fixture(scope='module', name='coordinator')
    def fixture():
        with running() as made:
            yield made
    return fixture


def store_fixture():
    """Returns the fixture `store`, a client of the fixture `coordinator`. After each test no watch
    is open."""
    @pytest.fixture(name='store')
    def fixture(coordinator):
        with cohort.Store(coordinator.address) as store:
            yield store
        eventually(lambda: coordinator.streams() == 0)
    return fixture
