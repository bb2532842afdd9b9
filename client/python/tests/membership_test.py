"""cohort.ProcessGroup: members, views, and unique ids."""

import asyncio
import contextlib
import threading

import pytest

import cohort
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture

_address = address_fixture()


def accept(group):
    """Acknowledges the next proposal."""
    while (proposal := group.describe().proposal) is None:
        pass  # each look is a call
    return proposal, group.ack_view(proposal.id)


def test_describe(address):
    def body(rank):
        with cohort.ProcessGroup('described', rank=rank, world_size=2, address=address,
                                 labels={'zone': f'z{rank}'}) as group:
            info = group.describe()
            assert (info.name, info.generation, info.world_size) == ('described', 1, 2)
            assert [(member.name, member.rank) for member in info.members] == [
                ('rank-0', 0), ('rank-1', 1)]
            assert info.members[rank].labels == {'zone': f'z{rank}'}
            assert info.members[rank].last_heard < LONG
            assert info.state == 'active' and info.proposal is None and info.candidates == []
            group.barrier()
    run_ranks(2, body)


def test_view_without_a_member(address):
    groups = run_ranks(3, lambda rank: cohort.ProcessGroup(
        'smaller', rank=rank, world_size=3, address=address))

    def body(rank):
        if rank == 0:
            return groups[0].propose_view(remove=[2])
        proposal, view = accept(groups[1])
        assert (proposal.proposer, proposal.remove, proposal.add) == ('rank-0', (2,), [])
        return view
    assert run_ranks(2, body) == [(2, 0, 2), (2, 1, 2)]
    run_ranks(2, lambda rank: groups[rank].barrier())
    with pytest.raises(cohort.Aborted) as caught:
        groups[2].barrier()
    assert caught.value.cause == 'view_changed'
    for group in groups:
        group.close()


def test_view_with_a_candidate(address):
    groups = run_ranks(2, lambda rank: cohort.ProcessGroup(
        'larger', world_size=3, min_world_size=2, member=f'm{rank}', address=address))
    joined = []
    candidate = threading.Thread(target=lambda: joined.append(cohort.ProcessGroup(
        'larger', world_size=3, min_world_size=2, member='new', address=address)))
    candidate.start()
    while not groups[0].describe().candidates:
        pass  # each look is a call
    assert [member.name for member in groups[0].describe().candidates] == ['new']
    views = run_ranks(2, lambda rank: groups[1].propose_view(add=['new']) if rank else
                      accept(groups[0])[1])
    assert [view.world_size for view in views] == [3, 3]
    candidate.join(LONG)
    members = groups + joined
    run_ranks(3, lambda number: members[number].barrier())
    for group in members:
        group.close()


def test_refused_view(address):
    groups = run_ranks(3, lambda rank: cohort.ProcessGroup(
        'refused', rank=rank, world_size=3, address=address))

    def body(rank):
        with pytest.raises(cohort.Error, match='rank 2 is needed'):
            if rank == 0:
                groups[0].propose_view(remove=[2])
            else:
                while (proposal := groups[1].describe().proposal) is None:
                    pass  # each look is a call
                groups[1].ack_view(proposal.id, accept=False, reason='rank 2 is needed')
    run_ranks(2, body)
    run_ranks(3, lambda rank: groups[rank].barrier())  # the old view goes on
    for group in groups:
        group.close()


def test_unique_ids(address):
    def body(rank):
        with cohort.ProcessGroup('ids', rank=rank, world_size=2, address=address) as group:
            if rank == 0:
                group.publish_unique_ids('nccl', [b'\0id', b'other'])
            else:
                assert group.fetch_unique_ids('nccl', LONG) == [b'\0id', b'other']
            with pytest.raises(cohort.InvalidArgument):
                group.publish_unique_ids('nccl', [])
            group.barrier()
    run_ranks(2, body)


def test_others_hear_the_exception_that_ends_a_with_statement(address):
    def body(rank):
        with contextlib.suppress(ZeroDivisionError), cohort.ProcessGroup(
                'told', rank=rank, world_size=2, address=address, timeout=LONG) as group:
            group.barrier()
            if rank == 0:
                raise ZeroDivisionError('no more data')
            with pytest.raises(cohort.Aborted, match='ZeroDivisionError: no more data'):
                group.barrier()
            return group.closed
        return group.closed
    assert run_ranks(2, body) == [True, False]


def test_others_hear_the_exception_that_ends_an_async_with_statement(address):
    async def body(rank):
        with contextlib.suppress(ZeroDivisionError):
            async with cohort.aio.ProcessGroup('told-aio', rank=rank, world_size=2, address=address,
                                               timeout=LONG) as group:
                await group.barrier()
                if rank == 0:
                    raise ZeroDivisionError('no more data')
                with pytest.raises(cohort.Aborted, match='ZeroDivisionError: no more data'):
                    await group.barrier()
    run_ranks(2, lambda rank: asyncio.run(body(rank)))
