"""Fixtures of pytest: a coordinator, the ranks of a group in this process, and a queue.

    _address = address_fixture()                # the fixture `address`
    _groups = groups_fixture('moe', 3)          # the fixture `groups`, by rank

    def test_sum(groups):
        assert run(groups, lambda group, rank: group.all_reduce(...)) == ...
"""

import contextlib

import pytest

import cohort
from testing.coordinator import LONG, coordinator, run_ranks


@contextlib.contextmanager
def joined_groups(name, ranks, address, **options):
    """Joins all ranks of a group, and yields its objects, by rank."""
    options.setdefault('timeout', LONG)
    groups = run_ranks(ranks, lambda rank: cohort.Group(
        name, rank=rank, world_size=ranks, address=address, **options))
    try:
        yield groups
    finally:
        for group in groups:
            group.close()


def address_fixture():
    """Returns the fixture `address`: a coordinator for all tests of a file."""
    @pytest.fixture(scope='module', name='address')
    def fixture():
        with coordinator() as address:
            yield address
    return fixture


def groups_fixture(group, ranks, name='groups'):
    """Returns the fixture `name`: the ranks of the group `group`, for all tests of a file. It needs
    the fixture `address`."""
    @pytest.fixture(scope='module', name=name)
    def fixture(address):
        with joined_groups(group, ranks, address) as groups:
            yield groups
    return fixture


def queue_pair_fixture():
    """Returns the fixture `pair`: a writer and a reader of a small ring, for each test."""
    @pytest.fixture(name='pair')
    def fixture():
        with cohort.MessageQueue.create_external('pair', block_bytes=1 << 16, blocks=1,
                                                 timeout=LONG) as writer:
            with cohort.MessageQueue.open(writer.handle, 'the reader', timeout=LONG) as reader:
                yield writer, reader
    return fixture


def run(groups, body):
    """Returns body(group, rank) of every rank, each on a thread of its own."""
    return run_ranks(len(groups), lambda rank: body(groups[rank], rank))
