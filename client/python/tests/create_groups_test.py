"""Groups of lists of ranks."""

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, coordinator, run_ranks

RANKS = 4


@pytest.fixture(scope='module', name='worlds')
def _worlds():
    with coordinator() as address:
        worlds = run_ranks(RANKS, lambda rank: cohort.Group(
            'world', rank=rank, world_size=RANKS, address=address, timeout=LONG))
        yield worlds
        for world in worlds:
            world.close()


def ranks_that_sum(group, world):
    """The world ranks of the members of `group`."""
    bits = int(group.all_reduce(np.array([1 << world.rank]))[0])
    return [rank for rank in range(RANKS) if bits >> rank & 1]


def close(groups):
    for group in groups:
        group.close()


def test_a_rank_may_be_in_several_lists(worlds):
    # If the ranks had no common order, each would wait for the next in a circle.
    lists = ([2, 0], [0, 1], (1, 2))
    def body(rank):
        names = []
        for _ in range(2):
            groups = cohort.create_groups(worlds[rank], lists, overlap=True, name='circle')
            own = [members for members in lists if rank in members]
            assert len(groups) == len(own)
            for group, members in zip(groups, own):
                assert group.rank == list(members).index(rank)
                assert ranks_that_sum(group, worlds[rank]) == sorted(members)
            names += [group.name for group in groups]
            close(groups)
        return names
    names = run_ranks(RANKS, body)
    assert names[3] == []
    assert len(set(names[0] + names[1] + names[2])) == 2 * len(lists)
    assert all(name.startswith('world@1/circle:') for name in names[0])
    for group in range(2):
        assert names[0][2 * group] == names[2][2 * group]


def test_a_group_of_all_ranks_is_not_the_world(worlds):
    def body(rank):
        group, = cohort.create_groups(worlds[rank], [range(RANKS - 1, -1, -1)])
        assert group is not worlds[rank] and group.rank == RANKS - 1 - rank
        assert group.name.startswith('world@1/anonymous:')
        worlds[rank].barrier()
        if rank == 0:
            group.abort('enough')
        with pytest.raises(cohort.Aborted, match='aborted: enough'):
            group.barrier()
        assert worlds[rank].all_reduce(np.ones(1)).tolist() == [RANKS]
        group.close()
    run_ranks(RANKS, body)


def test_no_lists_are_no_groups(worlds):
    assert run_ranks(RANKS, lambda rank: cohort.create_groups(worlds[rank], [])) == [[]] * RANKS


# The arguments of rank 1, and a part of the text of all ranks' errors.
WRONG = {
    'no list': ({'lists': 3}, 'lists: expected a sequence'),
    'list of no list': ({'lists': [0, 1]}, 'lists: expected a sequence'),
    'list of texts': ({'lists': [['0']]}, 'lists: expected an int'),
    'empty list': ({'lists': [[]]}, 'list 0 is empty'),
    'outside of the world': ({'lists': [[0, 4]]}, 'rank 4 in the list [0, 4]'),
    'twice in a list': ({'lists': [[0, 0]]}, 'rank 0 is twice in the list [0, 0]'),
    'in two lists': ({'lists': [[0, 1], [1, 2]]}, 'rank 1 is in the lists [0, 1] and [1, 2]'),
    'other lists': ({'lists': [[0, 2], [1, 3]]}, 'ranks 0 and 1'),
    'overlap': ({'overlap': True}, 'overlap false on rank 0, true on rank 1'),
    'overlap as a text': ({'overlap': 'yes'}, 'overlap: expected'),
    'name': ({'name': 'a/b'}, '"a/b" is no name'),
    'timeout': ({'timeout': 'soon'}, 'timeout: expected a number'),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_fail_on_all_ranks(worlds, name):
    wrong, text = WRONG[name]
    def body(rank):
        arguments = {'lists': [[0, 1], [2, 3]], **(wrong if rank == 1 else {})}
        with pytest.raises(cohort.InvalidArgument) as caught:
            cohort.create_groups(worlds[rank], **arguments)
        assert worlds[rank].all_reduce(np.ones(2)).tolist() == [RANKS, RANKS]
        return str(caught.value)
    for message in run_ranks(RANKS, body):
        assert text in message
        assert 'rank 1' in message or 'and 1' in message
