"""Tensor maps of cohort.Group: dicts of values, arrays of numpy and tensors of PyTorch."""

import gc
import os
import resource
import signal
import threading

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, rank_process, run_ranks
from testing.fixtures import address_fixture, groups_fixture, run

RANKS = 3

_address = address_fixture()
_groups = groups_fixture('maps', RANKS)


@pytest.fixture(name='torch')
def _torch():
    return pytest.importorskip('torch', reason='PyTorch is not installed for this Python')


def check(value, expected):
    """Checks that a received value is the expected one, with the same types."""
    if isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(value, np.ndarray) and value.flags.c_contiguous and value.flags.writeable
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(value, expected)
    elif isinstance(expected, dict):
        assert type(value) is dict and list(value) == list(expected)
        for key in expected:
            check(value[key], expected[key])
    elif isinstance(expected, list):
        assert type(value) is list and len(value) == len(expected)
        for one, other in zip(value, expected):
            check(one, other)
    else:
        assert type(value) is type(expected) and value == expected


PLAIN = {
    'none': None, 'bools': [True, False], 'ints': [0, -1, 2**63 - 1, -2**63], 'float': 2.5,
    'infinite': float('-inf'), 'text': 'größe \0', 'bytes': bytes(range(256)), '': '',
    'nested': {'deeper': [{'deepest': [[]]}, {}]},
}
ARRAYS = {
    'small': np.arange(6, dtype=np.int16).reshape(2, 3),
    'large': np.arange(200000, dtype=np.float64),
    'strided': np.arange(600, dtype=np.float32).reshape(20, 30)[::-2, ::3].T,
    'empty': np.empty((0, 4), np.int8), 'no dimensions': np.array(7, np.uint64),
    'scalar': np.float32(1.5),
    'list': [np.array([True, False]), {'in a dict': np.array([1 + 2j])}, np.ones(3, np.float16)],
}


@pytest.mark.parametrize('tensor_dict', [PLAIN, ARRAYS, {**PLAIN, **ARRAYS}, {}],
                         ids=['plain', 'arrays', 'both', 'empty'])
def test_maps_arrive_as_sent(groups, tensor_dict):
    def body(group, rank):
        # Round the ring, and then from one to all.
        if rank == 0:
            group.send_map(tensor_dict)
            received = group.receive_map()
        else:
            received = group.receive_map()
            group.send_map(received)
        check(received, tensor_dict)
        own = tensor_dict if rank == 1 else None
        received = group.broadcast_map(own, 1)
        check(received, tensor_dict) if rank != 1 else None
        assert (received is own) == (rank == 1)
    run(groups, body)


def test_maps_keep_their_order_and_their_memory(groups):
    def body(group, rank):
        if rank == 0:
            for i in range(100):
                group.send_map({'i': i, 'array': np.full(i * 50, i)}, 2)
        if rank == 2:
            received = [group.receive_map(0) for _ in range(100)]
            gc.collect()
            for i, each in enumerate(received):
                check(each, {'i': i, 'array': np.full(i * 50, i)})
    run(groups, body)


def test_int_and_str_subclasses_are_plain_values(groups):
    def body(group, rank):
        sent = {np.str_('key'): cohort.ReduceOp.MAX, 'number': np.float64(0.5)}
        received = group.broadcast_map(sent if rank == 0 else None, 0)
        if rank != 0:
            check(received, {'key': 4, 'number': 0.5})
    run(groups, body)


def test_anything_with_a_buffer_is_an_array(groups):
    def body(group, rank):
        sent = {'bytearray': bytearray(b'ab'), 'view': memoryview(b'abcd')[::2]}
        received = group.broadcast_map(sent if rank == 0 else None, 0)
        if rank != 0:
            check(received, {'bytearray': np.array([97, 98], np.uint8),
                             'view': np.array([97, 99], np.uint8)})
    run(groups, body)


def test_tensors_of_torch(groups, torch):
    names = ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'bfloat16', 'float32',
             'float64', 'complex64', 'float8_e4m3fn', 'float8_e5m2')
    sent = {name: torch.arange(6).reshape(2, 3).t().to(getattr(torch, name)) for name in names}
    sent['parameter'] = torch.nn.Parameter(torch.ones(2, 2))
    sent['empty'] = torch.empty(0, 3)
    sent['large'] = [torch.arange(100000)]
    def same(one, other):
        assert isinstance(one, torch.Tensor) and not one.requires_grad
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.is_contiguous()
        assert torch.equal(one.view(torch.uint8), other.detach().contiguous().view(torch.uint8))
    def body(group, rank):
        if rank == 0:
            group.send_map(sent)
            group.send_map(sent)
        if rank == 1:
            received = group.receive_map(tensors='torch')
            same(received.pop('large')[0], sent['large'][0])
            for key, tensor in received.items():
                same(tensor, sent[key])
            # numpy has neither of these types.
            received = group.receive_map()
            for key in ('bfloat16', 'float8_e4m3fn', 'float8_e5m2'):
                same(received[key], sent[key])
            check(received['float32'], sent['float32'].numpy())
    run(groups, body)


def test_tensor_without_memory_is_refused(groups, torch):
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument, match=r"tensor_dict\['a'\]\[0\]: .*meta") as caught:
            group.broadcast_map({'a': [torch.ones(2, device='meta')]} if rank == 0 else None, 0)
        assert '\n' not in str(caught.value)
    run(groups, body)


def cyclic():
    tensor_dict = {'a': []}
    tensor_dict['a'].append(tensor_dict)
    return tensor_dict


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {'d': value}
    return value


def explosive():
    """2**28 values in 28 lists."""
    value = []
    for _ in range(28):
        value = [value, value]
    return {'a': value}


# A dict that cannot be sent, and a part of the error on all ranks.
REFUSED = {
    'set': ({'a': {1}}, "tensor_dict['a']: expected None, a bool,"),
    'object': ({'a': [0, 1, object()]}, "tensor_dict['a'][2]: expected None, a bool,"),
    'tuple': ({'a': (1, 2)}, "tensor_dict['a']: expected None, a bool,"),
    'complex': ({'a': {'b': 1j}}, "tensor_dict['a']['b']: expected None, a bool,"),
    'key': ({'a': {1: 2}}, "tensor_dict['a'][1]: expected a str as key, got <class 'int'>"),
    'key of bytes': ({b'a': 1}, "tensor_dict[b'a']: expected a str as key"),
    'key without UTF-8': ({'\ud800': 1}, r"tensor_dict['\ud800']: the key: the text has no UTF-8"),
    'text without UTF-8': ({'a': '\ud800'}, "tensor_dict['a']: the str: the text has no UTF-8"),
    'large int': ({'a': [2**63]}, "tensor_dict['a'][0]: an int of more than 64 bits"),
    'list': ([], "tensor_dict: expected a dict, got <class 'list'>"),
    'None': (None, "tensor_dict: expected a dict, got <class 'NoneType'>"),
    'cycle': (cyclic(), 'is nested deeper than 32 dicts and lists, or contains itself'),
    'depth': (nested(33), 'is nested deeper than 32'),
    'array of objects': ({'a': np.array([None])}, "tensor_dict['a']: elements of format O"),
    'byte order': ({'a': np.ones(2, '>f4')}, "tensor_dict['a']: elements of format >f"),
    'dates': ({'a': np.array(['2024'], 'M8[D]')}, "tensor_dict['a']: "),
    'records': ({'a': np.zeros(2, [('x', 'i4')])}, "tensor_dict['a']: elements of format T{"),
    'long key': ({'k' * 1000: set()}, f"tensor_dict['{'k' * 63}...]: expected None"),
}


@pytest.mark.parametrize('name', REFUSED)
def test_all_ranks_get_the_error_and_the_group_works_afterwards(groups, name):
    refused, text = REFUSED[name]
    def body(group, rank):
        errors = []
        with pytest.raises(cohort.InvalidArgument) as caught:
            group.broadcast_map(refused if rank == 1 else None, 1)
        errors.append(str(caught.value))
        if rank < 2:
            with pytest.raises(cohort.InvalidArgument) as caught:
                group.send_map(refused) if rank == 0 else group.receive_map()
            errors.append(str(caught.value))
            assert (group.send_map({'a': 1}) if rank == 0 else group.receive_map()) in (None, {'a': 1})
        assert group.all_reduce(np.ones(1)).tolist() == [3]
        return errors
    for errors in run(groups, body):
        for error in errors:
            assert text in error


def test_deepest_map_arrives(groups):
    def body(group, rank):
        assert group.broadcast_map(nested(32) if rank == 0 else None, 0) == nested(32)
    run(groups, body)


@pytest.mark.parametrize('refused', [explosive(), {'a': ['x' * (1 << 20)] * 100}],
                         ids=['values', 'bytes'])
def test_few_objects_that_stand_for_many_are_too_much(groups, refused):
    def body(group, rank):
        if rank == 2:
            return
        with pytest.raises(cohort.ResourceExhausted, match='more than .* in the dict'):
            group.send_map(refused) if rank == 0 else group.receive_map()
    run(groups, body)


def test_wrong_arguments_of_a_broadcast_fail_on_all_ranks(groups):
    for arguments, keywords, text in (
            (({}, 'zero'), {}, 'root: expected an int'), (({}, 7), {}, '7'),
            (({}, 1), {}, 'the root is'), (({}, 0), {'tensors': 'jax'}, "got 'jax'"),
            (({}, 0), {'timeout': 'soon'}, 'timeout: expected a number')):
        def body(group, rank):
            with pytest.raises(cohort.InvalidArgument) as caught:
                if rank == 2:
                    group.broadcast_map(*arguments, **keywords)  # pylint: disable=cell-var-from-loop
                else:
                    group.broadcast_map({}, 0)
            assert text in str(caught.value)  # pylint: disable=cell-var-from-loop
        run(groups, body)


# Calls that fail before the other ranks could notice.
LOCAL = {
    'destination': lambda g: g.send_map({}, 'one'),
    'no such rank': lambda g: g.send_map({}, 7),
    'own rank': lambda g: g.send_map({}, g.rank),
    'negative rank': lambda g: g.send_map({'a': set()}, -1),
    'source': lambda g: g.receive_map('one'),
    'no such source': lambda g: g.receive_map(7),
    'library': lambda g: g.receive_map(1, tensors='jax'),
    'timeout': lambda g: g.receive_map(1, timeout=float('nan')),
    'group': lambda g: g.receive_map(1, all_gather_group='group'),
    'nothing to receive': lambda g: g.receive_map(1, timeout=0),
}


@pytest.mark.parametrize('name', LOCAL)
def test_local_errors(groups, name):
    with pytest.raises((ValueError, TypeError, AttributeError, cohort.Error)):
        LOCAL[name](groups[0])


def test_group_of_one(address):
    with cohort.Group('one', rank=0, world_size=1, address=address) as group:
        tensor_dict = {'a': np.ones(3)}
        assert group.broadcast_map(tensor_dict, 0) is tensor_dict
        with pytest.raises(cohort.FailedPrecondition):
            group.send_map(tensor_dict)
        with pytest.raises(cohort.InvalidArgument, match=r"tensor_dict\['a'\]"):
            group.send_map({'a': set()})


def test_tensors_in_parts(address):
    """Ranks 0 and 1 have the same tensors, and send them to ranks 2 and 3."""
    sent = {'even': np.arange(100000.0), 'odd': np.arange(3), 'nested': [{'whole': np.arange(4)}]}
    def body(rank):
        with cohort.Group('all', rank=rank, world_size=4, address=address, timeout=LONG) as group, \
             cohort.Group(f'half-{rank // 2}', rank=rank % 2, world_size=2, address=address,
                          timeout=LONG) as half:
            if rank < 2:
                group.send_map(sent, rank + 2, all_gather_group=half,
                               all_gather_tensors={('nested', 0, 'whole'): False})
                moved = group.stats()[rank + 2].bytes_sent
                with pytest.raises(cohort.InvalidArgument, match='odd'):
                    group.send_map(sent, rank + 2, all_gather_group=half,
                                   all_gather_tensors={'odd': True})
            else:
                check(group.receive_map(rank - 2, all_gather_group=half), sent)
                moved = group.stats()[rank - 2].bytes_received
                with pytest.raises(cohort.InvalidArgument, match='odd'):
                    group.receive_map(rank - 2, all_gather_group=half)
            assert 400000 < moved < 402000  # half of the even tensor
            group.all_gather_objects(b'')
    run_ranks(4, body)


def test_only_one_thread_moves_maps(groups):
    group, errors = groups[0], []
    def wait():
        while not errors:
            try:
                errors.append(group.receive_map(1))
            except cohort.FailedPrecondition:
                continue  # this call came while the one below looked
    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(cohort.FailedPrecondition, match='another thread'):
        while True:
            thread.join(0.001)
            with pytest.raises(cohort.DeadlineExceeded):
                group.receive_map(1, timeout=0)
    groups[1].send_map({'a': 1}, 0)
    thread.join(LONG)
    assert errors == [{'a': 1}]


def test_a_thousand_maps_and_errors_leak_nothing(groups):
    def use(count):
        def body(group, rank):
            for _ in range(count):
                if rank == 2:
                    return
                for refused, _ in REFUSED.values():
                    with pytest.raises(cohort.InvalidArgument):
                        group.send_map(refused) if rank == 0 else group.receive_map()
                if rank == 0:
                    group.send_map(ARRAYS)
                else:
                    group.receive_map()
        run(groups, body)
        for _ in range(count):
            for wrong in LOCAL.values():
                with pytest.raises((ValueError, TypeError, AttributeError, cohort.Error)):
                    wrong(groups[0])
        gc.collect()

    use(100)
    files = len(os.listdir('/proc/self/fd'))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    use(1000)
    assert len(os.listdir('/proc/self/fd')) <= files
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB


WAITING = '''
import signal, sys
import cohort
signal.signal(signal.SIGINT, signal.default_int_handler)
group = cohort.Group("signal", rank=0, world_size=2, address=sys.argv[1])
try:
    print("ready", flush=True)
    if sys.argv[2] == "receive":
        group.receive_map()
    else:
        group.broadcast_map({}, 0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
'''


@pytest.mark.parametrize('what', ['receive', 'broadcast'])
def test_keyboard_interrupt_ends_a_wait_and_is_named_to_the_other_rank(address, what):
    with rank_process(WAITING, address, what) as process:
        with cohort.Group('signal', rank=1, world_size=2, address=address, timeout=LONG) as group:
            assert process.stdout.readline() == 'ready\n'
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == 'interrupted\n'
            assert process.wait(LONG) == 0
            with pytest.raises(cohort.Aborted, match='rank 0'):
                group.receive_map()
