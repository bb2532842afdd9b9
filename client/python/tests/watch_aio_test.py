"""Watches of keys for asyncio: cancelled tasks, timeouts, and steps at once."""

import asyncio

import pytest

import cohort
import cohort.aio
from cohort import _event_loop
from testing.coordinator import eventually
from testing.threads import threads_without_grpc
from testing.watches import coordinator_fixture, run, store_fixture, watch

_coordinator = coordinator_fixture()
_store = store_fixture()


def test_cancelled_tasks_leave_nothing(coordinator):
    async def main():
        async with cohort.aio.Store(coordinator.address) as store:
            await (await watch(store, 'warm')).aclose()
            eventually(lambda: coordinator.streams() == 0)
            threads = threads_without_grpc()
            changes = watch(store, 'cancelled/')
            async def read():
                async for _ in changes:
                    pass
            for _ in range(10):
                await changes
                assert coordinator.streams() == 1
                task = asyncio.ensure_future(read())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                # The object is still there.
                eventually(lambda: coordinator.streams() == 0)
            eventually(lambda: threads_without_grpc() <= threads)
            first = (await store.range('')).revision
            async def once():
                async for change in watch(store, 'cancelled/', first):
                    return change
            await asyncio.gather(*[store.put('cancelled/a', b'') for _ in range(3)])
            assert (await once()).kind == 'put'
            eventually(lambda: coordinator.streams() == 0)
    run(main())


def test_cancelled_steps_lose_nothing(store, coordinator):
    async def main():
        async with cohort.aio.Store(coordinator.address) as other:
            changes = await watch(other, 'lossless/')
            values, sent, cancelled = [], 0, 0
            while len(values) < 300:
                step = asyncio.ensure_future(changes.__anext__())
                if sent < 300:
                    store.put('lossless/a', str(sent))
                    sent += 1
                for _ in range(sent % 3):
                    await asyncio.sleep(0.001 * (sent % 2))
                step.cancel()
                try:
                    values.append(int((await step).value))
                except asyncio.CancelledError:
                    cancelled += 1
                    if sent == 300:
                        values.append(int((await changes.__anext__()).value))
            assert values == list(range(300))
            assert cancelled > 0
            await changes.aclose()
    run(main())


def test_result_that_a_cancelled_task_did_not_take(store, coordinator):
    """The loop has set the result of the call, and the task is cancelled before it runs."""
    async def main():
        async with cohort.aio.Store(coordinator.address) as other, watch(other, 'late') as changes:
            for i in range(10):
                step = asyncio.ensure_future(changes.__anext__())
                await asyncio.sleep(0)
                store.put('late', str(i))
                calls = _event_loop._of_loops[asyncio.get_running_loop()]  # pylint: disable=protected-access
                eventually(lambda calls=calls: (calls._take(), not calls._calls)[1])  # pylint: disable=protected-access
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
                assert int((await changes.__anext__()).value) == i
    run(main())


def test_timeout_of_an_asynchronous_watch(coordinator):
    async def main():
        async with cohort.aio.Store(coordinator.address) as store:
            async with watch(store, 'timeout', timeout=0.2) as changes:
                assert [change async for change in changes] == []
                with pytest.raises(StopAsyncIteration):
                    await changes.__anext__()
    run(main())


def test_two_steps_at_once(coordinator):
    async def main():
        async with cohort.aio.Store(coordinator.address) as store:
            changes = await watch(store, 'steps')
            step = asyncio.ensure_future(changes.__anext__())
            await asyncio.sleep(0)
            with pytest.raises(cohort.FailedPrecondition, match='another call waits'):
                await changes.__anext__()
            await changes.aclose()
            with pytest.raises(StopAsyncIteration):
                await step
    run(main())
