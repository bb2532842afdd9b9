"""Daemons of its own for a test, and ranks as threads or as processes."""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Longer than anything here takes, for a wait that should not end by its deadline.
LONG = 60


def eventually(holds, seconds=LONG):
    """Waits until holds()."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline


@contextlib.contextmanager
def _daemon(name, *flags):
    """Runs a daemon and yields its address and its process. Clients wait until it serves."""
    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        address = f'unix:{folder}/{name}'
        with open(os.path.join(folder, 'log'), 'w', encoding='utf-8') as log:
            with subprocess.Popen([f'cohort-{name}', '--listen', address, '--metrics-listen', '',
                                   *flags], stdout=log, stderr=log) as process:
                try:
                    yield address, process
                finally:
                    process.terminate()


@contextlib.contextmanager
def coordinator():
    """Runs a coordinator and yields its address."""
    with _daemon('coordinator') as (address, _):
        yield address


@contextlib.contextmanager
def tcp_coordinator(*addresses, flags=()):
    """Runs a coordinator that listens on these addresses, and yields them with their ports when it
    serves. Raises RuntimeError with its log if it does not serve."""
    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        ports = os.path.join(folder, 'ports')
        # It ends with this process, also if that is killed.
        command = ['cohort-coordinator', '--metrics-listen', '', '--port-file', ports,
                   '--until-stdin-closes', *flags]
        for address in addresses:
            command += ['--listen', address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as process:
            deadline = threading.Timer(LONG, process.kill)
            deadline.start()
            lines = []
            for line in process.stdout:
                lines.append(line)
                if ' serving ' in line:
                    break
            deadline.cancel()
            if not lines or ' serving ' not in lines[-1]:
                raise RuntimeError(f'the coordinator does not serve: {"".join(lines)}')
            # A full pipe would stop it.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            try:
                with open(ports, encoding='utf-8') as file:
                    yield file.read().split()
            finally:
                process.terminate()


class RestartableCoordinator:
    """A coordinator that a test kills and starts again at its address."""

    def __init__(self, folder, journal):
        self.address = f'unix:{folder}/coordinator'
        self._command = ['cohort-coordinator', '--listen', self.address, '--metrics-listen', '']
        if journal:
            self._command += ['--journal', 'sqlite', '--journal-path', f'{folder}/journal']
        self.start()

    def start(self):
        """Starts it; clients wait until it serves."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL,  # pylint: disable=consider-using-with
                                         stderr=subprocess.DEVNULL)

    def kill(self):
        """Kills it by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def pause(self):
        """Stops it by SIGSTOP, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self):
        """Continues it."""
        self._process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def restartable_coordinator(journal=True):
    """Runs a coordinator that can be killed and started again, and yields it."""
    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        running = RestartableCoordinator(folder, journal)
        try:
            yield running
        finally:
            running.kill()


@contextlib.contextmanager
def worker(coordinator_address):
    """Runs a worker daemon, and yields its address and its process."""
    with _daemon('worker', '--coordinator', coordinator_address) as running:
        yield running


def run_ranks(count, body):
    """Runs body(rank) for each rank on a thread of its own. Returns the results, by rank. If some
    fail, raises the error of the lowest of them."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(body, rank) for rank in range(count)]]


@contextlib.contextmanager
def rank_process(program, *arguments):
    """Runs a Python program in a process of its own, and yields it; its output is a pipe of
    lines."""
    with subprocess.Popen([sys.executable, '-u', '-c', program, *map(str, arguments)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
