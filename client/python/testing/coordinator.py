"""A coordinator of its own for a test, and ranks as threads or as processes."""

import concurrent.futures
import contextlib
import os
import subprocess
import sys
import tempfile

# Longer than anything here takes, for a wait that should not end by its deadline.
LONG = 60


@contextlib.contextmanager
def coordinator():
    """Runs a coordinator and yields its address. Clients wait until it serves."""
    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        address = f'unix:{folder}/coordinator'
        with open(os.path.join(folder, 'log'), 'w', encoding='utf-8') as log:
            with subprocess.Popen(['cohort-coordinator', '--listen', address,
                                   '--metrics-listen', ''], stdout=log, stderr=log) as process:
                try:
                    yield address
                finally:
                    process.terminate()


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
