"""Watches of a group."""

import asyncio

import cohort
import cohort.aio
from testing.coordinator import LONG, eventually, rank_process
from testing.threads import threads_without_grpc
from testing.watches import coordinator_fixture, run

_coordinator = coordinator_fixture()


MEMBER = '''
import sys, cohort
group = cohort.ProcessGroup(sys.argv[2], rank=1, world_size=2, address=sys.argv[1])
group.barrier()
sys.stdin.readline()
'''


def until(events, *kinds):
    """The events up to one of these kinds."""
    found = []
    for event in events:
        found.append(event)
        if event.kind in kinds:
            return found
    return found


def test_group(coordinator):
    """A program that is no member watches."""
    with rank_process(MEMBER, coordinator.address, 'watched') as member:
        group = cohort.ProcessGroup('watched', rank=0, world_size=2, address=coordinator.address)
        group.barrier()
        events = cohort.watch_group('watched', address=coordinator.address, timeout=LONG)
        assert (events.info.name, events.info.state, events.info.generation) == (
            'watched', 'active', 1)
        assert [(each.name, each.rank) for each in events.info.members] == [
            ('rank-0', 0), ('rank-1', 1)]
        member.kill()
        lost, = [event for event in until(events, 'broken') if event.kind == 'lost']
        assert (lost.member, lost.rank, lost.generation) == ('rank-1', 1, 1)
        assert lost.cause == 'connection_lost' and lost.detail
        assert lost.revision > events.info.generation
    with rank_process(MEMBER, coordinator.address, 'watched') as member:
        group.rejoin(LONG)
        found = until(events, 'active')
        assert ('joined', 1) in [(event.kind, event.rank) for event in found]
        assert found[-1].generation == 2
        group.barrier()
        member.stdin.write('\n')
        member.stdin.flush()
        left = until(events, 'left')[-1]
        assert (left.kind, left.member, left.rank) == ('left', 'rank-1', 1)
    group.close_for_all('over')
    try:
        assert [event.kind for event in events][-1] == 'closed'
        assert list(events) == []
    except cohort.NotFound as error:  # the coordinator had just sent other events
        assert 'it was closed' in str(error)
    group.close()
    eventually(lambda: coordinator.streams() == 0)


def test_group_on_an_event_loop(coordinator):
    async def main():
        async with cohort.aio.ProcessGroup('routed', rank=0, world_size=2, min_world_size=1,
                                           address=coordinator.address, timeout=LONG) as first:
            events = await cohort.aio.watch_group('routed', address=coordinator.address)
            threads = threads_without_grpc()
            more = [await cohort.aio.watch_group('routed', address=coordinator.address)
                    for _ in range(50)]
            eventually(lambda: threads_without_grpc() <= threads)
            assert [member.rank for member in events.info.members] == [0]
            waiting = asyncio.ensure_future(events.__anext__())
            await first.report_error('odd')
            event = await waiting
            assert (event.kind, event.member, event.rank) == ('error_reported', 'rank-0', 0)
            assert [(await each.__anext__()).revision for each in more] == [event.revision] * 50
            await first.leave('enough')
            kinds = []
            async for event in events:
                kinds.append(event.kind)
                if event.kind == 'left':
                    break
            assert kinds[-1] == 'left'
    run(main())
    eventually(lambda: coordinator.streams() == 0)


def test_groups_of_two_tenants_with_one_name_are_watched_apart(coordinator):
    address = coordinator.address
    with cohort.ProcessGroup('same', rank=0, world_size=1, address=address, tenant='red',
                             member='in-red'), \
            cohort.ProcessGroup('same', rank=0, world_size=1, address=address, tenant='blue',
                                member='in-blue') as blue, \
            cohort.watch_group('same', address=address, tenant='red', timeout=1) as red_events, \
            cohort.watch_group('same', address=address, tenant='blue', timeout=LONG) as events:
        assert [member.name for member in red_events.info.members] == ['in-red']
        assert [member.name for member in events.info.members] == ['in-blue']
        blue.report_error('a fan has stopped')
        assert until(events, 'error_reported')[-1].member == 'in-blue'
        assert [event for event in red_events if event.kind == 'error_reported'] == []
