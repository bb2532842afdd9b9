"""Watches of keys and groups against a coordinator, which the tests also kill."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

import pytest

import cohort
import cohort.aio
from cohort import _event_loop
from testing.coordinator import LONG, rank_process

COUNT = 10_000


class Coordinator:
    """A coordinator that a test kills and starts again at the same address."""

    def __init__(self, folder, *flags):
        self.address = f'unix:{folder}/coordinator'
        self._log = os.path.join(folder, 'log')
        self._flags = flags
        self._process = None
        self.start()

    def start(self):
        with open(self._log, 'w', encoding='utf-8') as log:
            self._process = subprocess.Popen(  # pylint: disable=consider-using-with
                ['cohort-coordinator', '--listen', self.address, '--metrics-listen', '127.0.0.1:0',
                 *self._flags], stdout=log, stderr=log)

    def kill(self):
        self._process.kill()
        self._process.wait(LONG)

    @contextlib.contextmanager
    def stopped(self):
        """Stops all its threads for the statement."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _metrics(self):
        def port():
            with open(self._log, encoding='utf-8') as log:
                return re.search(r'metrics_port\W+(\d+)', log.read())
        eventually(port)
        with urllib.request.urlopen(f'http://127.0.0.1:{port()[1]}/metrics') as page:
            return page.read().decode()

    def streams(self):
        """How many watches are open."""
        count = 0
        for line in self._metrics().splitlines():
            if 'grpc_method="Watch' in line and 'server_' in line and '_total' in line:
                value = int(float(line.rsplit(' ', 1)[1]))
                count += value if line.startswith('grpc_server_started') else -value
        return count


def watch(store, prefix, *arguments, **options):
    """A watch that ends in any case."""
    return store.watch(prefix, *arguments, **{'timeout': LONG, **options})


def eventually(holds, seconds=LONG):
    """Waits until holds()."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline


@contextlib.contextmanager
def running(*flags):
    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        made = Coordinator(folder, *flags)
        try:
            yield made
        finally:
            made.kill()


@pytest.fixture(scope='module', name='coordinator')
def _coordinator():
    with running() as made:
        yield made


@pytest.fixture(name='store')
def _store(coordinator):
    with cohort.Store(coordinator.address) as store:
        yield store
    eventually(lambda: coordinator.streams() == 0)


def run(coroutine):
    """Runs it on a loop of its own, with a deadline."""
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


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
            threads = len(os.listdir('/proc/self/task'))
            async with watch(other, 'two/') as first, watch(other, 'two') as second:
                idle = [await watch(other, f'idle/{i}') for i in range(200)]
                assert coordinator.streams() == 202
                assert len(os.listdir('/proc/self/task')) <= threads + 2  # of gRPC
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


class Proxy:
    """Forwards connections to the coordinator, and breaks them when it is told to."""

    def __init__(self, address):
        self._to = address.partition(':')[2]
        self._sockets = []
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.address = f'127.0.0.1:{self._listener.getsockname()[1]}'
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                self._sockets += [near, far]
                for ends in (near, far), (far, near):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    @staticmethod
    def _forward(source, destination):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                destination.sendall(data)
        with contextlib.suppress(OSError):
            destination.shutdown(socket.SHUT_RDWR)

    def drop(self):
        """Breaks all connections."""
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()


def test_broken_connections_lose_nothing(store, coordinator):
    proxy = Proxy(coordinator.address)
    with contextlib.closing(proxy), cohort.Store(proxy.address) as through:
        with watch(through, 'broken/') as changes:
            for i in range(100):
                store.put('broken/a', str(2 * i))
                if i % 10 == 0:
                    proxy.drop()
                store.put('broken/a', str(2 * i + 1))
                assert [int(next(changes).value) for _ in range(2)] == [2 * i, 2 * i + 1]
    async def main():
        async with cohort.aio.Store(proxy.address) as other, watch(other, 'broken/') as changes:
            for i in range(50):
                step = asyncio.ensure_future(changes.__anext__())
                await asyncio.sleep(0)
                proxy.drop()
                store.put('broken/a', str(i))
                assert int((await step).value) == i
    proxy = Proxy(coordinator.address)
    with contextlib.closing(proxy):
        run(main())


@pytest.mark.parametrize('journal', ['memory', 'sqlite'])
def test_restarted_coordinator(journal, tmp_path):
    flags = [] if journal == 'memory' else ['--journal', 'sqlite', '--journal-path',
                                            str(tmp_path / 'journal')]
    with running(*flags) as coordinator, cohort.Store(coordinator.address) as store:
        changes = watch(store, 'restart/')
        store.put('restart/a', b'before')
        assert next(changes).value == b'before'
        coordinator.kill()
        coordinator.start()
        # As many changes as before: their revisions may be the same.
        for _ in range(20):
            store.put('restart/b', b'missed')
        for _ in range(2):
            with pytest.raises(cohort.OutOfRange):
                next(changes)
        changes = watch(store, 'restart/')
        values, _ = store.range('restart/')
        kept = [] if journal == 'memory' else ['restart/a']
        assert [value.key for value in values] == kept + ['restart/b']
        store.put('restart/a', b'after')
        assert next(changes).value == b'after'


def test_coordinator_that_stays_away():
    with running() as coordinator, cohort.Store(coordinator.address) as store:
        changes = watch(store, 'away', reconnect_timeout=0.5)
        revision = changes.revision
        coordinator.kill()
        with pytest.raises(cohort.Unavailable, match='watch "away" gave up after'):
            next(changes)
        assert changes.revision == revision
        with pytest.raises(cohort.Unavailable, match='is away: watch "away"'):
            watch(store, 'away', reconnect_timeout=0.5)
        coordinator.start()
        store.put('away', b'')
        with pytest.raises(cohort.OutOfRange):
            next(changes)


def test_stopped_coordinator():
    """It accepts connections, and does not answer."""
    with running() as coordinator, cohort.Store(coordinator.address) as store:
        revision = store.put('key', b'').revision
        with coordinator.stopped(), pytest.raises(cohort.Unavailable, match='got no answer'):
            watch(store, 'key', revision, reconnect_timeout=0.5)


def test_ends(store, coordinator):
    store.put('warm', b'')
    watch(store, 'ends/').close()
    eventually(lambda: coordinator.streams() == 0)
    before = len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd'))
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
    assert before == (len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))


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


def test_cancelled_tasks_leave_nothing(coordinator):
    async def main():
        async with cohort.aio.Store(coordinator.address) as store:
            await (await watch(store, 'warm')).aclose()
            eventually(lambda: coordinator.streams() == 0)
            threads = len(os.listdir('/proc/self/task'))
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
            assert len(os.listdir('/proc/self/task')) <= threads
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


SIGNALLED = '''
import os, signal, sys, cohort
def interrupt(number, frame):
    if frame.f_code.co_name == "__next__":
        raise KeyboardInterrupt
    os.write(1, b"early\\n")
signal.signal(signal.SIGINT, interrupt)
def stop(*_):
    raise SystemExit(7)
signal.signal(signal.SIGTERM, stop)
store = cohort.Store(sys.argv[1])
changes = store.watch("signals/")
print("ready", flush=True)
while True:
    try:
        for change in changes:
            print(change.value, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.stdin.readline()
'''


def test_signals_end_a_step(store, coordinator):
    with rank_process(SIGNALLED, coordinator.address) as process:
        assert process.stdout.readline() == 'ready\n'
        store.put('signals/a', b'1')
        assert process.stdout.readline() == "b'1'\n"
        def go_on():
            process.stdin.write('\n')
            process.stdin.flush()
        def interrupt():
            process.send_signal(signal.SIGINT)
            if process.stdout.readline() == 'early\n':
                return False
            with contextlib.suppress(AssertionError):
                eventually(lambda: coordinator.streams() == 0, 1)
                return True
            go_on()  # the step had not begun to wait
            return False
        eventually(interrupt)
        # The watch goes on after the last change.
        store.put('signals/a', b'2')
        go_on()
        assert process.stdout.readline() == "b'2'\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 7
    eventually(lambda: coordinator.streams() == 0)


FORKED = '''
import os, sys, cohort
store = cohort.Store(sys.argv[1])
changes = store.watch("fork")
child = os.fork()
if child == 0:
    try:
        next(changes)
    except cohort.FailedPrecondition as error:
        print("refused" if "forked" in str(error) else error, flush=True)
    sys.exit(0)
os.waitpid(child, 0)
store.put("fork", b"x")
print(next(changes).value, flush=True)
group = cohort.ProcessGroup("forked", rank=0, world_size=1, address=sys.argv[1])
events = cohort.watch_group("forked", address=sys.argv[1])  # open until the interpreter ends
'''


def test_forked_child(coordinator):
    with rank_process(FORKED, coordinator.address) as process:
        assert process.stdout.read() == "refused\nb'x'\n"
        assert process.wait(LONG) == 0
    eventually(lambda: coordinator.streams() == 0)


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
            threads = len(os.listdir('/proc/self/task'))
            more = [await cohort.aio.watch_group('routed', address=coordinator.address)
                    for _ in range(50)]
            assert len(os.listdir('/proc/self/task')) <= threads + 2  # of gRPC
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
