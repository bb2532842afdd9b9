"""Calls with planted faults, by which the matrix is tested: they use nothing of Cohort but its errors.

A toy call waits until the other rank has called, by files in the folder of the pair. The toy without a
fault keeps every rule, and each of the others breaks one of them in one event.
"""

import atexit
import os
import signal
import threading
import time

import cohort
from matrix.calls import COLLECTIVE, Context, add

# The fault of a toy: see `_wait`.
FAULTS = (
    'none', 'hangs', 'late', 'nameless', 'other class', 'aborts', 'wrong value', 'skips its turn',
    'mixes turns', 'ends by signal', 'never looks', 'works in a child', 'late end', 'other status',
    'fault of the matrix', 'early')


def _path(c, what, rank):
    return os.path.join(c.folder, f'{what}-{rank}')


def _write(c, what, text=''):
    temporary = _path(c, f'.{what}', c.rank)
    with open(temporary, 'w', encoding='utf-8') as file:
        file.write(text)
    os.rename(temporary, _path(c, what, c.rank))


def _read(c, what, rank):
    try:
        with open(_path(c, what, rank), encoding='utf-8') as file:
            return file.read()
    except FileNotFoundError:
        return None


def _is_gone(c, rank):
    return (_read(c, 'left', rank) is not None
            or not os.path.exists(f'/proc/{_read(c, "pid", rank)}'))


class _Toy:
    """One rank of a toy group."""

    def __init__(self, c, fault):
        self.turn = 0
        self.pid = os.getpid()
        self.closed = threading.Event()
        self.signals = 0
        _write(c, 'pid', str(self.pid))
        if fault == 'late end':
            atexit.register(threading.Event().wait, 5)
        elif fault == 'other status':
            atexit.register(os._exit, 3)


def _fail(c, fault, rank):
    if fault == 'hangs':
        threading.Event().wait()
    if fault == 'late':
        threading.Event().wait(3)
    if fault == 'aborts':
        os.kill(os.getpid(), signal.SIGABRT)
    if fault == 'other class':
        raise KeyError(f'rank {rank} is gone')
    if fault == 'nameless':
        raise cohort.Aborted('some rank is gone')
    raise cohort.Aborted(f'rank {rank} is gone', culprit=rank)


def _wait(c: Context, fault: str):
    """Returns the values of all ranks in this turn, when all have called."""
    toy = c.group
    if os.getpid() != toy.pid and fault != 'works in a child':
        raise cohort.FailedPrecondition('this process was forked')
    if os.getpid() != toy.pid:
        return []
    wrong = c.variant != 'right'
    if wrong and fault == 'skips its turn':
        raise cohort.InvalidArgument(f'the argument of rank {c.rank}')
    toy.turn += 1
    turn = f'turn{toy.turn}'
    _write(c, turn, 'wrong' if wrong else str(c.value(c.rank)))
    if fault == 'early':
        return [c.value(rank) for rank in range(c.size)]
    began, signals = time.monotonic(), toy.signals
    while missing := [rank for rank in range(c.size) if _read(c, turn, rank) is None]:
        if toy.closed.wait(0.003):
            raise cohort.Cancelled('close() was called')
        if fault == 'ends by signal' and toy.signals != signals:
            raise cohort.Cancelled('this process got a signal')
        for rank in missing:
            if _is_gone(c, rank):
                _fail(c, fault, rank)
        if time.monotonic() - began > (c.timeout or c.patience):
            raise cohort.DeadlineExceeded(f'rank {missing[0]} did not come', missing=missing)
    values = [_read(c, turn, rank) for rank in range(c.size)]
    if wrong and fault == 'mixes turns':
        toy.turn -= 1
    for rank, value in enumerate(values):
        if value == 'wrong':
            raise cohort.InvalidArgument(f'the argument of rank {rank}')
    return [int(value) for value in values]


def _watch_signals(c):
    """Counts the signals that come, before their handlers of Python run."""
    toy, before = c.group, signal.signal

    def set_handler(number, handler):
        def counting(*arguments):
            toy.signals += 1
            return handler(*arguments)
        return before(number, counting)
    signal.signal = set_handler


def _block(number):
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])


def _prepare(c, fault):
    if fault == 'fault of the matrix':
        raise AssertionError('planted')
    c.group = _Toy(c, fault)
    if fault == 'ends by signal':
        _watch_signals(c)
    elif fault == 'never looks':
        _block(signal.SIGUSR1)
    for rank in range(c.size):
        while _read(c, 'pid', rank) is None:
            threading.Event().wait(0.003)


def _run(c, fault):
    total = sum(_wait(c, fault))
    return total + (fault == 'wrong value')


def _leave(c):
    _write(c, 'left')
    c.group.closed.set()


for _fault in FAULTS:
    add(name=_fault.replace(' ', '_'), front='planted', kind=COLLECTIVE, mode='block', form='self',
        run=lambda c, fault=_fault: _run(c, fault), expect=lambda c: c.total,
        prepare=lambda c, fault=_fault: _prepare(c, fault),
        follow=lambda c, fault=_fault: _run(c, fault), follow_expected=lambda c: c.total,
        rejoin=lambda c: setattr(c.group, 'turn', 100), leave=_leave,
        close=lambda c, _: _leave(c), wrong=('type',))
