"""Threads of processes: how many are Cohort's or the program's, and whether one waits."""

import os
import time

from testing.coordinator import LONG

_OF_GRPC = ('event_engine', 'default-execu', 'resolver-exec', 'grpc_', 'nexting_thread',
            'timer_manager')


def threads_without_grpc():
    """gRPC starts and ends threads of its pools when it likes: they are not counted, once they have
    their names."""
    return sum(not name.startswith(_OF_GRPC) for name in _names())


def _names():
    for thread in os.listdir('/proc/self/task'):
        try:
            with open(f'/proc/self/task/{thread}/comm', encoding='ascii') as file:
                yield file.read()
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended


def await_sleep(process, thread=None):
    """Returns when the thread (the main thread) of the process sleeps in the kernel at two looks, as
    it does in a call that waits for another rank. A test may not depend on it: the thread can sleep
    before its call, too. Raises TimeoutError if it never sleeps."""
    end = time.monotonic() + LONG
    path = f'/proc/{process}/task/{thread or process}/stat'
    looks = 0
    while looks < 2:
        with open(path, encoding='ascii') as file:
            state = file.read().rpartition(')')[2].split()[0]
        looks = looks + 1 if state == 'S' else 0
        if time.monotonic() > end:
            raise TimeoutError(f'{path}: the thread did not sleep within {LONG} s')
        time.sleep(.005)
