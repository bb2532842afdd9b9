"""Wrong arguments of tensor maps, queues, layouts, pipelines, mixtures of experts and vLLM's group:
an exception that says which, no leak, and a group that works afterwards."""

import socket

import numpy as np
import pytest

import cohort
from cohort import MessageQueue, moe
from cohort.vllm import StatelessProcessGroup
from testing.bad_input import NO_UTF8, Wrong, assert_no_leak, refuse, refuse_on_ranks
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture, groups_fixture, queue_pair_fixture, run

_address = address_fixture()
_groups = groups_fixture('bad', 2)
_pair = queue_pair_fixture()

NAN = float('nan')
OWN = {}
OWN['a'] = OWN
LAYOUT = cohort.make_layout(2, {'tp': 2})
PLACEMENT = moe.ExpertPlacement.blocks(4, 2)
HIDDEN = np.ones((2, 3), np.float32)
IDS = np.array([[0], [1]], np.int32)
WEIGHTS = np.ones((2, 1), np.float32)


def receive_map(group):
    return group.receive_map(0)


def receive_broadcast(group):
    return group.broadcast_map(None, 0)


def send_and_receive(value, text):
    return Wrong(lambda g: g.send_map(value, 1), text, receive_map)


def broadcast(value, text):
    return Wrong(lambda g: g.broadcast_map(value, 0), text, receive_broadcast)


MAPS = {
    'no dict': send_and_receive(5, 'tensor_dict: expected a dict'),
    'object': send_and_receive({'a': object()}, "tensor_dict['a']: expected None"),
    'key': send_and_receive({1: 2}, 'tensor_dict[1]: expected a str as key'),
    'key without UTF-8': send_and_receive({NO_UTF8: 1}, 'the key: the text has no UTF-8 form'),
    'text without UTF-8': send_and_receive({'a': NO_UTF8}, "['a']: the str: the text has no UTF-8"),
    'large int': send_and_receive({'a': 1 << 70}, "tensor_dict['a']: an int of more than 64 bits"),
    'a dict in itself': send_and_receive(OWN, 'is nested deeper than'),
    'array of objects': send_and_receive({'a': np.array([None])}, "['a']: elements of format O"),
    'timeout': Wrong(lambda g: g.send_map({}, 1, timeout='x'), 'timeout: expected', receive_map),
    'group of parts': Wrong(lambda g: g.send_map({}, 1, all_gather_group=5),
                            'all_gather_group: expected a Group', receive_map),
    'parts': Wrong(lambda g: g.send_map({}, 1, all_gather_group=g, all_gather_tensors=[5]),
                   'all_gather_tensors: expected', receive_map),
    'paths of parts': Wrong(lambda g: g.send_map({}, 1, all_gather_group=g,
                                                 all_gather_tensors={5: True}),
                            'all_gather_tensors: expected a str', receive_map),
    'no dict for all': broadcast(5, 'tensor_dict: expected a dict'),
    'object for all': broadcast({'a': [1, {2}]}, "tensor_dict['a'][1]: expected None"),
    'root': Wrong(lambda g: g.broadcast_map({}, 9), 'root is 9', receive_broadcast),
    'library of all': Wrong(lambda g: g.broadcast_map({}, 0, tensors='jax'), 'tensors: expected',
                            receive_broadcast),
    'destination': Wrong(lambda g: g.send_map({}, 9), 'rank 9'),
    'no destination': Wrong(lambda g: g.send_map({}, 'x'), 'destination: expected an int'),
    'source': Wrong(lambda g: g.receive_map(9), 'rank 9'),
    'library': Wrong(lambda g: g.receive_map(1, tensors='jax'), 'tensors: expected'),
    'receiver of parts': Wrong(lambda g: g.receive_map(1, all_gather_group=5), 'expected a Group'),
}


def dispatch(group):
    return moe.dispatch(group, HIDDEN)


def dispatch_to_experts(group, ids=IDS, weights=WEIGHTS, placement=PLACEMENT, form='auto'):
    return moe.dispatch_to_experts(group, HIDDEN, ids, weights, placement, form=form)


EXPERTS = {
    'hidden': Wrong(lambda g: moe.dispatch(g, 'x'), 'hidden: expected an array', dispatch),
    'companions': Wrong(lambda g: moe.dispatch(g, HIDDEN, [5]), 'companions: expected', dispatch),
    'no list': Wrong(lambda g: moe.dispatch(g, HIDDEN, 5), 'companions: expected a list', dispatch),
    'rows': Wrong(lambda g: moe.dispatch(g, HIDDEN, [np.ones(5)]), 'companion 0', dispatch),
    'sizes': Wrong(lambda g: moe.dispatch(g, HIDDEN, sizes='x'), 'sizes: expected', dispatch),
    'size below 0': Wrong(lambda g: moe.dispatch(g, HIDDEN, sizes=[-2, 2]), '-2', dispatch),
    'huge size': Wrong(lambda g: moe.dispatch(g, HIDDEN, sizes=[1 << 62, 2]), 'rows', dispatch),
    'no dimension': Wrong(lambda g: moe.dispatch(g, np.float32(1)), 'hidden has no', dispatch),
    'expert': Wrong(lambda g: dispatch_to_experts(g, IDS + 9), 'expert 9', dispatch_to_experts),
    'type of ids': Wrong(lambda g: dispatch_to_experts(g, WEIGHTS), 'ids', dispatch_to_experts),
    'type of weights': Wrong(lambda g: dispatch_to_experts(g, weights=IDS), 'weights',
                             dispatch_to_experts),
    'placement': Wrong(lambda g: dispatch_to_experts(g, placement=5), 'placement: expected',
                       dispatch_to_experts),
    'ranks of the placement': Wrong(
        lambda g: dispatch_to_experts(g, placement=moe.ExpertPlacement.blocks(4, 3)), 'on 3 ranks',
        dispatch_to_experts),
    'form': Wrong(lambda g: dispatch_to_experts(g, form=NO_UTF8), 'form: the text has no UTF-8',
                  dispatch_to_experts),
    'rank of an expert': Wrong(lambda _: moe.ExpertPlacement([9], 2), 'rank 9'),
    'ranks of experts': Wrong(lambda _: moe.ExpertPlacement('x', 2), 'rank_of_expert: expected'),
    'experts': Wrong(lambda _: moe.ExpertPlacement.blocks(-1, 2), '-1 experts'),
    'too many experts': Wrong(lambda _: moe.ExpertPlacement.blocks(1 << 62, 2), 'experts'),
    'too many ranks': Wrong(lambda _: moe.ExpertPlacement.blocks(1, (1 << 31) - 1), 'ranks'),
    'no ranks': Wrong(lambda _: moe.ExpertPlacement.round_robin(4, 0), '0 ranks'),
}


def send_forward(array, text, **options):
    return Wrong(lambda g: cohort.Pipeline(g).send_forward(array, **options), text,
                 lambda g: cohort.Pipeline(g).recv_forward())


def shift(group):
    return cohort.ring_shift(group, np.ones(1))


PIPELINES = {
    'output': send_forward('x', 'output: expected an array'),
    'no output': send_forward(None, 'output: expected an array'),
    'an output': send_forward([np.ones(1), 5], 'output: expected an array'),
    'objects': send_forward(np.array([None]), 'output: elements of format O'),
    'timeout': send_forward(np.ones(1), 'timeout: expected seconds', timeout=NAN),
    'shifted': Wrong(lambda g: cohort.ring_shift(g, 'x'), 'array: expected an array', shift),
    'distance': Wrong(lambda g: cohort.ring_shift(g, np.ones(1), 'x'), 'distance: expected', shift),
    'library': Wrong(lambda g: cohort.Pipeline(g, library='jax'), 'library: expected'),
    'next_rank': Wrong(lambda g: cohort.Pipeline(g, next_rank=1 << 40), 'next_rank: 1099511627776'),
    'channel': Wrong(lambda g: cohort.Pipeline(g, channel='x'), 'channel: expected an int'),
}


def create(group):
    return cohort.create_layout(group, LAYOUT)


LAYOUTS = {
    'no ranks': Wrong(lambda _: cohort.make_layout(0, {}), 'the world has 0 ranks'),
    'axis': Wrong(lambda _: cohort.make_layout(2, {'x': 2}), 'axes: "x" is no axis'),
    'axis without UTF-8': Wrong(lambda _: cohort.make_layout(2, {NO_UTF8: 2}), 'axes: the text'),
    'size': Wrong(lambda _: cohort.make_layout(2, {'tp': -1}), 'the size -1 of the axis tp'),
    'ranks': Wrong(lambda _: cohort.make_layout('2', {}), 'world_size: expected an int'),
    'ranks of 64 bits': Wrong(lambda _: cohort.make_layout(1 << 40, {}), 'world_size: 10995116'),
    'huge world': Wrong(lambda _: cohort.make_layout((1 << 31) - 1, {'tp': (1 << 31) - 1}),
                        'a layout at most'),
    'axes': Wrong(lambda _: cohort.make_layout(2, ['tp']), 'axes: expected a dict'),
    'kind': Wrong(lambda _: LAYOUT.with_family('x', [[0]]), 'families: there are no groups'),
    'rank twice': Wrong(lambda _: LAYOUT.with_family('embedding', [[0, 0]]), 'rank 0 is twice'),
    'ranks of a family': Wrong(lambda _: LAYOUT.with_family('embedding', 'ab'), 'families: '),
    "vLLM's": Wrong(lambda _: cohort.vllm_layout(2, tensor=3), 'tp 3'),
    "Megatron's": Wrong(lambda _: cohort.megatron_layout(2, order='x'), '"x" in the order'),
    "ColossalAI's": Wrong(lambda _: cohort.colossalai_layout(2, mode='x'), 'mode: expected'),
    'stages': Wrong(lambda _: cohort.split_layers(4, 0), 'over 0 stages'),
    'huge stages': Wrong(lambda _: cohort.split_layers(4, (1 << 31) - 1), 'stages'),
    'layers': Wrong(lambda _: cohort.split_layers('x', 2), 'layers: expected an int'),
    'no layout': Wrong(lambda g: cohort.create_layout(g, 5), 'layout: expected a Layout', create),
    'kinds': Wrong(lambda g: cohort.create_layout(g, LAYOUT, kinds=['x']), 'kinds: there are no',
                   create),
}

QUEUES = {
    'writer': Wrong(lambda g: MessageQueue(g, 9), 'writer_rank 9', MessageQueue),
    'no writer': Wrong(lambda g: MessageQueue(g, 'x'), 'writer_rank: expected', MessageQueue),
    'blocks': Wrong(lambda g: MessageQueue(g, blocks=0), 'times blocks 0', MessageQueue),
    'listen': Wrong(lambda g: MessageQueue(g, listen=NO_UTF8), 'listen: the text has no UTF-8',
                    MessageQueue),
    'join_timeout': Wrong(lambda g: MessageQueue(g, join_timeout=NAN), 'join_timeout: expected',
                          MessageQueue),
    'name': Wrong(lambda _: MessageQueue.create_external(NO_UTF8), 'name: the text has no UTF-8'),
    'name in bytes': Wrong(lambda _: MessageQueue.create_external(b'\xff'), 'name: the bytes are'),
    'huge blocks': Wrong(lambda _: MessageQueue.create_external('q', blocks=1 << 30), 'blocks'),
    'values': Wrong(lambda _: MessageQueue.create_external('q', max_value_bytes=-1), 'max_value'),
    'handle': Wrong(lambda _: MessageQueue.open(b'junk', 'r'), 'not the handle of a queue'),
    'no handle': Wrong(lambda _: MessageQueue.open(5, 'r'), 'handle: expected a str'),
}


def check_works(groups):
    def body(group, rank):
        assert group.broadcast_map({'a': 1} if rank == 0 else None, 0) == {'a': 1}
        group.all_gather_objects(b'')
        return cohort.ring_shift(group, np.full(1, rank)).tolist()
    assert run(groups, body) == [[1], [0]]


@pytest.mark.parametrize('table, name', [(table, name) for table in (
    MAPS, EXPERTS, PIPELINES, LAYOUTS, QUEUES) for name in table],
                         ids=lambda each: each if isinstance(each, str) else '')
def test_a_thousand_errors_leave_nothing(groups, table, name):
    assert_no_leak(lambda count: refuse_on_ranks(groups, table[name], count))
    check_works(groups)


def test_outputs_of_experts(groups):
    batches = run(groups, lambda group, _: dispatch_to_experts(group, form='routed'))
    def combine(group, outputs=None, **options):
        batch = batches[group.rank]
        return moe.combine_from_experts(group, batch, batch.hidden if outputs is None else outputs,
                                        **options)
    for wrong in (Wrong(lambda g: moe.combine_from_experts(g, 5, HIDDEN), 'batch: ', combine),
                  Wrong(lambda g: combine(g, np.ones((99, 3), 'f4')), 'outputs are', combine),
                  Wrong(lambda g: combine(g, weights_by='x'), 'weights_by: expected', combine)):
        assert_no_leak(lambda count, wrong=wrong: refuse_on_ranks(groups, wrong, count))
    for result in run(groups, lambda group, _: combine(group)):
        np.testing.assert_array_equal(result, HIDDEN)


# Calls of a writer and its reader.
ENDS = {
    'text': (lambda w, r: w.enqueue('text'), 'value: expected a bytes-like object'),
    'strided': (lambda w, r: w.enqueue(memoryview(b'abcd')[::2]), 'value: expected a bytes-like'),
    'timeout': (lambda w, r: w.enqueue(b'', timeout=NAN), 'timeout: expected seconds'),
    'no number': (lambda w, r: w.enqueue(b'', timeout='x'), 'timeout: expected a number'),
    'read by the writer': (lambda w, r: w.dequeue(), 'not a call of its writer'),
    'written by the reader': (lambda w, r: r.enqueue(b''), 'not a call of its readers'),
    'view of the writer': (lambda w, r: w.dequeue_view().__enter__(), 'not a call of its writer'),
    'count': (lambda w, r: w.await_readers('x'), 'count: expected an int'),
    'reason': (lambda w, r: w.shutdown(NO_UTF8), 'reason: the text has no UTF-8 form'),
    'reader': (lambda w, r: MessageQueue.open(w.handle, NO_UTF8), 'reader: the text has no UTF-8'),
}


@pytest.mark.parametrize('name', ENDS)
def test_ends_of_a_queue(pair, name):
    call, text = ENDS[name]
    def repeat(count):
        for _ in range(count):
            refuse(lambda: call(*pair), text)
    assert_no_leak(repeat)
    pair[0].enqueue(b'value')
    assert pair[1].dequeue() == b'value'


def test_closed_queue(pair):
    pair[1].close()
    def repeat(count):
        for _ in range(count):
            refuse(lambda: pair[1].dequeue(), 'close()')
            refuse(lambda: pair[1].dequeue_view().__enter__(), 'close()')
    assert_no_leak(repeat)


# Calls of rank 0 of vLLM's group, while the others make the calls of right.
STATELESS = {
    'object': Wrong(lambda g: g.send_obj(object(), 1), 'allow_pickle'),
    'destination': Wrong(lambda g: g.send_obj(1, 9), 'destination 9'),
    'source': Wrong(lambda g: g.recv_obj(-1), 'source -1'),
    'root': Wrong(lambda g: g.broadcast_obj(1, 9), 'root ', lambda g: g.broadcast_obj(None, 0)),
    'gathered': Wrong(lambda g: g.all_gather_obj(object()), 'allow_pickle',
                      lambda g: g.all_gather_obj(1)),
    'broadcast': Wrong(lambda g: g.broadcast_obj(object(), 0), 'allow_pickle',
                       lambda g: g.broadcast_obj(None, 0)),
    'tensor': Wrong(lambda g: g.all_reduce('x'), 'expected an array',
                    lambda g: g.all_reduce(np.ones(3))),
    'operation': Wrong(lambda g: g.all_reduce(np.ones(3), 'x'), "got 'x'",
                       lambda g: g.all_reduce(np.ones(3))),
    'root of a gather': Wrong(lambda g: g.gather(np.ones(3), 9), 'root 9',
                              lambda g: g.gather(np.ones(3), 0)),
}


@pytest.fixture(scope='module', name='stateless')
def _stateless():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    groups = run_ranks(2, lambda rank: StatelessProcessGroup.create(
        '127.0.0.1', port, rank, 2, store_timeout=LONG))
    yield groups
    for group in reversed(groups):
        group.close()


@pytest.mark.parametrize('name', STATELESS)
def test_group_of_vllm(stateless, name):
    def repeat(count):
        for _ in range(count // 10):  # the coordinator keeps 16 ends for a rank that comes late
            refuse_on_ranks(stateless, STATELESS[name], 10)
    assert_no_leak(repeat)
    assert run(stateless, lambda group, rank: group.all_gather_obj(rank)) == [[0, 1]] * 2
    assert run(stateless, lambda group, _: group.all_reduce(np.ones(1)).tolist()) == [[2]] * 2
