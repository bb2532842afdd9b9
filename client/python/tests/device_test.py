"""Groups with arrays on GPUs, which are fakes: the calls of Python on the C++ library's streams."""

import ctypes

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


def test_a_wrong_array_is_an_error_of_its_rank(groups):
    group = groups[0]
    own = on_gpu(group, [1, 2])
    with pytest.raises(cohort.InvalidArgument, match='cuda:0'):
        group.all_reduce(own, out=group.empty(2, 'float32'))
    with pytest.raises(cohort.InvalidArgument):
        group.all_reduce(own, out=group.empty(3, 'float32', device=0))
    with pytest.raises(cohort.InvalidArgument, match='cuda:1'):
        group.all_reduce(own, out=groups[1].empty(2, 'float32', device=1))
    # The group goes on.
    test_collectives(groups)


@pytest.mark.parametrize('name, call', {
    'a tensor map': lambda group, array: group.broadcast_map({'x': array}, 0),
    'a ring': lambda group, array: cohort.ring_shift(group, array, 1),
}.items())
def test_calls_that_take_host_arrays_alone(groups, name, call):
    def body(group, _):
        with pytest.raises((cohort.InvalidArgument, ValueError), match='host memory') as caught:
            call(group, on_gpu(group, [1]))
        return str(caught.value)
    for text in run(groups, body):
        assert 'cuda:' in text, name
    test_host_arrays_beside(groups)


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
