"""cohort.vllm.StatelessProcessGroup: vLLM's methods, with a coordinator that rank 0 starts."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

import cohort
from cohort.vllm import StatelessProcessGroup
from testing.coordinator import LONG, coordinator, rank_process, run_ranks
from testing.fixtures import run


def open_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def create(port, rank, size, **options):
    return StatelessProcessGroup.create('127.0.0.1', port, rank, size, store_timeout=LONG, **options)


@pytest.fixture(scope='module', name='groups')
def _groups():
    port = open_port()
    groups = run_ranks(3, lambda rank: create(port, rank, 3))
    yield groups
    for group in reversed(groups):
        group.close()


def test_objects(groups):
    value = {'model': 'opt', 'ranks': (0, 1), 'weights': b'\0'}
    def body(group, rank):
        assert group.broadcast_obj(value if rank == 1 else None, 1) == value
        assert group.all_gather_obj([rank]) == [[0], [1], [2]]
        # Two senders to one receiver do not overwrite each other's objects.
        if rank < 2:
            for number in range(5):
                group.send_obj((rank, number), 2)
        else:
            assert [group.recv_obj(1) for _ in range(5)] == [(1, n) for n in range(5)]
            assert [group.recv_obj(0) for _ in range(5)] == [(0, n) for n in range(5)]
        group.expire_data()
        for _ in range(100):
            group.barrier()
    run(groups, body)


def test_tensors(groups):
    def body(group, rank):
        assert group.all_reduce(np.full(3, rank)).tolist() == [3, 3, 3]
        assert group.broadcast(np.full(2, rank), 2).tolist() == [2, 2]
        if rank == 1:
            group.send(np.arange(3), 0)
            group.send(np.arange(4), 0)
        if rank == 0:
            assert group.recv(np.empty(3), 1).tolist() == [0, 1, 2]
            with pytest.raises(ValueError, match='rank 1 sent a tensor of shape'):
                group.recv(np.empty(3), 1)
        gathered = group.gather(np.full(2, rank), 0)
        assert rank != 0 or [array.tolist() for array in gathered] == [[0, 0], [1, 1], [2, 2]]
        assert rank == 0 or gathered is None
    run(groups, body)


def test_barrier_names_the_missing_ranks():
    port = open_port()
    groups = run_ranks(3, lambda rank: create(port, rank, 3))

    def rank_0_waits_in_vain():
        with pytest.raises(RuntimeError, match='rank') as caught:
            groups[0].barrier(timeout=0.3)
        assert caught.value.missing == (1, 2)

    for _ in range(3):
        run(groups, lambda group, _: group.barrier())
    rank_0_waits_in_vain()
    for group in groups[1:]:
        with pytest.raises(cohort.Aborted, match='rank 0 gave up'):
            group.barrier()
    # Without shared memory.
    run(groups, lambda group, _: group.barrier())
    rank_0_waits_in_vain()
    for group in reversed(groups):
        with pytest.raises(cohort.Error, match='rank 0 gave up|rank 1-2 did not come'):
            group.all_reduce(np.ones(1))
        group.close()


def test_killed_rank_ends_the_first_barrier():
    port = open_port()
    with rank_process(RANK_1, port) as victim:
        group = create(port, 0, 2)
        assert victim.stdout.readline() == 'ready\n'
        victim.kill()
        with pytest.raises(cohort.Aborted, match='rank 1 is gone'):
            group.barrier(LONG)
        group.close()


def test_port_that_is_taken():
    with socket.socket() as other:
        other.bind(('127.0.0.1', 0))
        other.listen()
        with pytest.raises(cohort.Unavailable, match='could not serve'):
            create(other.getsockname()[1], 0, 1)


def test_coordinator_that_does_not_come_up(tmp_path, monkeypatch):
    program = tmp_path / 'cohort-coordinator'
    program.write_text('#!/bin/sh\nexec cat\n')  # until its standard input closes
    program.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
    with pytest.raises(cohort.DeadlineExceeded, match='does not serve on 127.0.0.1'):
        StatelessProcessGroup.create('127.0.0.1', open_port(), 0, 1, store_timeout=0.2)


def test_listen_socket_keeps_the_port():
    with socket.socket() as listening:
        listening.bind(('127.0.0.1', 0))
        listening.listen()
        port = listening.getsockname()[1]
        def body(rank):
            return create(port, rank, 2, **({} if rank else {'listen_socket': listening}))
        groups = run_ranks(2, body)
    assert run(groups, lambda group, rank: group.all_gather_obj(rank)) == [[0, 1]] * 2
    for group in reversed(groups):
        group.close()


THIEF = '''
import socket, sys
print('ready', flush=True)
port = int(sys.argv[1])
while True:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(('0.0.0.0', port))
            taken.listen()
        except OSError:
            continue
        print('taken', flush=True)
        break
'''


def test_listen_socket_is_never_free_for_another_process():
    """The coordinator takes the socket over, also one that is bound to all addresses."""
    for _ in range(100):
        with socket.socket() as listening:
            listening.bind(('0.0.0.0', 0))
            listening.listen()
            port = listening.getsockname()[1]
            with subprocess.Popen([sys.executable, '-c', THIEF, str(port)],
                                  stdout=subprocess.PIPE) as thief:
                try:
                    assert thief.stdout.readline() == b'ready\n'
                    group = create(port, 0, 1, listen_socket=listening)
                    assert thief.poll() is None
                finally:
                    thief.kill()
            assert listening.fileno() == -1
            group.close()


def test_connections_that_wait_in_the_queue_are_served():
    with socket.socket() as listening:
        listening.bind(('127.0.0.1', 0))
        listening.listen()
        port = listening.getsockname()[1]
        with socket.create_connection(('127.0.0.1', port), LONG) as early:
            group = create(port, 0, 1, listen_socket=listening)
            early.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0')
            assert early.recv(9), 'the coordinator does not answer'
            group.close()


def test_listen_socket_of_another_kind():
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind('')  # a name that the kernel chooses
        with pytest.raises(cohort.Unavailable, match='could not serve'):
            create(open_port(), 0, 1, listen_socket=listening)


def test_pickle_is_off(groups):
    with pytest.raises(TypeError, match='allow_pickle'):
        groups[0].send_obj(object(), 1)


def test_coordinator_that_runs_elsewhere():
    with coordinator() as address:
        def body(rank):
            group = create(1, rank, 2, address=address, allow_pickle=True)
            objs = group.all_gather_obj(complex(rank, 1))
            group.barrier()
            group.close()
            return objs
        assert run_ranks(2, body) == [[complex(0, 1), complex(1, 1)]] * 2


RANK_1 = '''
import sys, time
from cohort.vllm import StatelessProcessGroup
group = StatelessProcessGroup.create('127.0.0.1', int(sys.argv[1]), 1, 2)
print("ready", flush=True)
sys.stdin.readline()
'''

RANK_0 = '''
import sys
from cohort.vllm import StatelessProcessGroup
group = StatelessProcessGroup.create('127.0.0.1', int(sys.argv[1]), 0, 1)
print("ready", flush=True)
sys.stdin.readline()
'''


# Its child keeps its descriptors, and lives on.
FORKED_RANK_0 = RANK_0.replace('print("ready"', '''
import os, time
child = os.fork()
if child == 0:
    time.sleep(300)  # until the test kills it
    os._exit(0)
print(child, flush=True)
print("ready"''')


@pytest.mark.parametrize('program', [RANK_0, FORKED_RANK_0], ids=['alone', 'with a child'])
def test_coordinator_ends_with_a_killed_rank_0(program):
    port = open_port()
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(rank_process(program, port))
        if program is FORKED_RANK_0:
            stack.callback(os.kill, int(process.stdout.readline()), signal.SIGKILL)
        assert process.stdout.readline() == 'ready\n'
        with socket.create_connection(('127.0.0.1', port), LONG) as connection:
            process.kill()
            connection.settimeout(LONG)
            while connection.recv(4096):  # until the coordinator closes the connection
                pass
