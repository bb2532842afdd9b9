"""cohort.aio against a coordinator: ProcessGroup and Store on event loops. One file, though long: all
tests run their members on one loop in the same way."""

import asyncio
import contextlib
import gc
import os
import random
import select
import signal

import pytest

import cohort
import cohort.aio
from cohort import VoteOp, _event_loop
from testing.coordinator import LONG, coordinator, eventually, rank_process, run_ranks
from testing.fixtures import address_fixture
from testing.threads import threads_without_grpc

_address = address_fixture()


def new(name, rank, address, size=2, **options):
    return cohort.aio.ProcessGroup(name, rank=rank, world_size=size, address=address, timeout=LONG,
                                   **options)


def run(coroutine):
    """Runs it on a loop of its own, with a deadline."""
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


async def all_ranks(count, body):
    """Runs body(rank) for all ranks on this loop."""
    return await asyncio.gather(*[body(rank) for rank in range(count)])


def test_objects(address):
    async def body(rank):
        async with new('objects', rank, address) as group:
            assert (group.name, group.rank, group.size) == ('objects', rank, 2)
            assert (group.member, group.generation) == (f'rank-{rank}', 1)
            assert await group.all_gather(b'%d' % rank) == [b'0', b'1']
            assert await group.gather(b'%d' % rank, 1) == ([b'0', b'1'] if rank == 1 else [])
            assert await group.broadcast(b'\0\xff' if rank == 0 else None, 0) == b'\0\xff'
            assert await group.scatter([b'a', b'b'] if rank == 0 else [], 0) == (b'a', b'b')[rank]
            if rank == 0:
                await group.send(memoryview(b'first'), 1)
                await asyncio.gather(*[group.send(b'%d' % i, 1) for i in range(20)])
                await group.send(bytes(4 << 20), 1, tag='large')
            else:
                assert await group.receive(0, tag='large') == bytes(4 << 20)
                assert await group.receive(0) == b'first'
                assert [await group.receive(0) for _ in range(19)] == [b'%d' % i for i in range(19)]
                assert await group.receive_any() == (b'19', 0)
                await group.publish_unique_ids('ids', [b'i', b'j'])
            if rank == 0:
                assert await group.fetch_unique_ids('ids') == [b'i', b'j']
            assert await group.expire_data() == 0
            assert await group.vote(rank + 1, VoteOp.SUM) == (3, ())
            assert await group.agree_alive() == (0, 1)
            group.report_progress(1, 'test')
            await group.report_error('odd')
            assert [member.rank for member in (await group.describe()).members] == [0, 1]
            await group.barrier()
    run(all_ranks(2, body))


def test_many_calls_wait_at_once_without_threads(address):
    async def main():
        async with new('many', 0, address, 1) as group, cohort.aio.Store(address) as store:
            await store.put('warm', b'')
            before = threads_without_grpc()
            waits = [asyncio.ensure_future(store.get(f'key-{i}', wait=LONG)) for i in range(500)]
            await group.barrier()
            assert not any(wait.done() for wait in waits)
            eventually(lambda: threads_without_grpc() == before)
            await asyncio.gather(*[store.put(f'key-{i}', b'%d' % i) for i in range(500)])
            assert await asyncio.gather(*waits) == [b'%d' % i for i in range(500)]
    run(main())


def test_who_is_missing(address):
    async def body(rank):
        async with new('missing', rank, address, 3) as group:
            if rank > 0:
                await group.receive(0)
            else:
                waiting = asyncio.ensure_future(group.barrier(name='step'))
                waits = []
                while not [wait for wait in waits if 'barrier' in wait.operation]:
                    waits = await group.who_is_missing()
                wait, = [wait for wait in waits if 'barrier' in wait.operation]
                assert wait.missing == (1, 2)
                assert wait.arrived == (0,)
                assert 'step' in wait.operation
                for peer in (1, 2):
                    await group.send(b'go', peer)
                await waiting
                return
            await group.barrier(name='step')
    run(all_ranks(3, body))


def test_barrier_names_the_missing_ranks(address):
    async def body(rank):
        async with new('late', rank, address, 3) as group:
            if rank == 0:
                with pytest.raises(cohort.DeadlineExceeded, match='ranks 1-2') as caught:
                    await group.barrier(timeout=0.3)
                assert caught.value.missing == (1, 2)
                for peer in (1, 2):
                    await group.send(b'over', peer)
            else:
                await group.receive(0)
                with pytest.raises(cohort.DeadlineExceeded):
                    await group.barrier()
            await group.barrier()
    run(all_ranks(3, body))


def test_a_cancelled_call_takes_no_part(address):
    async def body(rank):
        async with new('cancelled', rank, address) as group:
            if rank == 0:
                for _ in range(3):
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(group.barrier(), 0.05)
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(group.receive(1), 0.05)
                await group.send(b'now', 1)
            else:
                assert await group.receive(0) == b'now'
                await group.send(b'kept', 0)
            await group.barrier()
            if rank == 0:
                assert await group.receive(1) == b'kept'
            await group.barrier()
    run(all_ranks(2, body))


def test_a_cancelled_join_leaves_no_member(address):
    async def main():
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(new('joins', 0, address)._join(), 0.05)  # pylint: disable=protected-access
        async def body(rank):
            async with new('joins', rank, address) as group:
                await group.barrier()
                return group.generation
        return await all_ranks(2, body)
    assert run(main()) == [1, 1]


def test_a_lost_member_and_the_next_generation(address):
    program = '''
import sys, cohort
group = cohort.ProcessGroup("lost", rank=1, world_size=2, address=sys.argv[1])
group.barrier()
print("ready", flush=True)
group.receive(0)
'''
    async def main(process):
        async with new('lost', 0, address) as group:
            await group.barrier()
            assert await asyncio.to_thread(process.stdout.readline) == 'ready\n'
            waiting = asyncio.ensure_future(group.barrier())
            await asyncio.sleep(0)
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(cohort.Aborted) as caught:
                await waiting
            assert caught.value.culprit == 1
            async def successor():
                async with new('lost', 1, address) as next_group:
                    await next_group.barrier()
            joined = asyncio.ensure_future(successor())
            await group.rejoin()
            assert group.generation == 2
            await group.barrier()
            await joined
    with rank_process(program, address) as process:
        run(main(process))


def test_views(address):
    async def proposal_of(group):
        while (proposal := (await group.describe()).proposal) is None:
            pass  # each look is a call
        return proposal
    async def main():
        groups = [new('views', rank, address, size=3) for rank in range(3)]
        async with contextlib.AsyncExitStack() as stack:
            await asyncio.gather(*[stack.enter_async_context(group) for group in groups])
            refused = asyncio.ensure_future(groups[0].propose_view(remove=[2]))
            proposal = await proposal_of(groups[1])
            assert (proposal.proposer, proposal.remove, proposal.add) == ('rank-0', (2,), [])
            answers = await asyncio.gather(
                refused, groups[1].ack_view(proposal.id, accept=False, reason='2 is needed'),
                return_exceptions=True)
            for answer in answers:
                assert isinstance(answer, cohort.Error) and '2 is needed' in str(answer)
            await asyncio.gather(*[group.barrier() for group in groups])  # the old view goes on
            proposed = asyncio.ensure_future(groups[0].propose_view(remove=[2]))
            proposal = await proposal_of(groups[1])
            views = await asyncio.gather(proposed, groups[1].ack_view(proposal.id))
            assert views == [(2, 0, 2), (2, 1, 2)]
            await asyncio.gather(*[group.barrier() for group in groups[:2]])
    run(main())


def test_store(address):
    async def main():
        async with cohort.aio.Store(address, group='') as store:
            waiting = asyncio.ensure_future(store.get('late', wait=LONG))
            assert (await store.put('late', 'text')).written
            assert await waiting == b'text'
            refused = await store.put('late', b'x', expected_revision=0)
            assert not refused.written and refused.current.value == b'text'
            assert (await store.multi_put({'m/a': b'1', 'm/b': '2'})).written
            assert [value.key for value in (await store.range('m/'))[0]] == ['m/a', 'm/b']
            assert await store.get('absent') is None
            assert await store.add('counter', 3) == 3
            assert await store.append('late', '!') == 5
            assert await store.delete('m/', prefix=True) == 2
            popping = asyncio.ensure_future(store.queue_pop('q', wait=LONG))
            await store.queue_push('q', 'item')
            assert await popping == b'item'
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(store.queue_pop('q', wait=LONG), 0.05)
            await store.queue_push('q', b'kept')
            assert await store.queue_len('q') == 1
            assert await store.queue_pop('q') == b'kept'
            assert await store.queue_pop('q') is None
    run(main())


def test_cancelled_calls_lose_nothing(address):
    """A call is cancelled at about the time when its value comes, 400 times for each kind."""
    random_times = random.Random(20261124)
    async def collect(send, take):
        cancelled = 0
        for i in range(400):
            sending = asyncio.ensure_future(send(b'%d' % i))
            while True:
                try:
                    value = await asyncio.wait_for(take(), random_times.uniform(0, 0.0006))
                    break
                except asyncio.TimeoutError:
                    cancelled += 1
            assert value == b'%d' % i
            await sending
        assert cancelled > 0
    async def main():
        async with cohort.aio.Store(address) as writer, cohort.aio.Store(address) as reader:
            await collect(lambda value: writer.queue_push('all', value),
                          lambda: reader.queue_pop('all', wait=LONG))
        receiver, sender = await all_ranks(2, lambda rank: new('lossless', rank, address)._join())  # pylint: disable=protected-access
        await collect(lambda value: sender.send(value, 0), lambda: receiver.receive(1))
        await receiver.close()
        await sender.close()
    run(main())


def test_a_value_that_came_before_the_cancellation_is_kept(address):
    async def main():
        async with cohort.aio.Store(address) as store:
            for i in range(20):
                popping = asyncio.ensure_future(store.queue_pop('kept', wait=LONG))
                await asyncio.sleep(0)
                with cohort.Store(address) as other:
                    other.queue_push('kept', b'%d' % i)
                # Blocks this loop until the value is here, and the loop has not taken it.
                calls = _event_loop._of_loops[asyncio.get_running_loop()]  # pylint: disable=protected-access
                assert select.select([calls._completions.fileno()], [], [], LONG)[0]  # pylint: disable=protected-access
                popping.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await popping
                assert await store.queue_pop('kept') == b'%d' % i
    run(main())


def test_two_event_loops(address):
    """One object, used by two loops in two threads at once."""
    store = cohort.aio.Store(address)
    async def body(rank):
        assert await store.get(f'loop-{1 - rank}', wait=0) in (None, b'x')
        await store.put(f'loop-{rank}', b'x')
        return await store.get(f'loop-{1 - rank}', wait=LONG)
    assert run_ranks(2, lambda rank: run(body(rank))) == [b'x', b'x']
    run(store.close())


def test_blocking_and_asynchronous_members_meet(address):
    def blocking():
        with cohort.ProcessGroup('both', rank=0, world_size=2, address=address) as group:
            return group.all_gather(b'0')
    async def asynchronous():
        async with new('both', 1, address) as group:
            return await group.all_gather(b'1')
    results = run_ranks(2, lambda rank: run(asynchronous()) if rank else blocking())
    assert results == [[b'0', b'1']] * 2


def test_wrong_use(address):
    group = new('wrong', 0, address, 1)
    with pytest.raises(RuntimeError, match='not joined'):
        run(group.barrier())
    with pytest.raises(TypeError):
        new('wrong', 0, address, 1, colour='red')
    async def main():
        async with new('wrong', 0, address, 1) as joined:
            with pytest.raises(cohort.InvalidArgument, match='rank 0: cannot send a builtins.object'):
                await joined.all_gather(object())
            with pytest.raises(cohort.InvalidArgument, match='destination 7'):
                await joined.send(b'', 7)
            with pytest.raises(TypeError):
                await joined.receive(None)
            with pytest.raises(cohort.InvalidArgument, match='root 9'):
                await joined.broadcast(b'', 9)
            await joined.barrier()
        with pytest.raises(cohort.FailedPrecondition, match='close'):
            await joined.barrier()
        await joined.close()
        with pytest.raises(cohort.InvalidArgument):
            await new('', 0, address, 1)
    run(main())
    with pytest.raises(RuntimeError, match='no running event loop'):
        joined = new('wrong', 0, address, 1)
        joined._join().send(None)  # pylint: disable=protected-access


def test_a_loop_that_ends_with_calls_in_flight(address):
    """asyncio cancels them; nothing is left behind."""
    async def main():
        group = await new('ends', 0, address, 2, join_timeout=LONG)
        asyncio.ensure_future(group.receive(1))
        asyncio.ensure_future(group.barrier())
        await asyncio.sleep(0)
        return group
    def peer():
        with cohort.ProcessGroup('ends', rank=1, world_size=2, address=address) as group:
            with pytest.raises(cohort.Aborted):
                group.receive(0)
    def ends():
        group = run(main())
        run(group.close())
    run_ranks(2, lambda rank: peer() if rank else ends())


def test_a_thousand_loops_leave_nothing(address):
    def descriptors():
        gc.collect()
        return len(os.listdir('/proc/self/fd'))
    store = cohort.aio.Store(address)
    async def body():
        await store.add('loops', 1)
        with pytest.raises(cohort.InvalidArgument):
            await store.multi_put({})
        with pytest.raises(TypeError):
            await store.put('key', 3)
    for _ in range(20):
        run(body())
    before = descriptors()
    for _ in range(1000):
        run(body())
    assert descriptors() <= before
    run(store.close())


def test_interrupt_ends_the_program(address):
    program = '''
import asyncio, sys, cohort.aio
async def main():
    async with cohort.aio.ProcessGroup("interrupt", rank=0, world_size=1,
                                       address=sys.argv[1]) as group:
        print("ready", flush=True)
        await asyncio.Event().wait()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
'''
    with rank_process(program, address) as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.wait(LONG) == 0


def test_forked_child(address):
    program = '''
import asyncio, os, sys, cohort, cohort.aio
store = cohort.aio.Store(sys.argv[1])
asyncio.run(store.put("fork", b"x"))
child = os.fork()
if child == 0:
    try:
        asyncio.run(store.put("fork", b"y"))
    except cohort.FailedPrecondition as error:
        print("refused" if "forked" in str(error) else error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(asyncio.run(store.get("fork")), flush=True)
'''
    with rank_process(program, address) as process:
        assert process.stdout.readline() == 'refused\n'
        assert process.stdout.readline() == "b'x'\n"
