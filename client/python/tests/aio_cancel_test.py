"""Calls of cohort.aio that are cancelled beside others, closed objects, and loops that ended."""

import asyncio
import concurrent.futures
import gc
import os
import random
import sys
import threading
import time

import pytest

import cohort
import cohort.aio
from testing.coordinator import LONG
from testing.fixtures import address_fixture

_address = address_fixture()
SEED = 20261125


def run(coroutine):
    """Runs it on a loop of its own, with a deadline."""
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


def test_a_pop_beside_a_cancelled_one(address):
    """The next pop begins before the cancelled one has ended, and may get its value."""
    pause = random.Random(SEED)
    async def main():
        async with cohort.aio.Store(address) as writer, cohort.aio.Store(address) as reader:
            for i in range(300):
                queue = f'beside-{i}'
                first = asyncio.ensure_future(reader.queue_pop(queue, wait=LONG))
                await asyncio.sleep(0)
                pushes = [asyncio.ensure_future(writer.queue_push(queue, value))
                          for value in (b'0', b'1')]
                await asyncio.sleep(pause.uniform(0, 0.001))
                first.cancel()
                got = [await reader.queue_pop(queue, wait=LONG)]
                await asyncio.gather(*pushes)
                ended = (await asyncio.gather(first, return_exceptions=True))[0]
                if isinstance(ended, bytes):
                    got.append(ended)
                while len(got) < 2:
                    got.append(await reader.queue_pop(queue, wait=LONG))
                assert sorted(got) == [b'0', b'1'], f'queue {i}'
            assert not reader._queues  # pylint: disable=protected-access
    run(main())


@pytest.mark.parametrize('consumers', [2, 5])
def test_consumers_with_deadlines(address, consumers):
    pause = random.Random(SEED)
    async def consume(reader, got, done):
        while not done.is_set():
            try:
                got.append(await asyncio.wait_for(reader.queue_pop('storm', wait=LONG),
                                                  pause.uniform(0, 0.003)))
            except asyncio.TimeoutError:
                pass
    async def main():
        async with cohort.aio.Store(address) as writer, cohort.aio.Store(address) as reader:
            got, done = [], asyncio.Event()
            tasks = [asyncio.ensure_future(consume(reader, got, done)) for _ in range(consumers)]
            values = [b'%d' % i for i in range(1000)]
            for value in values:
                await writer.queue_push('storm', value)
            while len(got) < len(values):
                await asyncio.sleep(0)
            done.set()
            await asyncio.gather(*tasks)
            assert sorted(got) == sorted(values)
    run(main())


def test_a_second_cancellation_loses_nothing(address):
    async def main():
        async with cohort.aio.Store(address) as writer, cohort.aio.Store(address) as reader:
            for i in range(100):
                queue = f'twice-{i}'
                popping = asyncio.ensure_future(reader.queue_pop(queue, wait=LONG))
                await asyncio.sleep(0)
                pushing = asyncio.ensure_future(writer.queue_push(queue, b'x'))
                await asyncio.sleep(0)
                popping.cancel()
                await asyncio.sleep(0)
                popping.cancel()
                ended = (await asyncio.gather(popping, return_exceptions=True))[0]
                await pushing
                assert ended == b'x' or await reader.queue_pop(queue, wait=LONG) == b'x'
    run(main())


async def members_of(group, size, address):
    """Joins all ranks, and returns them in their order."""
    async def join(rank):
        return await cohort.aio.ProcessGroup(group, rank=rank, world_size=size, address=address,
                                             timeout=LONG)
    return await asyncio.gather(*map(join, range(size)))


def test_receive_any_gets_what_a_cancelled_receive_left(address):
    async def main():
        receiver, sender = await members_of('left', 2, address)
        for i in range(200):
            value = b'%d' % i
            receiving = asyncio.ensure_future(
                receiver.receive(1) if i % 2 else receiver.receive_any())
            await asyncio.sleep(0)
            sending = asyncio.ensure_future(sender.send(value, 0))
            await asyncio.sleep(0)
            receiving.cancel()
            ended = (await asyncio.gather(receiving, return_exceptions=True))[0]
            if isinstance(ended, asyncio.CancelledError):
                ended = await receiver.receive_any() if i % 2 else await receiver.receive(1)
            assert ended in (value, (value, 1))
            await sending
        await receiver.close()
        await sender.close()
    run(main())


def test_a_value_that_was_left_goes_to_a_call_that_takes_it(address):
    async def main():
        members = await members_of('sources', 3, address)
        waiting = asyncio.ensure_future(members[0].receive(1))
        while not any(inbox._takers for inbox in members[0]._inboxes.values()):
            await asyncio.sleep(0)
        inbox, = members[0]._inboxes.values()
        inbox._keep((b'of 2', 2))  # as a receive_any does that was cancelled too late
        assert await members[0].receive(2) == b'of 2'
        await members[1].send(b'of 1', 0)
        assert await waiting == b'of 1'
        for member in members:
            await member.close()
    run(main())


def test_close_ends_calls_that_wait(address):
    async def main():
        store = cohort.aio.Store(address)
        await store.put('here', b'')
        waiting = [asyncio.ensure_future(call) for call in (
            store.get('never', wait=1000, timeout=1000), store.queue_pop('never', wait=1000),
            store.queue_pop('never', wait=1000))]
        await asyncio.sleep(0)
        await store.close()
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, cohort.Cancelled), ended
            assert 'close() was called on the store' in str(ended)
        with pytest.raises(cohort.FailedPrecondition, match='close'):
            await store.get('here')
    run(main())


def test_loops_that_end_with_calls_leave_no_descriptors(address):
    def descriptors():
        return len(os.listdir('/proc/self/fd'))
    store = cohort.aio.Store(address)
    def abandon():
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(store.get('never', wait=1000, timeout=1000))
        loop.run_until_complete(asyncio.sleep(0))
        waiting._log_destroy_pending = False  # pylint: disable=protected-access
        loop.close()
    for _ in range(3):
        abandon()
    gc.collect()
    before = descriptors()
    for _ in range(30):
        abandon()
    gc.collect()
    deadline = time.monotonic() + LONG
    while descriptors() > before + 3 and time.monotonic() < deadline:  # the calls end soon
        pass
    assert descriptors() <= before + 3
    run(store.close())


def test_a_value_that_a_cancelled_call_left_reaches_a_waiter_on_another_loop(address):
    store = cohort.aio.Store(address)
    started = threading.Event()

    async def wait():
        pop = asyncio.ensure_future(store.queue_pop('loops', wait=LONG))
        while 'loops' not in store._queues or not store._queues['loops']._takers:
            await asyncio.sleep(0)
        started.set()
        return await pop

    async def leave():
        store._queues['loops']._keep(b'late')  # as a call does that was cancelled too late

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, wait())
        assert started.wait(LONG)
        run(leave())
        assert waiting.result(LONG) == b'late'
    assert 'loops' not in store._queues  # nothing is kept
    store.release()


def test_threads_with_loops_that_end(address):
    # Each new loop gives back what belongs to loops that have ended, of other threads, too.
    async def one(store):
        await store.put(str(threading.get_ident()), b'')

    def loops():
        for _ in range(100):
            store = cohort.aio.Store(address)
            run(one(store))
            store.release()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            for done in [threads.submit(loops) for _ in range(8)]:
                done.result(LONG)
    finally:
        sys.setswitchinterval(interval)
