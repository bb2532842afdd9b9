"""Objects between ranks: bytes as they are, other values by cohort.values, pickle where asked
for."""

import array
import asyncio
import fractions

import numpy as np
import pytest

import cohort
from cohort import _objects
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture, groups_fixture, run

RANKS = 3

_address = address_fixture()
_groups = groups_fixture('objects', RANKS)

VALUES = [None, True, 3, 1 << 80, 2.5, float('inf'), '', 'text \udcff', b'', b'bytes', [1, 'a', None],
          (1, 2), {1, 2}, {'a': {'b': [b'c']}, 4: 5}]
# Bytes that would be taken for values if they travelled as they are.
MARKED = [_objects._VALUE, _objects._VALUE + b'rest', _objects._REFUSAL + b'text']


@pytest.fixture(scope='module', name='members')
def _members(address):
    members = run_ranks(RANKS, lambda rank: cohort.ProcessGroup(
        'members', rank=rank, world_size=RANKS, address=address, timeout=LONG))
    yield members
    for member in members:
        member.close()


@pytest.mark.parametrize('value', VALUES + MARKED, ids=repr)
def test_values_between_ranks_of_a_group(groups, value):
    def body(group, rank):
        assert group.broadcast_object(value if rank == 1 else None, 1) == value
        assert group.all_gather_objects([rank, value]) == [[r, value] for r in range(RANKS)]
        group.send_object(value, (rank + 1) % RANKS)
        return group.receive_object((rank - 1) % RANKS)
    for received in run(groups, body):
        assert received == value and type(received) is type(value)


@pytest.mark.parametrize('value', VALUES + MARKED, ids=repr)
def test_values_between_members(members, value):
    def body(group, rank):
        assert group.broadcast(value if rank == 1 else None, 1) == value
        assert group.all_gather(value) == [value] * RANKS
        assert group.gather((rank, value), 0) == ([(r, value) for r in range(RANKS)]
                                                  if rank == 0 else [])
        assert group.scatter([value] * RANKS if rank == 2 else [], 2) == value
        group.send(value, (rank + 1) % RANKS)
        group.send(value, (rank + 1) % RANKS, 'any')
        assert group.receive_any('any') == (value, (rank - 1) % RANKS)
        return group.receive((rank - 1) % RANKS)
    for received in run(members, body):
        assert received == value and type(received) is type(value)


def test_buffers_arrive_as_bytes(groups):
    def body(group, rank):
        return [group.broadcast_object(each if rank == 0 else None, 0) for each in (
            bytearray(b'ab'), memoryview(b'ab'), array.array('B', b'ab'), bytearray(MARKED[0]),
            memoryview(np.zeros((0, 3))), memoryview(b'abcd')[::2])]
    assert run(groups, body) == [[b'ab', b'ab', b'ab', MARKED[0], b'', b'ac']] * RANKS


def test_arrays(groups):
    def body(group, rank):
        at_root = group.broadcast_object(np.arange(6).reshape(2, 3) if rank == 0 else None, 0)
        return at_root.tolist(), [each.sum() for each in group.all_gather_objects(np.ones(rank))]
    assert run(groups, body) == [([[0, 1, 2], [3, 4, 5]], [0, 1, 2])] * RANKS


def test_bytes_travel_as_they_are(groups):
    """C++ ranks send and read them."""
    groups[0].send_object(b'plain', 1)
    assert groups[1]._core.receive_object(0, None) == b'plain'
    groups[0]._core.send_object(b'plain', 1, None)
    assert groups[1].receive_object(0) == b'plain'


def test_pickle_only_where_it_is_asked_for(groups):
    half = fractions.Fraction(1, 2)
    run(groups, lambda group, rank: _pickle_rules(group, rank, half))
    def of_one_rank(group, rank):
        try:
            return group.all_gather_objects(half if rank == 2 else 0, pickle=rank == 2)
        except cohort.InvalidArgument as error:
            return error.culprit
    assert run(groups, of_one_rank) == [2, 2, [0, 0, half]]


def _pickle_rules(group, rank, half):
    next_rank, last = (rank + 1) % RANKS, (rank - 1) % RANKS
    with pytest.raises(TypeError, match='cannot send a fractions.Fraction: .*pickle=True'):
        group.send_object(half, next_rank)
    group.send_object(half, next_rank, pickle=True)
    assert group.receive_object(last, pickle=True) == half
    group.send_object(half, next_rank, pickle=True)
    with pytest.raises(cohort.InvalidArgument, match='receive_object in group objects: .*rank '
                       f'{last}: the value is pickled; pass pickle=True'):
        group.receive_object(last)
    assert group.broadcast_object(half if rank == 0 else None, 0, pickle=True) == half
    assert group.all_gather_objects(half, pickle=True) == [half] * RANKS


CALLS = {
    'broadcast': lambda g, rank, obj: g.broadcast(obj if rank == 1 else None, 1),
    'all_gather': lambda g, rank, obj: g.all_gather(obj if rank == 1 else None),
    'gather': lambda g, rank, obj: g.gather(obj if rank == 1 else None, 0),
    'scatter': lambda g, rank, obj: g.scatter([None, None, obj] if rank == 1 else [], 1),
}


@pytest.mark.parametrize('call', CALLS)
def test_a_refusal_is_an_error_of_those_that_wait(members, call):
    def body(group, rank):
        try:
            CALLS[call](group, rank, object())
        except cohort.InvalidArgument as error:
            assert f'{call} in group members: the object of rank 1: cannot send a builtins.object' in (
                str(error))
            assert error.culprit == 1 and error.operation == call
            return True
        return False
    expected = {'gather': [True, True, False], 'scatter': [False, False, True]}
    assert run(members, body) == expected.get(call, [True] * RANKS)
    assert run(members, lambda group, rank: group.all_gather(rank)) == [[0, 1, 2]] * RANKS


def test_a_refusal_of_a_group(groups):
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument, match='broadcast_object in group objects: the object '
                           'of rank 2: cannot send'):
            group.broadcast_object(object() if rank == 2 else None, 2)
        with pytest.raises(cohort.InvalidArgument, match='all_gather_objects.* rank 0'):
            group.all_gather_objects(object() if rank == 0 else None)
        deep = []
        for _ in range(100000):
            deep = [deep]
        with pytest.raises(cohort.InvalidArgument, match='nested too deeply'):
            group.all_gather_objects(deep)
        return group.all_gather_objects(rank)
    assert run(groups, body) == [[0, 1, 2]] * RANKS


def test_damaged_values_are_refused(groups):
    for data in (b'', b'\xff\xff\xff\xff', b'\2\0\0\0{]'):
        groups[0]._core.send_object(_objects._VALUE + data, 1, None)
        with pytest.raises(cohort.InvalidArgument, match='the object of rank 0'):
            groups[1].receive_object(0)


def test_participants_name_the_rank(members):
    def body(group, rank):
        if rank == 0:
            return None
        with pytest.raises(cohort.InvalidArgument) as caught:
            group.all_gather(object() if rank == 2 else 1, participants=[2, 1])
        return caught.value.culprit
    assert run(members, body) == [None, 2, 2]


def test_asyncio(address):
    async def main(rank):
        async with cohort.aio.ProcessGroup('aio', rank=rank, world_size=2, address=address) as group:
            assert await group.all_gather({'rank': rank}) == [{'rank': 0}, {'rank': 1}]
            assert await group.broadcast((1, 2) if rank else None, 1) == (1, 2)
            assert await group.gather(rank, 0) == ([] if rank else [0, 1])
            assert await group.scatter(['a', 'b'] if rank == 0 else [], 0) == 'ab'[rank]
            half = fractions.Fraction(1, 2)
            await group.send(half, 1 - rank, pickle=True)
            assert await group.receive(1 - rank, pickle=True) == half
            await group.send(None, 1 - rank)
            assert await group.receive_any() == (None, 1 - rank)
            with pytest.raises(cohort.InvalidArgument, match='rank 1'):
                await group.all_gather(object() if rank else 1)
            await group.barrier()
    run_ranks(2, lambda rank: asyncio.run(asyncio.wait_for(main(rank), LONG)))
