"""The coordinator, the rank and the size from the environment."""

import asyncio
import os
import tempfile

import numpy
import pytest

import cohort
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture

_address = address_fixture()

VARIABLES = ('COHORT_ADDRESS', 'RANK', 'WORLD_SIZE', 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE',
             'SLURM_PROCID', 'SLURM_NTASKS')
LAUNCHERS = [VARIABLES[1:3], VARIABLES[3:5], VARIABLES[5:7]]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


async def aio_group(name, **options):
    """Joins by cohort.aio.Group, and returns what the tests look at."""
    async with cohort.aio.Group(name, **options) as group:
        return group.rank, group.size


async def aio_member(name, **options):
    """As aio_group."""
    async with cohort.aio.ProcessGroup(name, **options) as group:
        return group.rank, group.size


def blocking(kind):
    """As aio_group, by a blocking class."""
    def join(name, **options):
        with kind(name, **options) as group:
            return group.rank, group.size
    return join


JOINS = {
    'Group': blocking(cohort.Group),
    'ProcessGroup': blocking(cohort.ProcessGroup),
    'aio.Group': lambda name, **options: asyncio.run(aio_group(name, **options)),
    'aio.ProcessGroup': lambda name, **options: asyncio.run(aio_member(name, **options)),
}


@pytest.mark.parametrize('kind', JOINS)
@pytest.mark.parametrize('rank_name, size_name', LAUNCHERS)
def test_rank_and_size_of_a_launcher(address, monkeypatch, kind, rank_name, size_name):
    monkeypatch.setenv('COHORT_ADDRESS', address)
    monkeypatch.setenv(rank_name, '0')
    monkeypatch.setenv(size_name, '1')
    assert JOINS[kind](f'{kind}-{size_name}') == (0, 1)


@pytest.mark.parametrize('kind', JOINS)
def test_arguments_win(address, monkeypatch, kind):
    monkeypatch.setenv('COHORT_ADDRESS', 'unix:/no/server/here')
    monkeypatch.setenv('RANK', '7')
    monkeypatch.setenv('WORLD_SIZE', '8')
    assert JOINS[kind](f'{kind}-all', rank=0, world_size=1, address=address) == (0, 1)
    # With a size and without a rank, the coordinator assigns one.
    assert JOINS[kind](f'{kind}-size', world_size=1, address=address) == (0, 1)
    # With a rank, only the size is missing.
    monkeypatch.setenv('WORLD_SIZE', '1')
    assert JOINS[kind](f'{kind}-rank', rank=0, address=address) == (0, 1)


def test_the_first_complete_launcher_counts(address, monkeypatch):
    monkeypatch.setenv('RANK', '5')  # without WORLD_SIZE
    monkeypatch.setenv('OMPI_COMM_WORLD_RANK', '0')
    monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', '1')
    monkeypatch.setenv('SLURM_PROCID', '3')
    monkeypatch.setenv('SLURM_NTASKS', '4')
    with cohort.ProcessGroup('first', address=address) as group:
        assert (group.rank, group.size) == (0, 1)


@pytest.mark.parametrize('kind', JOINS)
def test_an_error_says_what_is_missing(monkeypatch, kind):
    with pytest.raises(cohort.InvalidArgument, match='rank and world_size: .*RANK and WORLD_SIZE, '
                       'OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, SLURM_PROCID and '
                       'SLURM_NTASKS'):
        JOINS[kind]('missing')
    with pytest.raises(cohort.InvalidArgument, match='^world_size: .*where WORLD_SIZE, '
                       'OMPI_COMM_WORLD_SIZE, SLURM_NTASKS are'):
        JOINS[kind]('missing', rank=1)
    monkeypatch.setenv('RANK', 'first')
    monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(cohort.InvalidArgument, match="variable RANK: expected a number, got 'first'"):
        JOINS[kind]('missing')


def test_two_ranks(address, monkeypatch):
    """Threads share an environment, so their ranks are arguments here."""
    monkeypatch.setenv('COHORT_ADDRESS', address)
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert sorted(run_ranks(2, lambda rank: JOINS['Group']('two', rank=rank))) == [(0, 2), (1, 2)]


def test_address_of_stores_and_watches(address, monkeypatch):
    monkeypatch.setenv('COHORT_ADDRESS', address)
    with cohort.Store() as store:
        store.put('key', 'value')
    async def main():
        async with cohort.aio.Store() as store:
            assert await store.get('key') == b'value'
        with cohort.ProcessGroup('watched', rank=0, world_size=1):
            with cohort.watch_group('watched') as events:
                assert events.info.name == 'watched'
            async with cohort.aio.watch_group('watched') as events:
                assert events.info.name == 'watched'
    asyncio.run(asyncio.wait_for(main(), LONG))


def test_default_address(monkeypatch):
    assert '127.0.0.1:7700' in repr(cohort.Store())
    monkeypatch.setenv('COHORT_ADDRESS', '')  # as if it were not set
    assert '127.0.0.1:7700' in repr(cohort.Store())


# --- The folder through which containers of one machine share memory.

def sum_of_two_ranks(name, address, folder=''):
    """The sum that ranks in one folder get."""
    groups = run_ranks(2, lambda rank: cohort.Group(
        name, rank=rank, world_size=2, address=address, timeout=LONG, join_timeout=LONG,
        host_folder=folder))
    sums = run_ranks(2, lambda rank: groups[rank].all_reduce(numpy.ones(3)).tolist())
    for group in groups:
        group.close()
    return sums


def test_ranks_meet_in_the_folder_of_the_option_or_the_variable(address, monkeypatch):
    with tempfile.TemporaryDirectory(dir='/tmp') as folder:  # a socket's path is short
        assert sum_of_two_ranks('option', address, folder) == [[2, 2, 2]] * 2
        monkeypatch.setenv('COHORT_HOST_FOLDER', folder)
        assert sum_of_two_ranks('variable', address) == [[2, 2, 2]] * 2
        assert not os.listdir(folder)


def test_a_wrong_folder_is_an_error_that_names_the_rank(address, monkeypatch):
    wrong = r'rank 0 \(.*\): host_folder is "/none": No such file or directory'
    with pytest.raises(cohort.FailedPrecondition, match=wrong):
        sum_of_two_ranks('option', address, '/none')
    monkeypatch.setenv('COHORT_HOST_FOLDER', '/proc/version')
    wrong = r'rank 0 \(.*\): COHORT_HOST_FOLDER is "/proc/version": it is not a folder'
    with pytest.raises(cohort.FailedPrecondition, match=wrong):
        sum_of_two_ranks('variable', address)
