"""cohort.ProcessGroup against a coordinator."""

import threading

import pytest

import cohort
from cohort import VoteOp
from testing.coordinator import LONG, coordinator, run_ranks
from testing.fixtures import address_fixture

_address = address_fixture()


def join(name, rank, address, size=2, **options):
    return cohort.ProcessGroup(name, rank=rank, world_size=size, address=address, timeout=LONG,
                               **options)


def test_objects(address):
    def body(rank):
        with join('objects', rank, address) as group:
            assert (group.name, group.rank, group.size) == ('objects', rank, 2)
            assert (group.member, group.generation) == (f'rank-{rank}', 1)
            assert group.all_gather(b'%d' % rank) == [b'0', b'1']
            assert group.gather(b'%d' % rank, 1) == ([b'0', b'1'] if rank == 1 else [])
            assert group.broadcast(b'\0\xff' if rank == 0 else None, 0) == b'\0\xff'
            assert group.scatter([b'a', b'b'] if rank == 0 else [], 0) == (b'a', b'b')[rank]
            if rank == 0:
                group.send(memoryview(b'first'), 1)
                group.send(b'second', 1)
                group.send(b'', 1, tag='other')
            else:
                assert group.receive(0, tag='other') == b''
                assert group.receive(0) == b'first'
                assert group.receive_any() == (b'second', 0)
            assert group.expire_data() == 0
            group.barrier()
    run_ranks(2, body)


def test_agreement(address):
    def body(rank):
        with join('agreement', rank, address, 3) as group:
            assert group.vote(rank + 1, VoteOp.SUM) == (6, ())
            assert group.vote(rank, VoteOp.MAX).value == 2
            assert group.vote(int(rank == 1), VoteOp.EQUAL).dissenting == (1,)
            if rank < 2:
                group.barrier(name='pair', participants=[0, 1])
            assert group.agree_alive() == (0, 1, 2)
            group.barrier()
    run_ranks(3, body)


def test_a_timeout_of_zero_polls(address):
    first, second = run_ranks(2, lambda rank: join('polls', rank, address, 2))
    with pytest.raises(cohort.DeadlineExceeded):
        first.receive(1, timeout=0)
    with pytest.raises(ValueError, match='timeout: expected seconds, 0 or more, got -1'):
        first.receive(1, timeout=-1)
    second.send(b'here', 0)
    assert first.receive(1, timeout=0) == b'here'
    first.close()
    second.close()


def test_barrier_names_the_missing_ranks(address):
    groups = run_ranks(3, lambda rank: join('missing', rank, address, 3))
    with pytest.raises(cohort.DeadlineExceeded, match='ranks 1-2') as caught:
        groups[0].barrier(timeout=0.3)
    assert caught.value.missing == (1, 2)
    assert caught.value.group == 'missing'
    assert caught.value.generation == 1
    assert 'barrier' in caught.value.operation
    assert isinstance(caught.value, TimeoutError)
    # The members that come late get the error of that barrier, and the next one works.
    for group in groups[1:]:
        with pytest.raises(cohort.DeadlineExceeded):
            group.barrier()
    run_ranks(3, lambda rank: groups[rank].barrier())
    for group in groups:
        group.close()


def test_join_names_the_missing_ranks(address):
    with pytest.raises(cohort.DeadlineExceeded, match='rank 1') as caught:
        join('alone', 0, address, join_timeout=0.3)
    assert caught.value.missing == (1,)


def test_disagreement_names_both_sides(address):
    first = []
    thread = threading.Thread(target=lambda: first.append(
        join('disagree', 0, address, parameters_digest='digest-0')))
    thread.start()
    store = cohort.Store(address, group='disagree')
    while True:
        try:
            store.get('nothing')  # until the group is there
            break
        except cohort.NotFound:
            pass
    with pytest.raises(cohort.FailedPrecondition, match='digest-0'.encode().hex()) as caught:
        join('disagree', 1, address, parameters_digest='digest-1')
    assert 'digest-1'.encode().hex() in str(caught.value)
    join('disagree', 1, address, parameters_digest='digest-0').close()
    thread.join(LONG)
    first[0].close()


def test_lost_member_is_the_culprit_and_the_others_rejoin(address):
    def body(rank):
        group = join('lost', rank, address)
        if rank == 1:
            group.report_error('out of memory', fatal=True)
        with pytest.raises(cohort.Aborted) as caught:
            while True:
                group.barrier()
        group.rejoin()
        assert group.generation == 2
        group.barrier()
        group.close()
        return caught.value
    for error in run_ranks(2, body):
        assert error.culprit == 1
        assert error.culprit_member == 'rank-1'
        assert error.cause == 'reported'
        assert 'out of memory' in str(error)


def test_interpreter_runs_while_a_call_waits(address):
    groups = run_ranks(2, lambda rank: join('waits', rank, address))
    received = []
    thread = threading.Thread(target=lambda: received.append(groups[1].receive(0)))
    thread.start()
    # This thread could not send if the other one held the interpreter's lock.
    groups[0].send(b'x', 1)
    thread.join(LONG)
    assert received == [b'x']
    for group in groups:
        group.close()


def test_closed_group(address):
    groups = run_ranks(2, lambda rank: join('closed', rank, address))
    groups[0].leave('done')
    for group in groups:
        group.close()
        group.close()
        with pytest.raises(cohort.FailedPrecondition, match='close'):
            group.barrier()
