"""Watches of keys against a coordinator."""

import asyncio
import os
import threading
import time

import pytest

import cohort
import cohort.aio
from testing.coordinator import LONG, eventually, rank_process
from testing.threads import threads_without_grpc
from testing.watches import coordinator_fixture, run, store_fixture, watch

COUNT = 10_000
_coordinator = coordinator_fixture()
_store = store_fixture()


def test_changes_of_keys(store):
    with watch(store, 'kinds/') as changes:
        first = store.put('kinds/a', b'\0\xff')
        store.put('other', b'')
        store.delete('kinds/a')
        store.put('kinds/b', 'short', expiration=0.05)
        change = next(changes)
        assert change == cohort.KeyEvent('put', 'kinds/a', b'\0\xff', first.revision)
        # The next change may be here already, after one of another key.
        assert first.revision <= changes.revision <= first.revision + 1
        assert next(changes)[:3] == ('deleted', 'kinds/a', b'')
        assert next(changes)[:3] == ('put', 'kinds/b', b'short')
        assert next(changes)[:3] == ('expired', 'kinds/b', b'')


def test_every_change_after_the_call_is_seen(store, coordinator):
    for i in range(30):
        with watch(store, 'from/') as changes:
            revision = store.put('from/a', str(i)).revision
            assert (next(changes).value, changes.revision) == (b'%d' % i, revision)
    async def main():
        async with cohort.aio.Store(coordinator.address) as other:
            for i in range(30):
                async with watch(other, 'from/') as changes:
                    await other.put('from/a', str(i))
                    assert (await changes.__anext__()).value == b'%d' % i
                changes = await watch(other, 'from/')
                await other.put('from/a', str(i))
                assert (await changes.__anext__()).value == b'%d' % i
    run(main())


def test_a_watch_goes_on_where_another_one_stopped(store, coordinator):
    begin = store.put('on', b'').revision
    keys = [f'on/{i}' for i in range(100)]
    last = [store.put(key, b'').revision for key in keys][-1]
    store.put('other', b'')
    found, revision = [], begin
    while len(found) < len(keys):
        with watch(store, 'on/', from_revision=revision) as changes:
            for _ in range(min(7, len(keys) - len(found))):
                found.append(next(changes).key)
            revision = changes.revision
    assert found == keys and revision >= last
    async def main():
        found, revision = [], begin
        async with cohort.aio.Store(coordinator.address) as other:
            while len(found) < len(keys):
                async with watch(other, 'on/', from_revision=revision) as changes:
                    for _ in range(min(7, len(keys) - len(found))):
                        found.append((await changes.__anext__()).key)
                    revision = changes.revision
        assert found == keys and revision >= last
    run(main())


def test_a_watch_that_opens_with_its_first_step(coordinator):
    async def main():
        async with cohort.aio.Store(coordinator.address) as store:
            revision = (await store.range('')).revision
            changes = watch(store, 'first/')
            step = asyncio.ensure_future(changes.__anext__())
            while changes.revision < revision:
                await asyncio.sleep(0)
            await store.put('first/a', b'x')
            assert (await step).value == b'x'
            await changes.aclose()
    run(main())


def produce(store, prefix, permits):
    """Writes COUNT keys, not too far ahead of the reader."""
    for i in range(0, COUNT, 100):
        assert permits.acquire(timeout=LONG)
        store.multi_put({f'{prefix}{j:05}': str(j) for j in range(i, i + 100)})


def test_ten_thousand_changes(store):
    permits = threading.Semaphore(20)
    with watch(store, 'many/') as changes:
        producer = threading.Thread(target=produce, args=(store, 'many/', permits))
        producer.start()
        revision = 0
        for i, change in zip(range(COUNT), changes):
            assert (change.key, change.value) == (f'many/{i:05}', b'%d' % i)
            assert change.revision > revision
            revision = change.revision
            if i % 100 == 99:
                permits.release()
        producer.join(LONG)


def test_ten_thousand_changes_for_two_watches_without_threads(store, coordinator):
    permits = threading.Semaphore(20)
    async def read(changes, releases):
        for i in range(COUNT):
            assert (await changes.__anext__()).value == b'%d' % i
            if releases and i % 100 == 99:
                permits.release()
    async def main():
        async with cohort.aio.Store(coordinator.address) as other:
            await other.put('warm', b'')
            threads = threads_without_grpc()
            async with watch(other, 'two/') as first, watch(other, 'two') as second:
                idle = [await watch(other, f'idle/{i}') for i in range(200)]
                assert coordinator.streams() == 202
                eventually(lambda: threads_without_grpc() <= threads)
                producer = threading.Thread(target=produce, args=(store, 'two/', permits))
                producer.start()
                await asyncio.gather(read(first, False), read(second, True))
                producer.join(LONG)
            del idle
    run(main())


def test_one_watch_goes_on_when_another_ends(store):
    first, second = watch(store, 'pair/'), watch(store, 'pair/')
    store.put('pair/a', b'1')
    assert next(first).value == next(second).value == b'1'
    first.close()
    first.close()
    assert list(first) == []
    store.put('pair/a', b'2')
    assert next(second).value == b'2'


SLOW = '''
import sys, cohort
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
store = cohort.Store(sys.argv[1])
changes = store.watch("slow/")
store.put("slow/0000", b"")
assert next(changes).key == "slow/0000"
before = resident()
print("ready", flush=True)
sys.stdin.readline()
print(resident() - before, flush=True)
count = 0
try:
    for change in changes:
        count += 1
        assert change.key == f"slow/{count:04}", change.key
except cohort.OutOfRange as error:
    print(count, error, flush=True)
page = store.range("slow/", keys_only=True)
with store.watch("slow/", page.revision) as changes:
    store.put("slow/last", b"")
    print(next(changes).key, flush=True)
'''


def test_slow_reader_needs_no_memory(store, coordinator):
    with rank_process(SLOW, coordinator.address) as process:
        assert process.stdout.readline() == 'ready\n'
        for i in range(1, 1001):
            store.put(f'slow/{i:04}', bytes(100_000))
            store.delete(f'slow/{i - 50:04}')
        process.stdin.write('\n')
        process.stdin.flush()
        assert int(process.stdout.readline()) < 32 << 10  # KiB, of 100 MB
        count, error = process.stdout.readline().split(' ', 1)
        assert int(count) < 1000 and 'oldest revision kept' in error
        assert process.stdout.readline() == 'slow/last\n'
        assert process.wait(LONG) == 0


def test_compacted_revision(store):
    first = store.put('old', b'').revision
    for _ in range(5):
        store.multi_put({f'old/{i}': b'' for i in range(1000)})
    changes = watch(store, 'old', first)
    for _ in range(2):
        with pytest.raises(cohort.OutOfRange, match='read the range'):
            next(changes)
    values, following = page = store.range('old', page_size=1)
    assert (len(values), following) == (1, 'old')
    changes = watch(store, 'old', from_revision=page.revision)
    store.put('old', b'new')
    assert next(changes).value == b'new'


def test_ends(store, coordinator):
    store.put('warm', b'')
    watch(store, 'ends/').close()
    eventually(lambda: coordinator.streams() == 0)
    before = threads_without_grpc(), len(os.listdir('/proc/self/fd'))
    began = time.monotonic()
    with watch(store, 'ends/', timeout=0.2) as changes:
        assert list(changes) == []
        assert list(changes) == []
    assert 0.2 <= time.monotonic() - began < LONG
    eventually(lambda: coordinator.streams() == 0)
    changes = watch(store, 'ends/')
    store.put('ends/a', b'')
    for _ in changes:
        break
    assert coordinator.streams() == 1  # the program still has it
    del changes
    eventually(lambda: coordinator.streams() == 0)
    changes = watch(store, 'ends/')
    reader = threading.Thread(target=lambda: list(changes))
    reader.start()
    changes.close()
    reader.join(LONG)
    assert not reader.is_alive()
    for change in watch(store, 'ends/', from_revision=store.put('ends/a', b'').revision - 1):
        assert change.key == 'ends/a'
        break
    eventually(lambda: coordinator.streams() == 0)
    eventually(lambda: before == (threads_without_grpc(), len(os.listdir('/proc/self/fd'))))


def test_closed_store(coordinator):
    store = cohort.Store(coordinator.address)
    changes = watch(store, 'closed')
    reader = threading.Thread(target=lambda: list(changes))
    reader.start()
    store.close()
    reader.join(LONG)
    assert not reader.is_alive()
    assert list(changes) == []
    with pytest.raises(cohort.FailedPrecondition, match='close'):
        watch(store, 'closed')
    async def main():
        other = cohort.aio.Store(coordinator.address)
        changes = await watch(other, 'closed')
        step = asyncio.ensure_future(changes.__anext__())
        await asyncio.sleep(0)
        await other.close()
        with pytest.raises(StopAsyncIteration):
            await step
        with pytest.raises(cohort.FailedPrecondition, match='close'):
            watch(other, 'closed')
    run(main())
    eventually(lambda: coordinator.streams() == 0)


def test_wrong_arguments(store, coordinator):
    for wrong in 'x' * 5000, 'a\0b':
        with pytest.raises(cohort.InvalidArgument):
            watch(store, wrong)
        with pytest.raises(cohort.InvalidArgument):
            watch(store, wrong, 1)
    for wrong in '\ud800', b'\xff':
        with pytest.raises(ValueError, match='UTF-8'):
            watch(store, wrong)
    with pytest.raises(TypeError):
        watch(store, 5)
    with pytest.raises(cohort.InvalidArgument):
        watch(store, 'a', -1)
    with pytest.raises(cohort.OutOfRange):
        next(watch(store, 'a', 1 << 60))
    with pytest.raises(cohort.InvalidArgument):
        cohort.watch_group('no name', address=coordinator.address)
    with pytest.raises(cohort.NotFound, match='nothing'):
        cohort.watch_group('nothing', address=coordinator.address)
    async def main():
        events = cohort.aio.watch_group('nothing', address=coordinator.address)
        with pytest.raises(RuntimeError, match='not open'):
            _ = events.info
        with pytest.raises(cohort.NotFound):
            await events
        await events.aclose()
        async with cohort.aio.Store(coordinator.address) as other:
            with pytest.raises(cohort.InvalidArgument):
                await watch(other, 'x' * 5000).__anext__()
    run(main())
