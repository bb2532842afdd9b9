"""Pipelines and rings against values computed on one process."""

import gc

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture, groups_fixture

STAGES = 3
# More than what a send puts on its way without a receiver.
LARGE = 1 << 20

_address = address_fixture()
_groups = groups_fixture('pipeline', STAGES)


def run(groups, body):
    """Returns body(pipeline, stage) of every stage."""
    return run_ranks(STAGES, lambda rank: body(cohort.Pipeline(groups[rank]), rank))


def test_places(groups):
    for rank, group in enumerate(groups):
        pipeline = cohort.Pipeline(group)
        assert (pipeline.stage, pipeline.stages) == (rank, STAGES)
        assert (pipeline.is_first, pipeline.is_last) == (rank == 0, rank == STAGES - 1)
        assert not cohort.Pipeline(group, next_rank=0, prev_rank=1).is_last


def test_a_pipeline_keeps_its_group(groups):
    def body(group, rank):
        pipeline = cohort.Pipeline(cohort.create_groups(group, [list(range(STAGES))])[0])
        gc.collect()
        assert pipeline.stage == rank  # its group has no other reference
    run_ranks(STAGES, lambda rank: body(groups[rank], rank))


@pytest.mark.parametrize('count', [3, LARGE])
def test_forward_and_backward(groups, count):
    batches = [np.arange(count, dtype=np.float32) + batch for batch in range(2)]
    def body(pipeline, stage):
        gradients = []
        for batch in batches:
            inputs = pipeline.recv_forward()
            assert (inputs is None) == (stage == 0)
            x = batch if inputs is None else inputs[0]
            pipeline.send_forward(x * (stage + 2))
            output = pipeline.recv_backward()
            assert (output is None) == (stage == STAGES - 1)
            gradient = (x if output is None else output[0]) * (stage + 2)
            pipeline.send_backward(gradient)
            gradients.append(gradient)
        return gradients
    # The last stage's input is x * 2 * 3; all stages multiply the gradient again.
    for batch, gradient in zip(batches, run(groups, body)[0]):
        np.testing.assert_array_equal(gradient, batch * 6 * 24)


def test_combined_transfers(groups):
    def body(pipeline, stage):
        if stage == 0:
            first = pipeline.send_forward_recv_backward(np.array([1.0]))
            pipeline.send_forward_recv_backward([np.array([2.0]), np.arange(2)])
            return first[0].tolist()
        if stage == 1:
            assert pipeline.recv_forward()[0].tolist() == [1]
            second = pipeline.send_backward_recv_forward(np.array([10]))
            assert [array.tolist() for array in second] == [[2], [0, 1]]
            pipeline.send_backward(())
            assert pipeline.send_forward_recv_backward(second)[0].tolist() == [3]
            return None
        arrived = pipeline.recv_forward()
        pipeline.send_backward([arrived[0] + arrived[1][1]])
        assert pipeline.send_forward_recv_backward(None) is None
        return [str(array.dtype) for array in arrived]
    assert run(groups, body) == [[10], None, ['float64', 'int64']]


def test_transfers_around_a_ring(groups):
    def body(rank):
        pipeline = cohort.Pipeline(groups[rank], wrap=True)
        own = np.full((rank + 1, LARGE // 8), rank)
        forward = pipeline.send_forward_recv_forward(own)
        backward = pipeline.send_backward_recv_backward(own)
        both = pipeline.send_forward_backward_recv_forward_backward(own, own + 10)
        before, after = (rank - 1) % STAGES, (rank + 1) % STAGES
        np.testing.assert_array_equal(forward[0], np.full((before + 1, LARGE // 8), before))
        np.testing.assert_array_equal(backward[0], np.full((after + 1, LARGE // 8), after))
        assert (both[0][0][0, 0], both[1][0][0, 0]) == (before, after + 10)
        assert pipeline.send_forward_recv_forward(None, recv_prev=False) is None
    run_ranks(STAGES, body)


def test_two_pipelines_of_a_group_have_channels_of_their_own(groups):
    def body(rank):
        first, second = cohort.Pipeline(groups[rank]), cohort.Pipeline(groups[rank], channel=1)
        if rank == 0:
            first.send_forward(np.array([1]))
            second.send_forward(np.array([2]))
        if rank == 1:
            return second.recv_forward()[0].tolist() + first.recv_forward()[0].tolist()
        return None
    assert run_ranks(STAGES, body)[1] == [2, 1]


@pytest.mark.parametrize('distance', [1, -1, 2, 3])
def test_ring_shift(groups, distance):
    def body(rank):
        array = np.full(rank + 2, rank, np.int16)
        shifted = cohort.ring_shift(groups[rank], array[::-1], distance)
        assert shifted is not array and shifted.dtype == np.int16
        return shifted.tolist()
    assert run_ranks(STAGES, body) == [[source] * (source + 2) for source in (
        (rank - distance) % STAGES for rank in range(STAGES))]


def test_tensors_of_torch(groups):
    torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
    def body(rank):
        pipeline = cohort.Pipeline(groups[rank], library='torch')
        inputs = pipeline.recv_forward()
        x = torch.ones(2, 3, dtype=torch.bfloat16) if inputs is None else inputs[0]
        pipeline.send_forward((x * 2).t().requires_grad_())
        assert not x.requires_grad and x.is_contiguous()
        return list(x.shape), x.dtype, x.float().sum().item()
    assert run_ranks(STAGES, body) == [([2, 3], torch.bfloat16, 6), ([3, 2], torch.bfloat16, 12),
                                       ([2, 3], torch.bfloat16, 24)]


# A call of stage 0, and a part of the text of the errors of stages 0 and 1.
WRONG = {
    'no array': (lambda p: p.send_forward('text'), 'output: expected an array'),
    'None': (lambda p: p.send_forward(None), 'output: expected an array'),
    'one of several': (lambda p: p.send_forward([np.ones(2), 'text']), 'output: expected an array'),
    'type': (lambda p: p.send_forward(np.ones(2, 'g')), 'format g'),
    'timeout': (lambda p: p.send_forward(np.ones(2), timeout='soon'), 'timeout: expected a number'),
    'combined': (lambda p: p.send_forward_recv_backward('text'), 'output: expected an array'),
    'receives': (lambda p: p.send_forward_recv_forward(np.ones(2), recv_prev=None),
                 'recv_prev: expected a bool'),
}


@pytest.mark.parametrize('name', WRONG)
def test_receivers_get_the_error_of_the_sender(groups, name):
    wrong, text = WRONG[name]
    def body(pipeline, stage):
        if stage == 2:
            return None
        with pytest.raises(cohort.InvalidArgument) as caught:
            wrong(pipeline) if stage == 0 else pipeline.recv_forward()
        if stage == 0:
            assert pipeline.send_forward_recv_backward(np.ones(2))[0].tolist() == [2, 2]
        else:
            pipeline.send_backward(pipeline.recv_forward()[0] * 2)
        return str(caught.value)
    for message in run(groups, body)[:2]:
        assert text in message


def test_local_errors(groups):
    pipeline = cohort.Pipeline(groups[0])
    with pytest.raises(cohort.FailedPrecondition, match='no previous stage to receive from'):
        pipeline.send_forward_recv_forward(None)
    with pytest.raises(cohort.InvalidArgument, match='timeout: expected'):
        pipeline.recv_forward(timeout='soon')
    with pytest.raises(cohort.InvalidArgument, match='expected an array'):
        pipeline.send_backward('text')
    with pytest.raises(ValueError, match='library: expected'):
        cohort.Pipeline(groups[0], library='jax')
    with pytest.raises(TypeError, match='next_rank: expected an int'):
        cohort.Pipeline(groups[0], next_rank='1')


@pytest.mark.parametrize('arguments, text', [
    (('text',), 'array: expected an array'),
    ((np.ones(2), 1.5), 'distance: expected an int'),
])
def test_ring_shift_fails_on_the_rank_and_its_receiver(groups, arguments, text):
    def body(rank):
        message = ''
        try:
            cohort.ring_shift(groups[rank], *(arguments if rank == 0 else [np.array([-rank])]))
        except cohort.InvalidArgument as error:
            message = str(error)
        # The next call gets none of the messages of this one.
        assert cohort.ring_shift(groups[rank], np.array([rank])).tolist() == [(rank - 1) % STAGES]
        return message
    messages = run_ranks(STAGES, body)
    assert text in messages[0] and text in messages[1]
    assert messages[2] == ''


def test_closing_the_group_ends_its_pipelines(address):
    def body(rank):
        with cohort.Group('short', rank=rank, world_size=2, address=address,
                          timeout=LONG) as group:
            pipeline = cohort.Pipeline(group)
            if rank == 0:
                pipeline.send_forward(np.ones(2))
            else:
                assert pipeline.recv_forward()[0].tolist() == [1, 1]
            group.all_gather_objects(b'')
        with pytest.raises(cohort.FailedPrecondition, match='close'):
            pipeline.recv_forward()
    run_ranks(2, body)
