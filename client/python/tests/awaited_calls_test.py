"""Asynchronous collectives of cohort.Group that coroutines await."""

import asyncio
import gc
import os
import threading
import weakref

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, eventually, rank_process, run_ranks
from testing.fixtures import address_fixture, groups_fixture, joined_groups
from testing.threads import threads_without_grpc

_address = address_fixture()
_groups = groups_fixture('awaited', 2)


def run(coroutine):
    """Runs it on a loop of its own, with a deadline."""
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


def start(group, value=1.0, **options):
    return group.all_reduce(np.full(3, value), wait=False, **options)


def test_results(groups):
    async def main():
        sums = [start(group, group.rank) for group in groups]
        copies = [group.broadcast(np.full(2, group.rank), 1, wait=False) for group in groups]
        roots = [group.gather(np.full(1, group.rank), 0, wait=False) for group in groups]
        assert [result.tolist() for result in await asyncio.gather(*sums)] == [[1, 1, 1]] * 2
        for call in copies:
            result = await call
            assert result.tolist() == [1, 1]
            assert result is call.result
        assert (await roots[0]).tolist() == [0, 1]
        assert await roots[1] is None
    run(main())


def test_no_call_has_a_thread_while_many_wait(groups):
    async def main():
        await asyncio.gather(*[start(group) for group in groups])
        calls = [start(groups[0], i) for i in range(200)]
        before = threads_without_grpc()
        waiting = [asyncio.ensure_future(wait_for(call)) for call in calls]
        await asyncio.sleep(0)
        eventually(lambda: threads_without_grpc() == before)
        assert not any(task.done() for task in waiting)
        for i in range(200):
            start(groups[1], i)
        results = await asyncio.gather(*waiting)
        assert [int(result[0]) for result in results] == [2 * i for i in range(200)]
    run(main())


async def wait_for(call):
    return await call


def test_a_cancelled_task_leaves_the_call(groups):
    async def main():
        call = start(groups[0])
        for _ in range(3):
            task = asyncio.ensure_future(wait_for(call))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call, 0.01)
        assert not call.test()
        still_waits = asyncio.ensure_future(wait_for(call))
        await asyncio.sleep(0)
        other = start(groups[1])
        assert (await call).tolist() == (await other).tolist() == [2, 2, 2]
        assert (await still_waits).tolist() == [2, 2, 2]
        assert [group.generation for group in groups] == [1, 1]
    run(main())


def test_a_task_that_is_cancelled_when_the_call_is_over(groups):
    async def main():
        calls = [start(group) for group in groups]
        task = asyncio.ensure_future(wait_for(calls[0]))
        await asyncio.sleep(0)
        calls[0].wait(LONG)  # this loop has not yet looked
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await calls[0]).tolist() == [2, 2, 2]
        await calls[1]
    run(main())


def test_any_number_of_awaits(groups):
    async def main():
        calls = [start(group) for group in groups]
        results = await asyncio.gather(*[wait_for(calls[0]) for _ in range(50)])
        assert all(result is calls[0].result for result in results)
        await calls[1]
        assert calls[0].test()
        for _ in range(3):
            assert (await calls[0]).tolist() == [2, 2, 2]
        return calls[0]
    call = run(main())
    assert run(wait_for(call)).tolist() == call.wait().tolist() == [2, 2, 2]


def errors_of(call):
    """The errors of `wait`, of `await`, of `test`, and of a second `await`."""
    async def main():
        errors = []
        for attempt in (call.wait, lambda: wait_for(call), call.test, lambda: wait_for(call)):
            with pytest.raises(cohort.Error) as caught:
                result = attempt()
                await result
            errors.append(caught.value)
        return errors
    return run(main())


def same_error(errors):
    """Asserts that they have the same type, text and facts, and returns the first."""
    facts = [(type(error), str(error), error.missing, error.culprit) for error in errors]
    assert len(errors) == 4 and facts == facts[:1] * 4
    return errors[0]


def test_await_raises_what_wait_raises(groups):
    calls = [start(groups[0], op='median'), start(groups[1])]
    for call in calls:
        error = same_error(errors_of(call))
        assert isinstance(error, cohort.InvalidArgument) and "got 'median'" in str(error)
    async def main():
        return await asyncio.gather(*[start(group) for group in groups])
    assert [result.tolist() for result in run(main())] == [[2, 2, 2]] * 2


def test_cancel_and_deadlines_end_the_awaited_call(address):
    with joined_groups('ends', 2, address) as groups:
        async def cancelled():
            call = start(groups[0])
            task = asyncio.ensure_future(wait_for(call))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(cohort.Error, match='cancelled a call'):
                await task
            return call
        call = run(cancelled())
        assert 'cancelled a call' in str(same_error(errors_of(call)))
        run_ranks(2, lambda rank: groups[rank].rejoin())
        error = same_error(errors_of(start(groups[0], timeout=0.05)))
        assert isinstance(error, cohort.DeadlineExceeded) and error.missing == (1,)


def test_close_ends_the_calls_behind_the_running_one(address):
    with joined_groups('closed', 2, address) as groups:
        async def main():
            calls = [start(groups[0]), start(groups[0])]
            tasks = [asyncio.ensure_future(wait_for(call)) for call in calls]
            await asyncio.sleep(0)
            await asyncio.to_thread(groups[0].close)
            for task in tasks:
                with pytest.raises((cohort.Aborted, cohort.Cancelled)):
                    await task
        run(main())


def test_two_event_loops_await_one_call(groups):
    call = start(groups[0])
    waiting = threading.Barrier(3)
    async def main():
        task = asyncio.ensure_future(wait_for(call))
        await asyncio.sleep(0)
        waiting.wait(LONG)
        return (await task).tolist()
    def body(number):
        if number < 2:
            return run(main())
        waiting.wait(LONG)
        return start(groups[1]).wait(LONG).tolist()
    assert run_ranks(3, body) == [[2, 2, 2]] * 3


def test_a_loop_that_ends_before_the_call(groups):
    call = start(groups[0])
    async def main():
        asyncio.ensure_future(wait_for(call))  # asyncio cancels it
        await asyncio.sleep(0)
        return weakref.ref(asyncio.get_running_loop())
    loop = run(main())
    gc.collect()
    assert loop() is None
    assert not call.test()
    start(groups[1])
    assert call.wait(LONG).tolist() == [2, 2, 2]


def test_a_dropped_coroutine_leaves_the_call(groups):
    async def main():
        call = start(groups[0])
        coroutine = wait_for(call)
        coroutine.send(None)  # it waits now
        coroutine.close()
        start(groups[1])
        assert (await call).tolist() == [2, 2, 2]
    run(main())


def test_without_an_event_loop(groups):
    calls = [start(group) for group in groups]
    with pytest.raises(RuntimeError, match='no running event loop'):
        wait_for(calls[0]).send(None)
    for call in calls:
        assert call.wait(LONG).tolist() == [2, 2, 2]


def test_forked_child(address):
    program = '''
import asyncio, os, sys, cohort
import numpy as np
group = cohort.Group("fork", rank=0, world_size=1, address=sys.argv[1])
async def wait_for(call):
    return await call
call = group.all_reduce(np.ones(2), wait=False)
call.wait()
child = os.fork()
if child == 0:
    try:
        asyncio.run(wait_for(call))
    except cohort.FailedPrecondition as error:
        print("refused" if "forked" in str(error) else error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(asyncio.run(wait_for(call)).tolist(), flush=True)
'''
    with rank_process(program, address) as process:
        assert process.stdout.readline() == 'refused\n'
        assert process.stdout.readline() == '[1.0, 1.0]\n'


def test_a_thousand_awaits_leave_nothing(groups):
    def descriptors():
        gc.collect()
        return len(os.listdir('/proc/self/fd'))
    async def main():
        calls = [start(group, op='sum' if group.rank else 'median') for group in groups]
        abandoned = asyncio.ensure_future(wait_for(calls[0]))
        await asyncio.sleep(0)
        abandoned.cancel()
        for call in calls:
            with pytest.raises(cohort.InvalidArgument):
                await call
    for _ in range(20):
        run(main())
    before = descriptors()
    for _ in range(1000):
        run(main())
    assert descriptors() <= before
