"""Layouts, and the groups of a layout."""

import concurrent.futures
import os
import pickle
import signal

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, rank_process, run_ranks
from testing.fixtures import address_fixture, groups_fixture
from testing.threads import threads_without_grpc

RANKS = 4
LAYOUT = cohort.make_layout(RANKS, {'tp': 2, 'pp': 2})

_address = address_fixture()
_worlds = groups_fixture('world', RANKS, name='worlds')


def test_axes_vary_in_the_order_of_the_dict():
    layout = cohort.make_layout(8, {'tp': 2, 'dp': 2, 'pp': 2})
    assert list(layout.axes.items()) == [('tp', 2), ('dp', 2), ('pp', 2)]
    assert layout.families['world'] == [list(range(8))]
    assert layout.families['tensor'] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert layout.families['data'] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert layout.families['pipeline'] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert cohort.make_layout(8, {'pp': 2, 'dp': 2, 'tp': 2}).families['tensor'] == (
        layout.families['pipeline'])
    assert layout.coordinates(6) == {'tp': 0, 'dp': 1, 'pp': 1}
    assert pickle.loads(pickle.dumps(layout)) == layout


def test_ranks_of_a_kind():
    layout = cohort.make_layout(4, {'tp': 2, 'dp': 2}, first_rank=4)
    assert layout.ranks_of('data', 7) == [5, 7]
    assert layout.coordinates(7) == {'tp': 1, 'dp': 1}
    with pytest.raises(cohort.InvalidArgument, match='rank 3 is not in 4..7'):
        layout.ranks_of('data', 3)
    with pytest.raises(cohort.FailedPrecondition, match='groups of kind embedding; it has world'):
        layout.ranks_of('embedding', 4)


def test_layouts_of_frameworks():
    vllm = cohort.vllm_layout(8, tensor=2, data=2, decode_context=2, experts=True,
                              expert_load_balancing=True)
    assert vllm.axes == {'tp': 2, 'cp': 1, 'pp': 1, 'dp': 2, 'external-dp': 2}
    assert vllm.families['expert'] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert vllm.separate == ['expert-load-balancing']
    context_first = cohort.vllm_layout(4, tensor=2, prefill_context=2, decode_context=2,
                                       decode_order='context-first')
    assert context_first.families['decode-context'] == [[0, 2], [1, 3]]
    megatron = cohort.megatron_layout(8, tensor=2, pipeline=2, context=2, first_rank=0,
                                      hierarchical_context=[2], order='tp-pp-cp-ep-dp')
    assert megatron.families['pipeline'] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert megatron.families['context-level-1'] == megatron.families['context']
    assert megatron.ranks_of('embedding', 2) == [0, 2]
    one = cohort.megatron_layout(4, pipeline=4, embedding_stages=[1])
    assert one.families['embedding'] == [[1]]
    assert one.ranks_of('embedding', 0) == []
    colossalai = cohort.colossalai_layout(8, tensor=4, mode='2d', expert=2)
    assert colossalai.families['tensor-2d-column'] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert colossalai.families['expert-data'] == [[rank] for rank in range(4)] + [
        [rank] for rank in range(4, 8)]


@pytest.mark.parametrize('make, text', [
    (lambda: cohort.make_layout(6, {'tp': 4}), 'the world has 6 ranks, but tp 4 need 4'),
    (lambda: cohort.make_layout(2, {'qp': 2}), '"qp" is no axis'),
    (lambda: cohort.vllm_layout(6, tensor=4), '6 ranks, no multiple of tp 4'),
    (lambda: cohort.vllm_layout(2, decode_order='last'), 'decode_order: expected'),
    (lambda: cohort.megatron_layout(4, order='tp-xp'), '"xp" in the order'),
    (lambda: cohort.colossalai_layout(4, mode='4d'), 'mode: expected'),
    (lambda: LAYOUT.with_family('tensor', [[0]]), 'kind tensor already'),
    (lambda: LAYOUT.with_family('tensors', [[0]]), 'no groups of kind "tensors"'),
    (lambda: LAYOUT.with_family('embedding', [[0, 4]]), 'rank 4 of a group of kind embedding'),
    (lambda: cohort.split_layers(4, 2, [1, 2]), '4'),
])
def test_wrong_numbers_are_named(make, text):
    with pytest.raises(cohort.InvalidArgument) as caught:
        make()
    assert text in str(caught.value)


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match='axes: expected a dict'):
        cohort.make_layout(2, [('tp', 2)])
    with pytest.raises(TypeError, match='world_size: expected an int'):
        cohort.vllm_layout('2')


def test_layers_of_stages():
    assert cohort.split_layers(7, 3) == [range(0, 2), range(2, 5), range(5, 7)]
    assert cohort.split_layers(7, 2, [3, 4]) == [range(0, 3), range(3, 7)]


def ranks_that_sum(group, world):
    """The world ranks of the members of `group`."""
    bits = int(group.all_reduce(np.array([1 << world.rank]))[0])
    return [rank for rank in range(RANKS) if bits >> rank & 1]


@pytest.mark.parametrize('layout', [
    LAYOUT,
    cohort.vllm_layout(RANKS, tensor=2, data=2, experts=True, expert_load_balancing=True),
    cohort.megatron_layout(RANKS, pipeline=4, embedding_stages=[0, 2]),
    cohort.make_layout(2, {'tp': 2}, first_rank=1),
], ids=['axes', 'vllm', 'megatron', 'part of the world'])
def test_groups_of_a_layout(worlds, layout):
    def body(rank):
        world = worlds[rank]
        with cohort.create_layout(world, layout, name='job') as groups:
            in_layout = layout.first_rank <= rank < layout.first_rank + layout.world_size
            expected = [kind for kind in layout.families
                        if in_layout and layout.ranks_of(kind, rank)]
            assert list(groups) == expected and len(groups) == len(expected)
            for kind, group in groups.items():
                assert list(groups.ranks(kind)) == layout.ranks_of(kind, rank)
                assert group.rank == groups.ranks(kind).index(rank)
                assert ranks_that_sum(group, world) == layout.ranks_of(kind, rank)
            return dict(groups)
    for rank, groups in enumerate(run_ranks(RANKS, body)):
        for group in set(groups.values()) - {worlds[rank]}:
            with pytest.raises(cohort.FailedPrecondition, match='close'):
                group.barrier()
    assert run_ranks(RANKS, lambda rank: ranks_that_sum(worlds[rank], worlds[rank])) == (
        [list(range(RANKS))] * RANKS)


def test_kinds_with_the_same_ranks_share_a_group(worlds):
    layout = cohort.make_layout(RANKS, {'tp': 2, 'pp': 2})
    def body(rank):
        with cohort.create_layout(worlds[rank], layout, separate=['model']) as groups:
            assert groups['world'] is worlds[rank]
            assert groups['model'] is not worlds[rank]
            assert groups['model'].size == RANKS
            assert groups['data'] is groups['context']
            assert groups['tensor'] is not groups['pipeline']
    run_ranks(RANKS, body)


def test_kinds_that_were_not_asked_for_are_left_out(worlds):
    def body(rank):
        with cohort.create_layout(worlds[rank], LAYOUT, kinds=('tensor',), name='some') as groups:
            assert list(groups) == ['tensor']
            assert groups['tensor'].name.startswith('world@1/some.tensor:')
            with pytest.raises(KeyError, match=f'rank {rank} is in no group of kind data; it is in '
                                               'tensor'):
                groups.ranks('data')
    run_ranks(RANKS, body)


def test_groups_that_the_program_adds(worlds):
    layout = LAYOUT.with_family('embedding', [[3, 0]]).with_family(
        'tensor-2', [[0, 1], [2, 3]], separate=True)
    def body(rank):
        with cohort.create_layout(worlds[rank], layout, kinds=['embedding', 'tensor', 'tensor-2']
                                  ) as groups:
            assert groups['tensor-2'] is not groups['tensor']
            assert groups['tensor-2'].size == 2
            if 'embedding' not in groups:
                return None
            return groups['embedding'].rank, groups.ranks('embedding')
    assert run_ranks(RANKS, body) == [(1, (3, 0)), None, None, (0, (3, 0))]


LARGER = cohort.make_layout(8, {'tp': 8})

# The arguments of rank 1, and a part of the text of all ranks' errors.
WRONG = {
    'no layout': ({'layout': 'tp-pp'}, 'layout: expected a Layout'),
    'layout of wrong values': ({'layout': LAYOUT._replace(world_size='4')}, 'world_size: expected'),
    'sizes and world': ({'layout': LAYOUT._replace(world_size=8)}, 'the world has 8 ranks'),
    'lists': ({'layout': LAYOUT._replace(families={'tensor': [[0, 0]]})}, 'rank 0 is twice'),
    'larger than the world': ({'layout': LARGER}, 'the layout has ranks 0..7, and the world 4'),
    'other layout': ({'layout': cohort.make_layout(4, {'tp': 4})}, 'ranks 0 and 1'),
    'unknown kind': ({'kinds': ['tensors']}, 'no groups of kind "tensors"'),
    'kind that the layout lacks': ({'kinds': ['embedding']}, 'no groups of kind embedding'),
    'kinds as one text': ({'kinds': 'tensor'}, 'kinds: expected a list or tuple'),
    'separate kind': ({'separate': [3]}, 'separate: expected a str'),
    'name': ({'name': 'a/b'}, '"a/b" is no name'),
    'timeout': ({'timeout': 'soon'}, 'timeout: expected a number'),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_fail_on_all_ranks(worlds, name):
    wrong, text = WRONG[name]
    def body(rank):
        arguments = {'layout': LAYOUT, **(wrong if rank == 1 else {})}
        with pytest.raises(cohort.InvalidArgument) as caught:
            cohort.create_layout(worlds[rank], **arguments)
        assert worlds[rank].all_reduce(np.ones(2)).tolist() == [RANKS, RANKS]
        return str(caught.value)
    for message in run_ranks(RANKS, body):
        assert text in message
        assert 'rank 1' in message or 'and 1' in message


def test_groups_have_generations_of_their_own(worlds):
    def body(rank):
        with cohort.create_layout(worlds[rank], LAYOUT, kinds=['tensor', 'pipeline']) as groups:
            tensor = groups['tensor']
            worlds[rank].barrier()
            if rank == 0:
                tensor.abort('enough')
            if rank <= 1:
                with pytest.raises(cohort.Aborted, match='rank 0 aborted: enough'):
                    tensor.barrier()
                tensor.rejoin(LONG)
            for group in (groups['pipeline'], worlds[rank], tensor):
                assert group.all_reduce(np.ones(1)).tolist() == [group.size]
            generations = tensor.generation, groups['pipeline'].generation
            worlds[rank].barrier()
            return generations
    assert run_ranks(RANKS, body) == [(2, 1), (2, 1), (1, 1), (1, 1)]


def test_many_layouts_leave_nothing_open(worlds):
    def create(rank):
        cohort.create_layout(worlds[rank], LAYOUT, kinds=['tensor']).close()
        with pytest.raises(cohort.InvalidArgument):
            cohort.create_layout(worlds[rank], LAYOUT, kinds=[f'of-rank-{rank}'])
        worlds[rank].all_gather_objects(b'')
    run_ranks(RANKS, create)
    files = len(os.listdir('/proc/self/fd'))
    threads = threads_without_grpc()
    for _ in range(10):
        run_ranks(RANKS, create)
    assert len(os.listdir('/proc/self/fd')) < files + 10
    assert threads_without_grpc() < threads + 10


def test_a_world_may_be_closed_before_its_groups(address):
    def body(rank):
        world = cohort.Group('short', rank=rank, world_size=2, address=address, timeout=LONG)
        groups = cohort.create_layout(world, cohort.make_layout(2, {'dp': 2}), kinds=['data'],
                                      separate=['data'])
        world.all_gather_objects(b'')
        world.close()
        total = groups['data'].all_reduce(np.array([rank])).tolist()
        groups['data'].all_gather_objects(b'')
        groups.close()
        groups.close()
        return total
    assert run_ranks(2, body) == [[1]] * 2


INTERRUPTED = '''
import signal, sys
import cohort
signal.signal(signal.SIGINT, signal.default_int_handler)
world = cohort.Group("interrupted", rank=0, world_size=3, address=sys.argv[1])
try:
    print("ready", flush=True)
    cohort.create_layout(world, cohort.make_layout(3, {"dp": 3}))
except KeyboardInterrupt:
    print("interrupted", flush=True)
'''


def test_a_signal_ends_the_call_on_all_ranks(address):
    def body(rank):
        world = cohort.Group('interrupted', rank=rank, world_size=3, address=address, timeout=LONG)
        if rank == 2:
            return world  # never calls
        with pytest.raises(cohort.Aborted, match='rank 0'):
            cohort.create_layout(world, cohort.make_layout(3, {'dp': 3}))
        return world
    with rank_process(INTERRUPTED, address) as process:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            others = [pool.submit(body, rank) for rank in (1, 2)]
            assert process.stdout.readline() == 'ready\n'
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == 'interrupted\n'
            for other in others:
                other.result(LONG).close()
        assert process.wait(LONG) == 0
