"""Collectives, messages and objects of cohort.Group on numpy arrays."""

import gc

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture, groups_fixture, joined_groups, run

RANKS = 3

_address = address_fixture()
_groups = groups_fixture('numpy', RANKS)


def test_facts(groups):
    for rank, group in enumerate(groups):
        assert (group.name, group.rank, group.size, group.generation) == ('numpy', rank, RANKS, 1)
        assert group.paths[rank] == 'self'
        assert len(set(group.hosts)) == 1


@pytest.mark.parametrize('dtype', ['int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64',
                                   'uint64', 'float16', 'float32', 'float64'])
@pytest.mark.parametrize('op, function', [('sum', np.add), ('prod', np.multiply),
                                          ('min', np.minimum), ('max', np.maximum)])
def test_all_reduce(groups, dtype, op, function):
    inputs = [(np.arange(10).reshape(2, 5) % 4 + rank).astype(dtype) for rank in range(RANKS)]
    expected = function(function(inputs[0], inputs[1]), inputs[2])
    for result in run(groups, lambda group, rank: group.all_reduce(inputs[rank], op=op)):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == dtype


def test_other_reductions(groups):
    one = np.array([1, 2, 7], np.int32)
    def body(group, rank):
        return (group.all_reduce(one << rank, op='bit_or'),
                group.all_reduce(np.float32(rank) + one, op=cohort.ReduceOp.AVG),
                group.all_reduce(one.astype('f4'), op=cohort.ReduceOp.pre_mul_sum(0.5)),
                group.all_reduce(np.array([rank == 1]), op='max'))
    for bits, average, scaled, any_of in run(groups, body):
        assert bits.tolist() == [7, 14, 31]
        assert average.tolist() == [2, 3, 8]
        assert scaled.tolist() == [1.5, 3, 10.5]
        assert any_of.tolist() == [True]


def test_in_place_and_registered_memory(groups):
    def body(group, rank):
        array = group.empty((4, 3), np.float32)
        array[:] = rank
        assert group.all_reduce(array, out=array) is array
        view = array[1:3]  # keeps the memory alive
        del array
        return view
    for result in run(groups, body):
        np.testing.assert_array_equal(result, np.full((2, 3), 3, np.float32))


def test_strided_inputs_and_outputs(groups):
    def body(group, rank):
        wide = np.arange(24, dtype=np.float64).reshape(4, 6) * (rank + 1)
        out = np.zeros((3, 4), np.float64)
        group.all_reduce(wide[::-1, ::2].T, out=out)
        holes = np.zeros((6, 8))[::2, ::2]
        group.all_reduce(wide[::-1, ::2].T, out=holes)
        np.testing.assert_array_equal(holes, out)
        return out
    expected = np.arange(24).reshape(4, 6)[::-1, ::2].T * 6
    for result in run(groups, body):
        np.testing.assert_array_equal(result, expected)


def test_parts(groups):
    def body(group, rank):
        part = np.full((2, 2), rank, np.int64)
        gathered = group.all_gather(part, dim=1)
        assert gathered.tolist() == [[0, 0, 1, 1, 2, 2]] * 2
        assert group.all_gather(part).shape == (6, 2)
        reduced = group.reduce_scatter(np.arange(6) + rank)
        assert reduced.tolist() == [6 * rank + 3, 6 * rank + 6]
        exchanged = group.all_to_all(np.arange(3) + 10 * rank)
        assert exchanged.tolist() == [rank, 10 + rank, 20 + rank]
        tensor = np.full(3, rank)
        assert group.broadcast(tensor, 2).tolist() == [2, 2, 2]
        at_root = group.gather(part, 1)
        assert (at_root is None) == (rank != 1)
        mine = group.scatter(np.arange(6.0) if rank == 0 else None, 0, np.empty(2))
        assert mine.tolist() == [2 * rank, 2 * rank + 1]
        total = group.reduce(np.array([rank]), 0)
        assert (total.tolist() == [3]) if rank == 0 else total is None
    run(groups, body)


def test_root_of_a_broadcast_may_be_read_only(groups):
    def body(group, rank):
        array = np.full(3, rank)
        array.flags.writeable = rank != 0
        return group.broadcast(array, 0).tolist()
    assert run(groups, body) == [[0, 0, 0]] * RANKS


def test_ragged(groups):
    sizes = [2, 0, 3]
    def body(group, rank):
        assert group.exchange_sizes(sizes[rank]) == sizes
        part = np.full(sizes[rank], rank)
        assert group.all_gather_v(part, sizes).tolist() == [0, 0, 2, 2, 2]
        reduced = group.reduce_scatter_v(np.arange(5), sizes)
        assert reduced.tolist() == [[0, 3], [], [6, 9, 12]][rank]
        at_root = group.gather_v(part, sizes, 2)
        assert at_root.tolist() == [0, 0, 2, 2, 2] if rank == 2 else at_root is None
        # Rank r sends i elements to rank i.
        received = group.all_to_all_v(np.full(3, rank), [0, 1, 2], [rank] * RANKS)
        assert received.tolist() == sorted(list(range(RANKS)) * rank)
    run(groups, body)


def test_coalesced(groups):
    def body(group, rank):
        arrays = [np.full(n, rank, np.float32) for n in (3, 0, 5000)]
        return [array.sum() for array in group.all_reduce_coalesced(arrays)]
    assert run(groups, body) == [[9, 0, 15000]] * RANKS


def test_asynchronous_calls(groups):
    def body(group, rank):
        calls = [group.all_reduce(np.full(100, rank + i), wait=False) for i in range(10)]
        call = group.broadcast(np.full(2, rank), 1, wait=False)
        # The arrays of a dropped call stay alive.
        group.all_reduce(np.ones(1000), wait=False)
        results = [int(call.wait()[0]) for call in calls]
        assert calls[0].test()
        assert call.wait(LONG).tolist() == [1, 1]
        group.all_reduce(np.ones(1), wait=False).wait()
        return results
    assert run(groups, body) == [[3 + 3 * i for i in range(10)]] * RANKS


def test_asynchronous_calls_hold_the_buffer(groups):
    data = bytearray(8)
    call = groups[0].all_reduce(data, out=bytearray(8), wait=False)
    with pytest.raises(BufferError):
        data.append(1)  # would move the memory that the call reads
    run_ranks(2, lambda i: groups[i + 1].all_reduce(bytearray(8), out=bytearray(8)))
    call.wait()
    gc.collect()
    data.append(1)


def test_messages(groups):
    def body(group, rank):
        if rank == 0:
            group.send(np.arange(5), 1)
            group.exchange([(np.full(2, 7), 2)], [(out := np.empty(2, np.int64), 2)])
            return out.tolist()
        if rank == 1:
            assert group.await_message([0, 2]) == (0, 'i64', 5)
            return group.receive(np.empty(5, np.int64), 0).tolist()
        group.exchange([(np.full(2, 8), 0)], [(out := np.empty(2, np.int64), 0)])
        return out.tolist()
    assert run(groups, body) == [[8, 8], [0, 1, 2, 3, 4], [7, 7]]


def test_objects(groups):
    def body(group, rank):
        assert group.all_gather_objects(b'%d' % rank) == [b'0', b'1', b'2']
        assert group.broadcast_object(b'model' if rank == 1 else None, 1) == b'model'
        if rank == 0:
            group.send_object(bytearray(b'x'), 2)
        if rank == 2:
            assert group.receive_object(0) == b'x'
        group.barrier()
    run(groups, body)


def test_anything_with_a_buffer(groups):
    def body(group, rank):
        data = bytearray([rank, 1])
        out = bytearray(2)
        group.all_reduce(data, out=out)
        return bytes(out)
    assert run(groups, body) == [b'\3\3'] * RANKS


def test_anything_with_dlpack(groups):
    class Wrapped:  # pylint: disable=too-few-public-methods
        """An array that has nothing but DLPack."""
        def __init__(self, array):
            self._array = array
        def __dlpack__(self):
            return self._array.__dlpack__()
    def body(group, rank):
        out = np.empty(3)
        group.all_reduce(Wrapped(np.full(3, float(rank))), out=Wrapped(out))
        return out.tolist()
    assert run(groups, body) == [[3, 3, 3]] * RANKS


def test_empty_of_each_type(groups):
    group = groups[0]
    for dtype in ('bool', 'int8', 'uint64', 'float16', 'float64', 'complex64', 'complex128'):
        array = group.empty((2, 3), dtype)
        assert array.dtype == dtype and array.shape == (2, 3) and array.flags.c_contiguous
        assert array.flags.writeable
    assert group.empty(5).shape == (5,)
    assert group.empty(()).shape == ()
    assert group.empty((0, 4)).shape == (0, 4)
    assert np.from_dlpack(group._core.allocate(12, [2, 2], None)).dtype == np.float32


def test_statistics(address):
    def body(rank):
        with cohort.Group('stats', rank=rank, world_size=2, address=address) as group:
            group.all_reduce(np.ones(4))
            assert group.stats()[rank] == (0, 0, 0, 0)
            peer = group.stats()[1 - rank]
            group.barrier()
            return peer
    assert run_ranks(2, body) == [(32, 1, 32, 1)] * 2


def test_late_ranks_are_named(address):
    with joined_groups('late', 3, address) as groups:
        with pytest.raises(cohort.DeadlineExceeded, match='rank 1-2 did not come') as caught:
            groups[0].all_reduce(np.ones(2), timeout=0.2)
        assert caught.value.missing == (1, 2)
