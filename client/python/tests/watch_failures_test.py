"""Watches of keys when connections break, and when coordinators or their own process fail."""

import asyncio
import contextlib
import signal
import socket
import threading

import pytest

import cohort
import cohort.aio
from testing.coordinator import LONG, eventually, rank_process
from testing.watches import coordinator_fixture, run, running, store_fixture, watch

_coordinator = coordinator_fixture()
_store = store_fixture()


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
