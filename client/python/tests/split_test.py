"""Group.split, as MPI_Comm_split."""

import numpy as np
import pytest

import cohort
from testing.fixtures import address_fixture, groups_fixture, joined_groups, run

RANKS = 4

_address = address_fixture()
_groups = groups_fixture('split', RANKS)


def split(groups, arguments):
    """Returns by rank (rank, size, members) of its new group, or None."""
    def body(group, rank):
        made = group.split(*arguments(rank))
        if made is None:
            return None
        with made:
            members = made.all_gather_objects(rank)
            assert made.all_reduce(np.ones(1))[0] == made.size == len(members)
            return made.rank, made.size, members
    return run(groups, body)


def test_colors(groups):
    assert split(groups, lambda rank: (rank % 2,)) == [
        (0, 2, [0, 2]), (0, 2, [1, 3]), (1, 2, [0, 2]), (1, 2, [1, 3])]


def test_keys_are_the_order(groups):
    assert split(groups, lambda rank: (0, -rank)) == [
        (3 - rank, 4, [3, 2, 1, 0]) for rank in range(RANKS)]
    # Ranks with the same key stay in the order of their ranks.
    assert split(groups, lambda rank: (0, rank % 2)) == [
        (0, 4, [0, 2, 1, 3]), (2, 4, [0, 2, 1, 3]), (1, 4, [0, 2, 1, 3]), (3, 4, [0, 2, 1, 3])]


def test_ranks_without_a_color(groups):
    assert split(groups, lambda rank: (None if rank == 2 else 'text',)) == [
        (0, 3, [0, 1, 3]), (1, 3, [0, 1, 3]), None, (2, 3, [0, 1, 3])]
    assert split(groups, lambda rank: (None,)) == [None] * RANKS


def test_each_rank_alone(groups):
    assert split(groups, lambda rank: (10 * rank, 7)) == [(0, 1, [rank]) for rank in range(RANKS)]


def test_a_split_of_a_split(groups):
    def body(group, rank):
        with group.split(rank // 2, name='half') as half:
            with half.split(half.rank) as own:
                return half.name.rpartition(':')[0], own.size
    names = run(groups, body)
    assert all('half' in name and size == 1 for name, size in names)


@pytest.mark.parametrize('wrong', [(1.5, 0), ([], 0), (0, 'x'), (0, None)])
def test_wrong_arguments_are_errors_of_all_ranks(groups, wrong):
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument, match='split: rank 1 of group split: expected'):
            group.split(*(wrong if rank == 1 else (0, 0)))
    run(groups, body)
    assert run(groups, lambda group, rank: group.exchange_sizes(rank))[0] == [0, 1, 2, 3]


def test_a_color_that_cannot_be_sent(groups):
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument, match='the object of rank 3: cannot send'):
            group.split(object() if rank == 3 else 0)
    run(groups, body)
    assert run(groups, lambda group, rank: group.exchange_sizes(rank))[0] == [0, 1, 2, 3]


def test_the_groups_of_an_elastic_one_have_their_own_sizes(address):
    with joined_groups('elastic', 3, address, min_world_size=2) as elastic:
        assert split(elastic, lambda rank: (rank,)) == [(0, 1, [rank]) for rank in range(3)]
