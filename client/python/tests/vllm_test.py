"""cohort.vllm.StatelessProcessGroup: vLLM's methods, with a coordinator that rank 0 starts."""

import contextlib
import os
import signal
import socket
import ssl
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


def test_tensors_that_cannot_be_are_an_error_and_the_next_ones_are_not(groups):
    def body(group, rank):
        for call in (lambda: group.all_reduce(np.zeros(3 if rank == 1 else 2)),
                     lambda: group.broadcast(np.zeros(2), 3),
                     lambda: group.all_reduce(np.zeros(2), op='bit_xor')):
            with pytest.raises(cohort.InvalidArgument):
                call()
            assert group.all_reduce(np.full(3, rank)).tolist() == [3, 3, 3]
            group.barrier()
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


def test_an_object_that_cannot_be_sent_is_an_error_of_all_ranks(groups):
    def body(group, rank):
        for call in (lambda: group.broadcast_obj(object() if rank == 1 else None, 1),
                     lambda: group.all_gather_obj(object() if rank == 1 else rank)):
            with pytest.raises(cohort.InvalidArgument, match='rank 1: .*; allow_pickle=True') as caught:
                call()
            assert caught.value.culprit == 1
        return group.all_gather_obj(rank)
    assert run(groups, body) == [[0, 1, 2]] * 3


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
import os, signal
child = os.fork()
if child == 0:
    signal.pause()  # until the test kills it
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


# --- The coordinator of rank 0 with the certificates of the environment.

TLS_VARIABLES = ('CERTIFICATE', 'KEY', 'CA')


def make_certificate(folder, *names):
    """Makes a certificate for the names, which is its own CA. Returns the paths by variable."""
    key, certificate = str(folder / 'tls.key'), str(folder / 'tls.crt')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
                    'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=rank', '-addext',
                    f'subjectAltName={",".join(names)}', '-days', '1', '-keyout', key, '-out',
                    certificate], check=True, capture_output=True)
    return {'CERTIFICATE': certificate, 'KEY': key, 'CA': certificate}


def set_variables(monkeypatch, paths, names=TLS_VARIABLES):
    for name in TLS_VARIABLES:
        monkeypatch.delenv(f'COHORT_TLS_{name}', raising=False)
    for name in names:
        monkeypatch.setenv(f'COHORT_TLS_{name}', paths[name])


def refusal(port, rank, host='127.0.0.1'):
    """The text of the error with which a rank refuses. Its store_timeout is longer than the test's."""
    with pytest.raises(cohort.FailedPrecondition) as caught:
        StatelessProcessGroup.create(host, port, rank, 2, store_timeout=10 * LONG)
    assert f'group stateless-{port}, rank {rank}: ' in str(caught.value)
    assert 'or pass address= of a coordinator' in str(caught.value)
    return str(caught.value)


def test_own_coordinator_serves_tls_with_the_certificate_of_the_environment(tmp_path, monkeypatch):
    set_variables(monkeypatch, make_certificate(tmp_path, 'IP:127.0.0.1'))
    port = open_port()
    groups = run_ranks(2, lambda rank: create(port, rank, 2))
    assert run(groups, lambda group, rank: group.all_gather_obj(rank)) == [[0, 1], [0, 1]]
    assert run(groups, lambda group, rank: group.all_reduce(np.ones(1)).tolist()) == [[2], [2]]
    context = ssl.create_default_context(cafile=tmp_path / 'tls.crt')
    with socket.create_connection(('127.0.0.1', port), LONG) as plain, \
            pytest.raises(ssl.SSLError, match='(?i)certificate.required'), \
            context.wrap_socket(plain, server_hostname='127.0.0.1') as stranger:
        stranger.recv(1)
    for group in reversed(groups):
        group.close()


@pytest.mark.parametrize('names, missing', [
    (('CA',), 'COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY'), (('CERTIFICATE', 'KEY'), 'COHORT_TLS_CA'),
    (('CERTIFICATE', 'CA'), 'COHORT_TLS_KEY')])
@pytest.mark.parametrize('rank', [0, 1])
def test_own_coordinator_without_all_variables_is_refused_at_once(tmp_path, monkeypatch, names,
                                                                  missing, rank):
    set_variables(monkeypatch, make_certificate(tmp_path, 'IP:127.0.0.1'), names)
    assert f'cannot serve TLS without {missing}. ' in refusal(open_port(), rank)


@pytest.mark.parametrize('name, text', [('CA', 'COHORT_TLS_CA='), ('KEY', 'COHORT_TLS_KEY=')])
def test_a_certificate_file_that_cannot_be_read(tmp_path, monkeypatch, name, text):
    paths = make_certificate(tmp_path, 'IP:127.0.0.1')
    paths[name] += '.absent'
    set_variables(monkeypatch, paths)
    for rank in range(2):
        with pytest.raises(cohort.FailedPrecondition, match='cannot read') as caught:
            create(open_port(), rank, 2)
        assert f'{text}{paths[name]}' in str(caught.value)


def test_a_certificate_for_another_host_is_refused_at_once(tmp_path, monkeypatch):
    set_variables(monkeypatch, make_certificate(tmp_path, 'DNS:elsewhere'))
    port = open_port()
    error = refusal(port, 0)
    assert 'must be for the name 127.0.0.1' in error and 'COHORT_TLS_CERTIFICATE of rank 0' in error
    with socket.socket() as probe:  # its coordinator has ended
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(('127.0.0.1', port))


def test_a_rank_with_a_certificate_refuses_a_coordinator_without(tmp_path, monkeypatch):
    port = open_port()
    with contextlib.closing(create(port, 0, 1)):
        set_variables(monkeypatch, make_certificate(tmp_path, 'IP:127.0.0.1'))
        assert 'do not agree on TLS' in refusal(port, 1)


def test_a_rank_whose_certificate_the_coordinator_does_not_accept(tmp_path, monkeypatch):
    theirs, ours = tmp_path / 'theirs', tmp_path / 'ours'
    theirs.mkdir()
    ours.mkdir()
    coordinators = make_certificate(theirs, 'IP:127.0.0.1')
    set_variables(monkeypatch, coordinators)
    port = open_port()
    with contextlib.closing(create(port, 0, 1)):
        stranger = make_certificate(ours, 'IP:127.0.0.1')
        set_variables(monkeypatch, stranger)
        assert 'does not accept: self' in refusal(port, 1)
        set_variables(monkeypatch, {**stranger, 'CA': coordinators['CA']})
        assert 'do not agree on TLS' in refusal(port, 1)


def test_a_rank_of_another_host_without_a_certificate_refuses_a_coordinator_with_tls(
        tmp_path, monkeypatch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(('192.0.2.1', 9))  # sends nothing
        except OSError:
            pytest.skip('this host has no address but loopback')
        host = probe.getsockname()[0]
    set_variables(monkeypatch, make_certificate(tmp_path, f'IP:{host}'))
    port = open_port()
    with contextlib.closing(StatelessProcessGroup.create(host, port, 0, 1, store_timeout=LONG)):
        set_variables(monkeypatch, {}, ())
        assert 'serves this host by TLS only' in refusal(port, 1, host)


def test_an_absent_coordinator_is_unavailable_after_store_timeout(tmp_path, monkeypatch):
    set_variables(monkeypatch, make_certificate(tmp_path, 'IP:127.0.0.1'))
    port = open_port()
    with pytest.raises(cohort.Unavailable, match=f'group stateless-{port}, rank 1: the coordinator of '
                                                 'rank 0 at 127.0.0.1 port .* did not answer within 0.1 s'):
        StatelessProcessGroup.create('127.0.0.1', port, 1, 2, store_timeout=0.1)
