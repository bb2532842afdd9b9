"""cohort.MessageQueue: values, views, options and errors."""

import fractions
import gc
import os
import resource
import subprocess
import zlib

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, rank_process, run_ranks
from testing.fixtures import address_fixture, groups_fixture, queue_pair_fixture

RANKS = 3

_address = address_fixture()
_groups = groups_fixture('queues', RANKS)
_pair = queue_pair_fixture()


def value_of(number):
    """Values of many sizes, each with its own bytes."""
    return bytes([number % 251]) * ((0, 1, 15, 1000, 65536, 200000)[number % 6])


@pytest.mark.parametrize('writer_rank', range(RANKS))
def test_every_reader_gets_every_value_in_order(groups, writer_rank):
    def body(rank):
        # The writer closes its end when it has written.
        with cohort.MessageQueue(groups[rank], writer_rank, block_bytes=1 << 20, blocks=1) as queue:
            assert queue.is_writer == (rank == writer_rank)
            assert queue.path == ('self' if queue.is_writer else 'shared memory')
            assert bool(queue.handle) == queue.is_writer
            assert f'rank {writer_rank}' in queue.name and '"queues"' in queue.name
            for i in range(300):
                expected = value_of(i)
                if i % 3 == 0:
                    assert queue.broadcast(expected if queue.is_writer else None) == expected
                elif queue.is_writer:
                    queue.enqueue(expected)
                elif i % 3 == 1:
                    assert queue.dequeue() == expected
                else:
                    with queue.dequeue_view() as view:
                        assert view == expected
            if not queue.is_writer:
                with pytest.raises(cohort.Cancelled, match='close'):
                    queue.dequeue()
    run_ranks(RANKS, body)


def test_anything_contiguous_is_a_value(pair):
    writer, reader = pair
    for value in (b'ab', bytearray(b'ab'), memoryview(b'xaby')[1:3], np.array([25185], '<u2')):
        writer.enqueue(value)
        assert reader.dequeue() == b'ab'
    writer.enqueue(np.zeros((2, 3)))
    assert reader.dequeue() == bytes(48)


def test_objects(pair):
    writer, reader = pair
    half = fractions.Fraction(1, 2)
    for obj in (b'ab', None, {'step': 1, 'ids': [2, (3, 'four')]}, 'text', 7):
        writer.enqueue_object(obj)
        assert reader.dequeue_object() == obj
    writer.enqueue_object(np.arange(3))
    assert reader.dequeue_object().tolist() == [0, 1, 2]
    writer.enqueue(cohort.values.encode(1))  # bytes are bytes, whatever they mean
    assert cohort.values.decode(reader.dequeue_object()) == 1
    writer.enqueue_object(half, pickle=True)
    assert reader.dequeue_object(pickle=True) == half
    assert writer.broadcast_object([1], timeout=9) == reader.broadcast_object(timeout=9) == [1]


def test_objects_that_are_refused(pair):
    writer, reader = pair
    half = fractions.Fraction(1, 2)
    with pytest.raises(TypeError, match='cannot send a fractions.Fraction: .*pickle=True'):
        writer.enqueue_object(half)
    with pytest.raises(cohort.DeadlineExceeded):
        reader.dequeue_object(timeout=0)
    writer.enqueue_object(half, pickle=True)
    with pytest.raises(cohort.InvalidArgument, match='dequeue_object: the value is pickled; '
                       'pass pickle=True if you trust the writer') as caught:
        reader.dequeue_object()
    assert reader.name in str(caught.value)
    # Other ends wait for a broadcast.
    for end in pair:
        with pytest.raises(cohort.InvalidArgument, match='broadcast_object: cannot send a '):
            end.broadcast_object(half)
    writer.enqueue_object(1)
    assert reader.dequeue_object() == 1


@pytest.mark.parametrize('ring', [24 << 20, 160 << 20], ids=['in parts', 'whole'])
def test_large_values(groups, ring):
    value = np.arange(8 << 20).tobytes()  # 64 MiB
    def body(rank):
        with cohort.MessageQueue(groups[rank], block_bytes=ring, blocks=1) as queue:
            if queue.is_writer:
                queue.enqueue(value)
                queue.enqueue(memoryview(value)[8:])
            else:
                assert queue.dequeue() == value
                with queue.dequeue_view() as view:
                    assert view == memoryview(value)[8:]
    run_ranks(RANKS, body)


def groups_on_two_hosts(address, name):
    return run_ranks(2, lambda rank: cohort.Group(name, rank=rank, world_size=2, address=address,
                                                  host_identity=f'host {rank}'))


def path_between(groups):
    """Sends values from rank 1 to rank 0, and returns the path of the reader."""
    def body(rank):
        with groups[rank] as group, cohort.MessageQueue(group, 1, block_bytes=1 << 16, blocks=1) as queue:
            for i in range(100):
                if queue.is_writer:
                    queue.enqueue(value_of(i))
                else:
                    assert queue.dequeue() == value_of(i)
            group.all_gather_objects(b'')
            return queue.path
    return run_ranks(2, body)[0]


def test_readers_of_other_hosts(address):
    assert path_between(groups_on_two_hosts(address, 'hosts')).startswith('stream ')


def test_readers_of_other_hosts_by_tls(address, tmp_path, monkeypatch):
    key, certificate = tmp_path / 'tls.key', tmp_path / 'tls.crt'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                    '-subj', '/CN=rank', '-days', '1', '-keyout', key, '-out', certificate],
                   check=True, capture_output=True)
    groups = groups_on_two_hosts(address, 'tls')
    # Both ends have the certificate, which is its own CA.
    for name, path in {'CERTIFICATE': certificate, 'KEY': key, 'CA': certificate}.items():
        monkeypatch.setenv(f'COHORT_TLS_{name}', str(path))
    assert path_between(groups).startswith('tls stream ')


READER = '''
import sys, zlib
import cohort
address, rank = sys.argv[1], int(sys.argv[2])
with cohort.Group("processes", rank=rank, world_size=3, address=address) as group:
    with cohort.MessageQueue(group, timeout=60) as queue:
        digest = 0
        try:
            while True:
                digest = zlib.crc32(queue.dequeue(), digest)
        except cohort.Cancelled as error:
            print(digest, error, flush=True)
'''


def test_other_processes_read(address):
    with rank_process(READER, address, 1) as first, rank_process(READER, address, 2) as second:
        with cohort.Group('processes', rank=0, world_size=3, address=address) as group:
            queue = cohort.MessageQueue(group)
            digest = 0
            for i in range(500):
                queue.enqueue(value_of(i))
                digest = zlib.crc32(value_of(i), digest)
            queue.shutdown('all are written')
            for process in (first, second):
                line = process.stdout.readline()
                assert line.startswith(f'{digest} ') and 'all are written' in line
                assert process.wait(LONG) == 0


def test_group_reads_a_writer_outside_of_it(groups):
    with cohort.MessageQueue.create_external('commands') as writer:
        queues = run_ranks(RANKS, lambda rank: cohort.MessageQueue(
            groups[rank], external_writer=writer.handle))
        writer.await_readers(RANKS)
        writer.enqueue(b'go')
        assert [queue.dequeue() for queue in queues] == [b'go'] * RANKS
        assert sorted(reader.name for reader in writer.readers()) == ['rank 0', 'rank 1', 'rank 2']
        for queue in queues:
            queue.close()


def test_view_is_read_only_and_in_place(pair):
    writer, reader = pair
    writer.enqueue(b'first value')
    writer.enqueue(b'second')
    with reader.dequeue_view() as view:
        assert view == b'first value' and view.nbytes == 11
        with pytest.raises(TypeError):
            view[0] = 1
        assert writer.readers()[0].values_behind == 2  # the writer keeps the place
        with pytest.raises(cohort.FailedPrecondition, match='a view of one is open'):
            reader.dequeue()
        with pytest.raises(cohort.FailedPrecondition, match='a view of one is open'):
            with reader.dequeue_view():
                pass
    assert writer.readers()[0].values_behind == 1
    with pytest.raises(ValueError, match='released'):
        view[0]  # pylint: disable=pointless-statement
    assert reader.dequeue() == b'second'


@pytest.mark.parametrize('use', [lambda view: view[1:], lambda view: np.frombuffer(view, 'u1')],
                         ids=['slice', 'array'])
def test_view_that_is_in_use_keeps_its_place(pair, use):
    writer, reader = pair
    writer.enqueue(b'value')
    with pytest.raises(BufferError, match='in use after the with'):
        with reader.dequeue_view() as view:
            kept = use(view)
    assert bytes(kept)[-1:] == b'e'
    assert writer.readers()[0].values_behind == 1
    del view, kept
    gc.collect()
    assert writer.readers()[0].values_behind == 0
    writer.enqueue(b'next')
    assert reader.dequeue() == b'next'


def test_error_within_a_view_comes_out(pair):
    writer, reader = pair
    writer.enqueue(b'value')
    def look():
        with reader.dequeue_view() as view:
            array = np.frombuffer(view, 'u1')
            raise KeyError(len(array))
    with pytest.raises(KeyError, match='5'):
        look()


def test_methods_of_the_other_end(pair):
    writer, reader = pair
    for call in (writer.dequeue, lambda: writer.dequeue_view().__enter__(),
                 lambda: reader.enqueue(b''), lambda: reader.await_readers(1)):
        with pytest.raises(cohort.FailedPrecondition, match='is not a call of its'):
            call()
    assert reader.readers() == reader.departures() == []


def test_wrong_options_fail_on_all_ranks(groups):
    for options in ([{'writer_rank': 7}] * 3, [{'writer_rank': 0}, {}, {'writer_rank': 1}],
                    [{}, {'blocks': 3}, {}], [{}, {'timeout': 0}, {}],
                    [{}, {'external_writer': b'no handle'}, {}]):
        def body(rank):
            with pytest.raises(cohort.InvalidArgument):
                cohort.MessageQueue(groups[rank], **options[rank])  # pylint: disable=cell-var-from-loop
        run_ranks(RANKS, body)
    assert run_ranks(RANKS, lambda rank: groups[rank].all_reduce(np.ones(1))[0]) == [3] * RANKS


# Wrong calls, with a part of the error's text.
WRONG = {
    'text': (lambda w, r: w.enqueue('text'), 'value: expected a bytes-like object'),
    'nothing': (lambda w, r: w.enqueue(None), 'value: expected a bytes-like object'),
    'strides': (lambda w, r: w.enqueue(np.ones(9)[::2]), 'value: expected a bytes-like object'),
    'timeout': (lambda w, r: w.enqueue(b'', 'soon'), 'timeout: expected a number'),
    'no number': (lambda w, r: r.dequeue(float('nan')), 'timeout: expected seconds'),
    'negative': (lambda w, r: r.dequeue_view(-1).__enter__(), 'timeout: expected seconds'),
    'count': (lambda w, r: w.await_readers('all'), 'count: expected an int'),
    'reason': (lambda w, r: r.shutdown(5), 'reason: expected a str'),
    'too large': (lambda w, r: w.enqueue(bytes(2000)), 'max_value_bytes is 1000'),
    'no value': (lambda w, r: r.dequeue(0), 'no value came'),
    'no readers': (lambda w, r: w.await_readers(2, 0), '1 of 2 readers'),
    'handle': (lambda w, r: cohort.MessageQueue.open(b'nonsense', 'x'), ''),
    'no handle': (lambda w, r: cohort.MessageQueue.open(5, 'x'), 'handle: expected a str or bytes'),
    'empty ring': (lambda w, r: cohort.MessageQueue.create_external('x', blocks=0), 'blocks 0'),
    'huge ring': (lambda w, r: cohort.MessageQueue.create_external('x', blocks=1 << 60), 'range'),
    'address': (lambda w, r: cohort.MessageQueue.create_external('x', listen='no-address'), 'no-address'),
    'name': (lambda w, r: cohort.MessageQueue.create_external(5), 'name: expected a str'),
    'no group': (lambda w, r: cohort.MessageQueue('group'), '_core'),
    'closed writer': (lambda w, r: cohort.MessageQueue.open(closed_handle(), 'x'), ''),
}
ERRORS = (cohort.Error, ValueError, TypeError, AttributeError)


def closed_handle():
    with cohort.MessageQueue.create_external('closed', blocks=1, block_bytes=4096) as writer:
        return writer.handle


@pytest.mark.parametrize('name', WRONG)
def test_wrong_calls(name):
    wrong, text = WRONG[name]
    with cohort.MessageQueue.create_external('wrong', max_value_bytes=1000) as writer:
        with cohort.MessageQueue.open(writer.handle, 'the reader') as reader:
            with pytest.raises(ERRORS) as caught:
                wrong(writer, reader)
            assert text in str(caught.value)
            writer.enqueue(b'right')
            assert reader.dequeue() == b'right'


def test_a_thousand_errors_and_queues_leak_nothing():
    def use(count):
        with cohort.MessageQueue.create_external('wrong', max_value_bytes=1000) as writer:
            with cohort.MessageQueue.open(writer.handle, 'the reader') as reader:
                for _ in range(count):
                    for wrong, _ in WRONG.values():
                        with pytest.raises(ERRORS):
                            wrong(writer, reader)
                    writer.enqueue(bytes(900))
                    with reader.dequeue_view() as view:
                        assert len(view) == 900
        gc.collect()

    use(200)
    files = len(os.listdir('/proc/self/fd'))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    use(1000)
    assert len(os.listdir('/proc/self/fd')) <= files
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB
