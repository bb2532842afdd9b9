"""A rank with a wrong argument takes its turn in a call for objects: all ranks stay in step."""

import asyncio

import numpy as np
import pytest

import cohort
import cohort.aio
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture

RANKS = 3
CULPRIT = 1

_address = address_fixture()


class Unpicklable:  # pylint: disable=too-few-public-methods
    """Its pickling fails in a way of its own."""
    def __reduce__(self):
        raise RuntimeError('no copy of this')


class Failing:
    """All that a check may ask of an argument raises an exception."""
    def _fail(self, *_):
        raise RuntimeError('boom')
    __bool__ = __len__ = __iter__ = __index__ = __float__ = __eq__ = __repr__ = __ge__ = _fail
    __hash__ = None


# By name: what the culprit passes in place of the right arguments.
WRONG = {
    'timeout of a wrong type': {'timeout': 'x'}, 'negative timeout': {'timeout': -1},
    'timeout not a number': {'timeout': float('nan')},
    'array of objects': {'obj': np.array([None, 'x'])},
    'strided text': {'obj': np.array(['a', 'b', 'c'])[::2]},
    'masked array': {'obj': np.ma.array([1.0], mask=[True])},
    'failing pickle': {'obj': Unpicklable(), 'pickle': True},
    'root outside': {'root': RANKS + 4}, 'negative root': {'root': -1},
    'root too large': {'root': 1 << 70}, 'root of a wrong type': {'root': 'x'},
    'name of a wrong type': {'name': 5}, 'long name': {'name': 'x' * 2000},
    'name with a space': {'name': 'a b'}, 'surrogate in the name': {'name': '\ud800'},
    'participants outside': {'participants': [0, CULPRIT, RANKS + 4]},
    'participants without the rank': {'participants': [0]},
    'a rank twice': {'participants': [CULPRIT, CULPRIT]},
    'participants of a wrong type': {'participants': 'x'},
    'large vote': {'value': 1 << 70}, 'vote without a text': {'value': 1 << 20000},
    'vote of a wrong type': {'value': 'x'},
    'no such vote': {'op': 99}, 'no objects': {'obj': 5},
    'huge timeout': {'timeout': 1 << 2000}, 'array for a timeout': {'timeout': np.ones(2)},
    'array for a name': {'name': np.ones(2)}, 'array for a root': {'root': np.ones(2)},
    'array for a vote': {'value': np.ones(2)}, 'wrong array of ranks': {'participants': np.ones(2)},
    **{f'failing {name}': {name: Failing()} for name in (
        'timeout', 'name', 'root', 'participants', 'value', 'op')},
}
CALLS = {
    'all_gather': {}, 'broadcast': {'root': 0}, 'own broadcast': {'root': CULPRIT},
    'gather': {'root': 0},
    'own gather': {'root': CULPRIT}, 'scatter': {'root': 0}, 'own scatter': {'root': CULPRIT},
    'barrier': {}, 'vote': {'value': 1, 'op': cohort.VoteOp.SUM}, 'agree_alive': {},
}
GROUP_CALLS = {'all_gather': 'all_gather_objects', 'broadcast': 'broadcast_object',
               'own broadcast': 'broadcast_object'}


def takes(call, wrong):
    """Whether the call has the argument, and looks at it."""
    name = next(iter(WRONG[wrong]))
    if name == 'obj':
        return call == 'own scatter' or wrong != 'no objects' and call in (
            'all_gather', 'own broadcast', 'gather', 'own gather')
    if name in ('name', 'participants'):
        return call != 'agree_alive'
    return name == 'timeout' or name in CALLS[call]


CASES = [(call, wrong) for call in CALLS for wrong in WRONG if takes(call, wrong)]
# Without an object.
AGREEMENTS = ('barrier', 'vote', 'agree_alive')


def arguments(call, wrong, rank):
    options = {'obj': rank, **CALLS[call]}
    root = options.get('root')
    if rank == CULPRIT:
        options.update(WRONG[wrong])
    obj = options.pop('obj')
    if call in AGREEMENTS:
        return (), options
    if 'scatter' in call and wrong != 'no objects':
        obj = [obj] * RANKS if rank == root else []
    return (obj,), options


def check(call, wrong, rank, error):
    """`error`: of this rank's call, or None."""
    root = CALLS[call].get('root')
    names = {'root', 'name', 'participants'} & set(WRONG[wrong])
    if rank == CULPRIT and (call != 'own scatter' or names or wrong == 'no objects'):
        assert isinstance(error, cohort.InvalidArgument), error
        assert f'rank {CULPRIT}' in str(error), error
        return
    if error is not None:
        assert f'rank {CULPRIT}' in str(error), error
        wrong_root = WRONG[wrong].get('root')
        if wrong_root is not None:
            number = (f'root {wrong_root} is not' if wrong in ('root outside', 'negative root')
                      else 'no number')
            assert number in str(error), error
    # A root that sends does not wait, and no rank waits for a reader.
    waits = call in (*AGREEMENTS, 'all_gather', 'own broadcast', 'own scatter') or (
        call == 'gather' and rank == root)
    assert error is not None or not waits


@pytest.fixture(scope='module', name='groups')
def _groups(address):
    groups = run_ranks(RANKS, lambda rank: (
        cohort.ProcessGroup('members', rank=rank, world_size=RANKS, address=address, timeout=LONG),
        cohort.Group('group', rank=rank, world_size=RANKS, address=address, timeout=LONG)))
    yield groups
    for pair in groups:
        for group in pair:
            group.close()


def in_step(group, rank):
    all_gather = getattr(group, 'all_gather_objects', None) or group.all_gather
    broadcast = getattr(group, 'broadcast_object', None) or group.broadcast
    assert broadcast(('a', rank), 2) == ('a', 2)
    assert broadcast(('b', rank), 0) == ('b', 0)
    assert all_gather(rank) == list(range(RANKS))


@pytest.mark.parametrize('call, wrong', CASES)
def test_ranks_stay_in_step(groups, call, wrong):
    def body(rank):
        for group in groups[rank]:
            if isinstance(group, cohort.Group) and (
                    call not in GROUP_CALLS or {'name', 'participants'} & set(WRONG[wrong])):
                continue
            name = GROUP_CALLS[call] if isinstance(group, cohort.Group) else call.split()[-1]
            args, options = arguments(call, wrong, rank)
            error = None
            try:
                getattr(group, name)(*args, **options)
            except cohort.Error as caught:
                error = caught
            check(call, wrong, rank, error)
            in_step(group, rank)
    run_ranks(RANKS, body)


@pytest.mark.parametrize('call', CALLS)
def test_asyncio(address, call):
    async def body(rank):
        name = f'aio-{call.replace(" ", "-")}'
        async with cohort.aio.ProcessGroup(name, rank=rank, world_size=RANKS, address=address,
                                           timeout=LONG) as group:
            for wrong in [each for name, each in CASES if name == call]:
                args, options = arguments(call, wrong, rank)
                error = None
                try:
                    await getattr(group, call.split()[-1])(*args, **options)
                except cohort.Error as caught:
                    error = caught
                check(call, wrong, rank, error)
                assert await group.broadcast(('a', rank), 2) == ('a', 2)
                assert await group.all_gather(rank) == list(range(RANKS))
    run_ranks(RANKS, lambda rank: asyncio.run(body(rank)))
