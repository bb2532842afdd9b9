"""Mixtures of experts against a process that has all experts."""

import numpy as np
import pytest

import cohort
from cohort import moe
from testing.coordinator import coordinator, run_ranks
from testing.fixtures import address_fixture, groups_fixture, run

RANKS = 3
EXPERTS = 5
SLOTS = 2
WIDTH = 4
# By rank: the number of its tokens.
TOKENS = [3, 0, 4]
PLACEMENT = moe.ExpertPlacement.blocks(EXPERTS, RANKS)

_random = np.random.default_rng(7)
HIDDEN = _random.integers(-8, 8, (sum(TOKENS), WIDTH)).astype(np.float32)
IDS = np.stack([_random.permutation(EXPERTS)[:SLOTS] for _ in range(sum(TOKENS))])
IDS[1, 0] = -1
# Powers of two, so that all orders of the sums are exact.
WEIGHTS = np.exp2(-_random.integers(0, 4, IDS.shape)).astype(np.float32)


def expert(number, rows):
    return rows * (number + 1) + number


def all_experts():
    """The tokens of all ranks after all of their experts, on one process."""
    result = np.zeros_like(HIDDEN)
    for token, ids in enumerate(IDS):
        for slot, number in enumerate(ids):
            if number >= 0:
                result[token] += WEIGHTS[token, slot] * expert(number, HIDDEN[token])
    return result


def own(rank):
    return slice(sum(TOKENS[:rank]), sum(TOKENS[:rank + 1]))


_address = address_fixture()
_groups = groups_fixture('moe', RANKS)


def test_placements():
    assert moe.ExpertPlacement.blocks(5, 3).rank_of_expert == [0, 0, 1, 1, 2]
    assert moe.ExpertPlacement.round_robin(5, 3).rank_of_expert == [0, 1, 2, 0, 1]
    placement = moe.ExpertPlacement([2, 0, 2], 3)
    assert [placement.experts_of(rank) for rank in range(3)] == [[1], [], [0, 2]]
    with pytest.raises(cohort.InvalidArgument, match='2'):
        moe.ExpertPlacement([2, 0], 2)


@pytest.mark.parametrize('sizes', [None, TOKENS])
def test_dispatch_gathers_all_tokens(groups, sizes):
    def body(group, rank):
        batch = moe.dispatch(group, HIDDEN[own(rank)], [IDS[own(rank)], WEIGHTS[own(rank)]],
                             [HIDDEN[own(rank), 0] > 0], sizes=sizes)
        assert batch.sizes == TOKENS
        assert not batch.hidden.flags.owndata  # it is the group's memory
        np.testing.assert_array_equal(batch.hidden, HIDDEN)
        np.testing.assert_array_equal(batch.companions[0], IDS)
        np.testing.assert_array_equal(batch.companions[1], WEIGHTS)
        np.testing.assert_array_equal(batch.extras[0], HIDDEN[:, 0] > 0)
        part = batch.hidden * 2**rank
        result = moe.combine(group, part, batch.sizes)
        assert result.flags.writeable
        return result
    for rank, result in enumerate(run(groups, body)):
        np.testing.assert_array_equal(result, 7 * HIDDEN[own(rank)])


def test_sequence_parallel_ranks_share_the_tokens_of_a_data_rank(groups):
    def body(group, rank):
        rows = np.full((2, 1), rank)
        batch = moe.dispatch(group, rows, sizes=[5], sequence_parallel=3)
        assert batch.sizes == [2, 2, 2]
        assert moe.combine(group, batch.hidden, [5], sequence_parallel=3).tolist() == [
            [3 * rank], [3 * rank]]
        return batch.hidden[:, 0].tolist()
    assert run(groups, body) == [[0, 0, 1, 1, 2, 2]] * RANKS


@pytest.mark.parametrize('form', ['routed', 'gathered'])
@pytest.mark.parametrize('weights_by', ['experts', 'combine'])
def test_tokens_go_to_their_experts_and_back(groups, form, weights_by):
    def body(group, rank):
        tokens = own(rank)
        batch = moe.dispatch_to_experts(group, HIDDEN[tokens], IDS[tokens], WEIGHTS[tokens],
                                        PLACEMENT, [np.arange(sum(TOKENS))[tokens]], form=form)
        assert batch.form == form
        np.testing.assert_array_equal(batch.hidden, HIDDEN[batch.extras[0]])
        local = PLACEMENT.experts_of(rank)
        assert len(batch.expert_rows) == len(local)
        if form == 'routed':
            assert len(batch.hidden) == np.isin(IDS, local).any(axis=1).sum()
        outputs = []
        weighted = np.zeros_like(batch.hidden)
        for i, (rows, slots) in enumerate(zip(batch.expert_rows, batch.expert_slots)):
            assert len(rows) == (IDS == local[i]).sum()
            assert (batch.ids[rows, slots] == i).all()
            outputs.append(expert(local[i], batch.hidden[rows]))
            weighted[rows] += batch.weights[rows, slots][:, None] * outputs[-1]
        assert (batch.weights[batch.ids == -1] == 0).all()
        result = [moe.combine_from_experts(
            group, batch, weighted if weights_by == 'experts' else np.concatenate(outputs),
            weights_by=weights_by) for _ in range(2)]
        np.testing.assert_array_equal(*result)
        return result[0]
    for rank, result in enumerate(run(groups, body)):
        np.testing.assert_array_equal(result, all_experts()[own(rank)])


def test_arrays_outlive_the_batch_and_the_group():
    with coordinator() as address:
        def body(rank):
            with cohort.Group('short', rank=rank, world_size=2, address=address) as group:
                batch = moe.dispatch_to_experts(
                    group, np.full((1, 2), rank), np.array([[1 - rank]]), np.ones((1, 1), 'f4'),
                    moe.ExpertPlacement.blocks(2, 2), form='routed')
                group.all_gather_objects(b'')
                return batch.hidden
        assert [hidden.tolist() for hidden in run_ranks(2, body)] == [[[1, 1]], [[0, 0]]]


def test_tensors_of_torch(groups):
    torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
    def body(group, rank):
        tokens = own(rank)
        hidden = torch.from_numpy(HIDDEN[tokens]).to(torch.bfloat16)
        batch = moe.dispatch_to_experts(group, hidden.requires_grad_(),
                                        torch.from_numpy(IDS[tokens]),
                                        torch.from_numpy(WEIGHTS[tokens]), PLACEMENT)
        assert batch.hidden.dtype == torch.bfloat16 and not batch.hidden.requires_grad
        assert (batch.ids.dtype, batch.weights.dtype) == (torch.int32, torch.float32)
        local = PLACEMENT.experts_of(rank)
        outputs = torch.cat([expert(local[i], batch.hidden[rows].float())
                             for i, rows in enumerate(batch.expert_rows)])
        result = moe.combine_from_experts(group, batch, outputs, weights_by='combine')
        gathered = moe.dispatch(group, hidden, [torch.ones(len(hidden), dtype=torch.bool)])
        assert gathered.hidden.shape == (sum(TOKENS), WIDTH)
        assert gathered.companions[0].tolist() == [True] * sum(TOKENS)
        assert torch.equal(moe.combine(group, gathered.hidden, gathered.sizes), RANKS * hidden)
        return result.numpy()
    for rank, result in enumerate(run(groups, body)):
        np.testing.assert_array_equal(result, all_experts()[own(rank)])


def good(group, rank):
    """The calls that the other ranks make."""
    tokens = own(rank)
    return {
        'dispatch': lambda: moe.dispatch(group, HIDDEN[tokens]),
        'combine': lambda: moe.combine(group, HIDDEN, TOKENS),
        'to_experts': lambda: moe.dispatch_to_experts(group, HIDDEN[tokens], IDS[tokens],
                                                      WEIGHTS[tokens], PLACEMENT),
        'from_experts': lambda: moe.combine_from_experts(group, batch_of(group, rank),
                                                         HIDDEN, weights_by='experts'),
    }


def batch_of(group, rank):
    tokens = own(rank)
    return moe.dispatch_to_experts(group, HIDDEN[tokens], IDS[tokens], WEIGHTS[tokens], PLACEMENT,
                                   form='gathered')


def to_experts(group, **changed):
    arguments = {'hidden': HIDDEN[own(0)], 'ids': IDS[own(0)], 'weights': WEIGHTS[own(0)],
                 'placement': PLACEMENT, **changed}
    return moe.dispatch_to_experts(group, **arguments)


# The call of the other ranks, the one of rank 0, and a part of the text of all errors.
WRONG = {
    'hidden': ('dispatch', lambda g: moe.dispatch(g, 'text'), 'hidden: expected an array'),
    'companions': ('dispatch', lambda g: moe.dispatch(g, np.ones((3, 4), 'f4'), np.ones(3)),
                   'companions: expected a list'),
    'extra': ('dispatch', lambda g: moe.dispatch(g, np.ones((3, 4), 'f4'), (), [None]),
              'extras: expected an array'),
    'rows': ('dispatch', lambda g: moe.dispatch(g, np.ones((3, 4), 'f4'), [np.ones(2)]),
             'companion 0'),
    'sizes': ('dispatch', lambda g: moe.dispatch(g, HIDDEN[own(0)], sizes=['3']),
              'sizes: expected an int'),
    'number of sizes': ('dispatch', lambda g: moe.dispatch(g, HIDDEN[own(0)], sizes=[3]),
                        '1 sizes'),
    'type': ('dispatch', lambda g: moe.dispatch(g, np.ones((3, 4))), 'f64'),
    'sequence': ('dispatch', lambda g: moe.dispatch(g, HIDDEN[own(0)], sequence_parallel=None),
                 'sequence_parallel: expected an int'),
    'timeout': ('dispatch', lambda g: moe.dispatch(g, HIDDEN[own(0)], timeout=-1), 'timeout'),
    'rows of combine': ('combine', lambda g: moe.combine(g, HIDDEN[1:], TOKENS), 'hidden has 6'),
    'no sizes': ('combine', lambda g: moe.combine(g, HIDDEN, None), 'sizes: expected a sequence'),
    'id': ('to_experts', lambda g: to_experts(g, ids=IDS[own(0)] + 99), 'token 0'),
    'type of ids': ('to_experts', lambda g: to_experts(g, ids=IDS[own(0)].astype('f4')), 'ids are'),
    'weights': ('to_experts', lambda g: to_experts(g, weights=1.0), 'weights: expected an array'),
    'placement': ('to_experts', lambda g: to_experts(g, placement=[0, 0, 1]),
                  'placement: expected'),
    'other placement': (
        'to_experts', lambda g: to_experts(g, placement=moe.ExpertPlacement.round_robin(5, 3)),
        'placed as'),
    'form': ('to_experts', lambda g: to_experts(g, form='best'), 'form: expected auto'),
    'batch': ('from_experts', lambda g: moe.combine_from_experts(
        g, batch_of(g, 0).hidden, HIDDEN), 'batch: expected'),
    'outputs': ('from_experts', lambda g: moe.combine_from_experts(g, batch_of(g, 0), HIDDEN[1:]),
                'outputs are f32 [6, 4]'),
    'weights_by': ('from_experts', lambda g: moe.combine_from_experts(
        g, batch_of(g, 0), HIDDEN, weights_by='all'), 'weights_by: expected'),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_fail_on_all_ranks(groups, name):
    call, wrong, text = WRONG[name]
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument) as caught:
            wrong(group) if rank == 0 else good(group, rank)[call]()
        assert group.all_reduce(np.ones(1)).tolist() == [RANKS]
        return str(caught.value)
    for message in run(groups, body):
        assert text in message
        assert 'rank 0' in message or 'ranks 0' in message
