"""Sandboxes that refuse memfd_create, or allow it only with MFD_NOEXEC_SEAL."""

import contextlib
import subprocess
import sys

import pytest

from testing.coordinator import LONG, coordinator

FILTERS = ['refused', 'noexec']

MEMFD = '''
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.memfd_create(b"plain", 1) == -1 and ctypes.get_errno() == errno.EPERM
assert (libc.memfd_create(b"noexec", 1 | 8) >= 0) == (sys.argv[1] == "noexec")
'''

RANK = '''
import sys
import numpy
import cohort
address, rank, size, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with cohort.Group("sandbox", rank=rank, world_size=size, address=address, timeout=30) as group:
    total = numpy.full(100_000, rank + 1.0, numpy.float32)
    group.all_reduce(total, out=total)
    assert (total == size * (size + 1) / 2).all()
    if size > 1:
        assert path in group.paths[1 - rank], group.paths
        with cohort.MessageQueue(group, 0, block_bytes=1 << 16, blocks=1) as queue:
            for i in range(20):
                value = bytes([i]) * 40_000
                assert queue.broadcast(value if rank == 0 else None) == value
    group.all_gather_objects(b"")
'''

REMOTE = '''
import sys
import numpy
import cohort
with cohort.Group("remote", rank=int(sys.argv[1]), world_size=2, worker=sys.argv[2],
                  attached=False, timeout=30) as group:
    total = numpy.ones(1000, numpy.float32)
    group.all_reduce(total, out=total)
    assert (total == 2).all()
'''


def run_all(*commands):
    """Runs the commands at once; each ends without an error."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE,  # pylint: disable=consider-using-with
                                stderr=subprocess.STDOUT, text=True) for command in commands]
    try:
        for process in running:
            text = process.communicate(timeout=LONG)[0]
            assert process.returncode == 0, text
    finally:
        for process in running:
            process.kill()
            process.wait()


def under(kind, *command):
    """The command under a filter; without one if `kind` is empty."""
    return [sys.executable, '-m', 'testing.sandbox', kind, *command] if kind else list(command)


def program(text, *arguments):
    return [sys.executable, '-c', text, *map(str, arguments)]


@pytest.mark.parametrize('kind', FILTERS)
def test_the_filter_refuses_the_call(kind):
    run_all(under(kind, *program(MEMFD, kind)))


@pytest.mark.parametrize('kind', FILTERS)
def test_a_group_of_one_rank(kind):
    with coordinator() as address:
        run_all(under(kind, *program(RANK, address, 0, 1, '')))


@pytest.mark.parametrize('kinds,path', [
    (('refused', 'refused'), 'tcp'), (('refused', ''), 'tcp'), (('', 'refused'), 'tcp'),
    (('noexec', 'noexec'), 'shared memory'), (('noexec', ''), 'shared memory')])
def test_a_group_and_a_queue_of_two_ranks(kinds, path):
    with coordinator() as address:
        run_all(*(under(kind, *program(RANK, address, rank, 2, path))
                  for rank, kind in enumerate(kinds)))


@pytest.mark.parametrize('kind', FILTERS)
def test_the_tool_measures(kind):
    with coordinator() as address:
        run_all(under(kind, 'cohort', 'perf', 'all_reduce', '--members', '2', '--sizes', '64K',
                      '--iterations', '2', '--coordinator', address))


@pytest.mark.parametrize('kind', FILTERS)
def test_ranks_in_worker_daemons(kind, tmp_path):
    """The clients call the daemons; without memfd_create, no process can use a daemon's memory."""
    with coordinator() as address:
        listen = [f'unix:{tmp_path}/{rank}' for rank in range(2)]
        with contextlib.ExitStack() as stack:
            for where in listen:
                daemon = stack.enter_context(subprocess.Popen(
                    under(kind, 'cohort-worker', '--listen', where, '--metrics-listen', '',
                          '--coordinator', address)))
                stack.callback(daemon.terminate)
            run_all(*(under(kind, *program(REMOTE, rank, where))
                      for rank, where in enumerate(listen)))
