"""Arrays that the ranks of a tensor group have alike travel in slices between stages."""

import contextlib

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, coordinator, run_ranks

RANKS = 4


@pytest.fixture(scope='module', name='address')
def _address():
    with coordinator() as address:
        yield address


@pytest.fixture(scope='module', name='worlds')
def _worlds(address):
    worlds = run_ranks(RANKS, lambda rank: cohort.Group(
        'world', rank=rank, world_size=RANKS, address=address, timeout=LONG))
    yield worlds
    for world in worlds:
        world.close()


@pytest.fixture(scope='module', name='layouts')
def _layouts(worlds):
    """By rank, its groups: ranks 0 and 1 are the first stage, 2 and 3 the second."""
    layout = cohort.make_layout(RANKS, {'tp': 2, 'pp': 2})
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(groups) for groups in run_ranks(
            RANKS, lambda rank: cohort.create_layout(worlds[rank], layout,
                                                     kinds=['tensor', 'pipeline']))]


def run(layouts, body):
    """Returns body(pipeline, pipeline's group) of every rank."""
    return run_ranks(RANKS, lambda rank: body(
        cohort.Pipeline(layouts[rank]['pipeline'], tensor_group=layouts[rank]['tensor']),
        layouts[rank]['pipeline']))


@pytest.mark.parametrize('count, slices', [(100000, 2), (100001, 1)])
def test_each_rank_sends_a_slice(layouts, count, slices):
    x = np.arange(count, dtype=np.float32)
    def body(pipeline, group):
        before = group.stats()[1].bytes_sent
        if pipeline.is_first:
            pipeline.send_forward(x)
            # Besides, a message has a header.
            sent = group.stats()[1].bytes_sent - before
            assert x.nbytes / slices <= sent < x.nbytes / slices + 10000
            return pipeline.recv_backward()
        (came,) = pipeline.recv_forward()
        np.testing.assert_array_equal(came, x)
        pipeline.send_backward(came * 2)
        return None
    for gradients in run(layouts, body)[:2]:
        np.testing.assert_array_equal(gradients[0], x * 2)


def test_a_wrong_array_is_an_error_of_all_receivers(layouts):
    def body(pipeline, _):
        if not pipeline.is_first:
            with pytest.raises(cohort.InvalidArgument, match='output') as caught:
                pipeline.recv_forward()
            return str(caught.value)
        with pytest.raises(cohort.InvalidArgument, match='output'):
            pipeline.send_forward('no array')
        return None
    run(layouts, body)
    test_each_rank_sends_a_slice(layouts, 1000, 2)


def test_local_errors(address, layouts):
    group = layouts[0]['pipeline']
    with pytest.raises(TypeError, match='tensor_group: expected'):
        cohort.Pipeline(group, tensor_group=7)
    with cohort.Group('alone', rank=0, world_size=1, address=address) as other:
        pipeline = cohort.Pipeline(group, tensor_group=other)
    with pytest.raises(cohort.FailedPrecondition, match='close'):
        pipeline.send_forward(np.ones(2))
    with pytest.raises(cohort.FailedPrecondition, match='close'):
        cohort.Pipeline(group, tensor_group=other)
