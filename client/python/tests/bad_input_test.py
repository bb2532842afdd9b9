"""Wrong arguments: an exception that says which, no leak, and a group that works afterwards."""

import gc
import os
import resource

import numpy as np
import pytest

import cohort
from testing.coordinator import run_ranks
from testing.fixtures import address_fixture, groups_fixture

_address = address_fixture()
_groups = groups_fixture('bad', 2)


def read_only():
    array = np.ones(3)
    array.flags.writeable = False
    return array


# A call of rank 0 while rank 1 calls all_reduce of three f64, and a part of the text of both errors.
WRONG = {
    'no array': (lambda g: g.all_reduce('text', out=np.ones(3)), 'expected an array'),
    'no array, no out': (lambda g: g.all_reduce('text'), 'expected an array'),
    'None': (lambda g: g.all_reduce(None, out=np.ones(3)), 'rank 0'),
    'operation': (lambda g: g.all_reduce(np.ones(3), op='median'), "got 'median'"),
    'number of an operation': (lambda g: g.all_reduce(np.ones(3), op=99), 'op: expected'),
    'timeout': (lambda g: g.all_reduce(np.ones(3), timeout='soon'), 'timeout: expected a number'),
    'negative timeout': (lambda g: g.barrier(timeout=-1), 'timeout: expected seconds'),
    'sizes': (lambda g: g.all_gather_v(np.ones(3), ['a', 'b']), 'sizes: expected an int'),
    'number of sizes': (lambda g: g.all_gather_v(np.ones(3), [1, 2, 3]), 'rank 0'),
    'size': (lambda g: g.exchange_sizes('one'), 'own: expected an int'),
    'arrays': (lambda g: g.all_reduce_coalesced([np.ones(3), 'x']), 'inputs: expected an array'),
    'root is no number': (lambda g: g.broadcast(np.ones(3), 'zero'), 'root: expected an int'),
    'dimension without out': (lambda g: g.all_gather(np.ones(3), dim=7), 'dim'),
    'byte order': (lambda g: g.all_reduce(np.ones(3, '>f8'), out=np.ones(3)), 'format >d'),
    'objects': (lambda g: g.all_reduce(np.array([1, None, 2]), out=np.ones(3)), 'format O'),
    'long double': (lambda g: g.all_reduce(np.ones(3, 'g'), out=np.ones(3)), 'format g'),
    'read-only': (lambda g: g.all_reduce(np.ones(3), out=read_only()), 'read-only'),
    'shape of out': (lambda g: g.all_reduce(np.ones(3), out=np.ones(4)), 'rank 0'),
    'type of out': (lambda g: g.all_reduce(np.ones(3), out=np.ones(3, 'f4')), 'rank 0'),
    'shape': (lambda g: g.all_reduce(np.ones((3, 1)), out=np.ones((3, 1))), 'rank 0'),
    'other collective': (lambda g: g.all_gather(np.ones(3)), 'all_gather'),
    'root': (lambda g: g.broadcast(np.ones(3), 5), '5'),
    'dimension': (lambda g: g.all_gather(np.ones(3), out=np.ones(6), dim=7), 'dim'),
    'overlap': (lambda g: g.all_reduce((a := np.ones(4))[:3], out=a[1:]), 'overlap'),
    'complex': (lambda g: g.all_reduce(np.ones(3, complex)), 'c128'),
}


@pytest.mark.parametrize('name', WRONG)
def test_all_ranks_get_the_error_and_the_group_works_afterwards(groups, name):
    wrong, text = WRONG[name]
    def body(rank):
        group = groups[rank]
        with pytest.raises(cohort.InvalidArgument) as caught:
            wrong(group) if rank == 0 else group.all_reduce(np.ones(3))
        assert group.all_reduce(np.ones(3)).tolist() == [2, 2, 2]
        return str(caught.value)
    for message in run_ranks(2, body):
        assert text in message


# Calls that fail before the other ranks could notice.
LOCAL = {
    'type of memory': lambda g: g.empty(3, 'U5'),
    'extent of memory': lambda g: g.empty((-1, 2)),
    'huge memory': lambda g: g.empty((1 << 40, 1 << 20)),
    'object': lambda g: g.send_object('text', 1),
    'rank': lambda g: g.send(np.ones(3), 7),
    'own rank': lambda g: g.send(np.ones(3), g.rank),
    'rank is no number': lambda g: g.send(np.ones(3), 'one'),
    'message is no array': lambda g: g.send(object(), 1),
    'no such method': lambda g: g._core.run(1, 2),
}


@pytest.mark.parametrize('name', LOCAL)
def test_local_errors(groups, name):
    with pytest.raises((ValueError, TypeError, KeyError, cohort.Error)):
        LOCAL[name](groups[0])


def descriptors():
    return len(os.listdir('/proc/self/fd'))


def test_a_thousand_errors_of_each_kind_leak_nothing(groups):
    def all_wrong(count):
        for _ in range(count):
            for wrong in LOCAL.values():
                try:
                    wrong(groups[0])
                except (ValueError, TypeError, KeyError, cohort.Error):
                    pass
        def body(rank):
            for _ in range(count // 10):
                for wrong, _ in WRONG.values():
                    try:
                        wrong(groups[0]) if rank == 0 else groups[1].all_reduce(np.ones(3))
                    except cohort.InvalidArgument:
                        pass
        run_ranks(2, body)
        gc.collect()

    all_wrong(200)
    files = descriptors()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    all_wrong(1000)
    assert descriptors() <= files
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB


def test_wrong_options():
    with pytest.raises(TypeError, match='world_size'):
        cohort.ProcessGroup('g', rank=0, world_size='two')
    with pytest.raises(ValueError, match='out of range'):
        cohort.ProcessGroup('g', rank=1 << 40, world_size=2)
    with pytest.raises(TypeError, match='unknown option'):
        cohort._core.join_process_group({'grup': 'g'})
    with pytest.raises(cohort.InvalidArgument):
        cohort.ProcessGroup('g', rank=5, world_size=2)


def test_errors_name_the_argument(groups):
    with pytest.raises(TypeError, match="destination: expected an int"):
        groups[0].send_object(b'', 'one')


def test_types_are_made_by_functions_alone():
    with pytest.raises(TypeError):
        cohort._core.Group()
