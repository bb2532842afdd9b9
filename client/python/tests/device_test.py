"""Groups with arrays on GPUs, which are fakes: the calls of Python on the C++ library's streams."""

import ctypes
import threading

import pytest

from testing.fake_gpus import elements, use_fake_gpus

use_fake_gpus()

import numpy as np  # pylint: disable=wrong-import-position

import cohort  # pylint: disable=wrong-import-position
from testing.coordinator import LONG, coordinator, run_ranks  # pylint: disable=wrong-import-position

RANKS = 3


@pytest.fixture(scope='module', name='address')
def _address():
    with coordinator() as address:
        yield address


@pytest.fixture(scope='module', name='groups')
def _groups(address):
    groups = run_ranks(RANKS, lambda rank: cohort.Group(
        'devices', rank=rank, world_size=RANKS, address=address, timeout=LONG, device=rank))
    yield groups
    for group in groups:
        group.close()


def run(groups, body):
    """Returns body(group, rank) of every rank."""
    return run_ranks(len(groups), lambda rank: body(groups[rank], rank))


def floats(memory, count):
    return elements(memory, ctypes.c_float, count)


def on_gpu(group, values):
    memory = group.empty(len(values), 'float32', device='cuda')
    floats(memory, len(values))[:] = values
    return memory


def read(group, memory, count):
    group.await_streams()
    return list(floats(memory, count))


def test_facts(groups):
    for rank, group in enumerate(groups):
        assert (group.placement, group.device) == ('both', f'cuda:{rank}')


def test_memory(groups):
    memory = groups[1].empty((2, 3), 'float32', device=1)
    assert memory.__dlpack_device__() == (2, 1)
    # numpy has no memory of a GPU.
    with pytest.raises(BufferError, match='use __dlpack__'):
        memoryview(memory)
    with pytest.raises(cohort.InvalidArgument, match='cuda:0'):
        groups[1].empty(2, 'float32', device='cuda:0')
    with pytest.raises(ValueError, match='device: expected'):
        groups[1].empty(2, 'float32', device='tpu')


def test_collectives(groups):
    def body(group, rank):
        def empty(count):
            return group.empty(count, 'float32', device='cuda')
        own = on_gpu(group, [rank, rank + 1])
        parts = on_gpu(group, [10 * rank + to for to in range(RANKS)])
        results = {
            'sum': (group.all_reduce(own, out=empty(2)), 2),
            'max': (group.all_reduce(own, out=empty(2), op='max'), 2),
            'gather': (group.all_gather(own, out=empty(2 * RANKS)), 2 * RANKS),
            'scattered': (group.reduce_scatter(parts, out=empty(1)), 1),
            'exchanged': (group.all_to_all(parts, out=empty(RANKS)), RANKS),
            'root': (group.broadcast(own, 1), 2),
        }
        return {name: read(group, memory, count) for name, (memory, count) in results.items()}
    for rank, results in enumerate(run(groups, body)):
        assert results == {
            'sum': [3, 6], 'max': [2, 3], 'gather': [0, 1, 1, 2, 2, 3],
            'scattered': [30 + 3 * rank], 'exchanged': [rank, 10 + rank, 20 + rank],
            'root': [1, 2]}


def test_in_place_coalesced_and_asynchronous_calls(groups):
    def body(group, rank):
        first, second = on_gpu(group, [rank]), on_gpu(group, [2 * rank, 1])
        group.all_reduce_coalesced([first, second], out=[first, second])
        call = group.all_reduce(first, out=first, wait=False)
        assert call.wait(LONG) is first
        return read(group, first, 1) + read(group, second, 2)
    assert run(groups, body) == [[9, 6, 3]] * RANKS


def test_messages(groups):
    def body(group, rank):
        if rank == 0:
            group.send(on_gpu(group, [1, 2, 3]), 2)
        elif rank == 2:
            received = group.receive(group.empty(3, 'float32', device=2), 0)
            return read(group, received, 3)
        return None
    assert run(groups, body)[2] == [1, 2, 3]


def test_host_arrays_beside(groups):
    results = run(groups, lambda group, rank: group.all_reduce(np.full(4, rank)))
    for result in results:
        np.testing.assert_array_equal(result, np.full(4, 3))


def test_layout_groups(groups):
    layout = cohort.make_layout(RANKS, {'tp': RANKS})
    def body(group, rank):
        with cohort.create_layout(group, layout, kinds=['tensor'], separate=['tensor']) as made:
            tensor = made['tensor']
            assert tensor.device == f'cuda:{rank}' and tensor.name != group.name
            own = on_gpu(tensor, [rank])
            result = read(tensor, tensor.all_reduce(own, out=own), 1)
            tensor.all_gather_objects(b'')
            return result
    assert run(groups, body) == [[3]] * RANKS


def test_rejoin(address):
    groups = run_ranks(2, lambda rank: cohort.Group(
        'again', rank=rank, world_size=2, address=address, timeout=LONG, device=rank,
        placement='device'))
    groups[0].abort('for the test')
    def body(group, rank):
        own = on_gpu(group, [rank + 1])
        group.rejoin(LONG)
        result = read(group, group.all_reduce(own, out=own), 1)
        group.all_gather_objects(b'')
        return result
    assert run(groups, body) == [[3], [3]]
    for group in groups:
        group.close()


def test_wrong_arrays_of_all_ranks_leave_the_group_as_it_was(groups):
    def body(group, rank):
        own, other = on_gpu(group, [1, 2]), (rank + 1) % RANKS
        with pytest.raises(cohort.InvalidArgument, match=f'cuda:{rank}'):
            group.all_reduce(own, out=group.empty(2, 'float32'))
        with pytest.raises(cohort.InvalidArgument):
            group.all_reduce(own, out=group.empty(3, 'float32', device=rank))
        with pytest.raises(cohort.InvalidArgument, match=f'cuda:{other}'):
            group.all_reduce(own, out=groups[other].empty(2, 'float32', device=other))
    run(groups, body)
    test_collectives(groups)


def test_a_wrong_array_of_one_rank_ends_the_call_on_all_ranks(address):
    have_errors = threading.Barrier(2)  # before one leaves

    def body(rank):
        with cohort.Group('refused', rank=rank, world_size=2, address=address,
                          device=rank) as group:
            own = on_gpu(group, [1, 2])
            text = 'rank 1 a call with a wrong argument: all_reduce' if rank == 0 else 'should be'
            with pytest.raises(cohort.InvalidArgument, match=text):
                group.all_reduce(own, out=own if rank == 0 else group.empty(3, 'float32', device=1))
                group.await_streams()
            have_errors.wait(LONG)
    run_ranks(2, body)


def test_tensor_maps(groups):
    def body(group, rank):
        if rank == 0:
            group.send_map({'x': on_gpu(group, [1, 2]), 'host': np.arange(2)}, 1)
        elif rank == 1:
            received = group.receive_map(0)
            assert received['host'].tolist() == [0, 1]
            assert received['x'].__dlpack_device__() == (2, 1)
            assert list(floats(received['x'], 2)) == [1, 2]
        own = {'y': on_gpu(group, [7])} if rank == 2 else None
        everywhere = group.broadcast_map(own, 2)['y']
        return list(floats(everywhere, 1))
    assert run(groups, body) == [[7]] * RANKS


def test_a_call_that_blocks_comes_after_the_work_on_the_stream(groups):
    count = 1 << 18
    def body(group, rank):
        own = group.empty(count, 'float32', device='cuda')
        ctypes.memset(ctypes.addressof(floats(own, count)), 0, 4 * count)
        floats(own, count)[count - 1] = rank
        for _ in range(3):
            group.all_reduce(own, out=own)
        return floats(cohort.ring_shift(group, own, 1), count)[count - 1]
    assert run(groups, body) == [27] * RANKS


def test_rings_and_pipelines(groups):
    def body(group, rank):
        shifted = cohort.ring_shift(group, on_gpu(group, [rank]), 1)
        stage = cohort.Pipeline(group)
        if not stage.is_first:
            (came,) = stage.recv_forward()
            assert list(floats(came, 1)) == [10 * (rank - 1)]
        if not stage.is_last:
            stage.send_forward(on_gpu(group, [10 * rank]))
        return list(floats(shifted, 1))
    assert run(groups, body) == [[2], [0], [1]]


def row_on_gpu(group, ctype, dtype, value):
    memory = group.empty((1, 1), dtype, device='cuda')
    elements(memory, ctype, 1)[:] = [value]
    return memory


def test_dispatch(groups):
    def body(group, rank):
        batch = cohort.moe.dispatch(group, row_on_gpu(group, ctypes.c_float, 'float32', rank))
        every = read(group, batch.hidden, RANKS)
        own = cohort.moe.combine(group, batch.hidden, batch.sizes)
        return every, read(group, own, 1)
    for rank, (every, own) in enumerate(run(groups, body)):
        assert every == [0, 1, 2] and own == [RANKS * rank]


def test_experts(groups):
    placement = cohort.moe.ExpertPlacement.blocks(experts=RANKS, ranks=RANKS)
    def body(group, rank):
        hidden = row_on_gpu(group, ctypes.c_float, 'float32', rank + 1)
        ids = row_on_gpu(group, ctypes.c_int32, 'int32', (rank + 1) % RANKS)
        weights = row_on_gpu(group, ctypes.c_float, 'float32', 0.5)
        batch = cohort.moe.dispatch_to_experts(group, hidden, ids, weights, placement)
        assert [len(rows) for rows in batch.expert_rows] == [1]
        rows = range(RANKS)  # of all ranks
        mine = elements(batch.ids, ctypes.c_int32, RANKS)
        outputs = group.empty((RANKS, 1), 'float32', device='cuda')
        floats(outputs, RANKS)[:] = [
            2 * floats(batch.hidden, RANKS)[row] * floats(batch.weights, RANKS)[row]
            if mine[row] >= 0 else 0 for row in rows]
        return list(floats(cohort.moe.combine_from_experts(group, batch, outputs), 1))
    # The experts double their rows, and the weight is a half.
    assert run(groups, body) == [[1], [2], [3]]


def test_a_wrong_argument_of_a_call_that_blocks_is_an_error_on_all_ranks(groups):
    def body(group, rank):
        hidden = row_on_gpu(group, ctypes.c_float, 'float32', rank)
        with pytest.raises(cohort.InvalidArgument, match='rank 1.*companions') as caught:
            cohort.moe.dispatch(group, hidden, ['wrong'] if rank == 1 else [])
        return str(caught.value)
    assert len(set(run(groups, body))) == 1
    test_dispatch(groups)


def test_groups_that_do_not_form(address):
    def join(**options):
        return cohort.Group('unformed', world_size=1, rank=0, address=address, **options)
    with pytest.raises(cohort.InvalidArgument, match='no GPU 7'):
        join(device=7)
    with pytest.raises(cohort.FailedPrecondition, match='GPU'):
        join(placement='device')
    with pytest.raises(ValueError, match='placement: expected host, device or both, got gpu'):
        join(placement='gpu')
    with pytest.raises(ValueError, match='device_heap_bytes'):
        join(device=0, device_heap_bytes=-1)
    with join(device=0, device_heap_bytes=1 << 20) as group:
        assert group.device == 'cuda:0'
