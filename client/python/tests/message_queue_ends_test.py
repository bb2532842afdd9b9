"""How queues end: slow readers, killed writers, signals, forks, and close beside other threads."""

import contextlib
import signal
import threading

import pytest

import cohort
from testing.coordinator import LONG, coordinator, rank_process
from testing.fixtures import queue_pair_fixture

_pair = queue_pair_fixture()


def test_writer_names_the_reader_that_lags():
    writer = cohort.MessageQueue.create_external('lag', block_bytes=1 << 14, blocks=1)
    fast = cohort.MessageQueue.open(writer.handle, 'fast')
    slow = cohort.MessageQueue.open(writer.handle, 'slow')
    written = 0
    with pytest.raises(cohort.DeadlineExceeded, match=r'slow is \d+ bytes') as caught:
        while True:
            writer.enqueue(b'%1000d' % written, 0.05)
            written += 1
            fast.dequeue()
    assert 'fast' not in str(caught.value) and isinstance(caught.value, TimeoutError)
    behind = {reader.name: reader.values_behind for reader in writer.readers()}
    assert behind == {'fast': 0, 'slow': written}
    # The value that failed does not come.
    assert [int(slow.dequeue()) for _ in range(written)] == list(range(written))
    writer.enqueue(b'next')
    assert slow.dequeue() == fast.dequeue() == b'next'
    slow.close()
    for _ in range(40):  # more than the ring holds: the writer no longer waits for the slow one
        writer.enqueue(bytes(1000))
        fast.dequeue()
    departures = writer.departures()
    assert [departure.name for departure in departures] == ['slow']
    assert 'close' in departures[0].reason
    fast.close()
    with pytest.raises(cohort.Aborted, match='slow.*fast'):
        while True:
            writer.enqueue(b'for nothing')
    writer.close()


WRITER = '''
import sys
import cohort
writer = cohort.MessageQueue.create_external("mortal", block_bytes=1 << 20, blocks=4)
print(writer.handle.hex(), flush=True)
writer.await_readers(1)
for i in range(3):
    writer.enqueue(bytes([i]) * 1000000)
print("written", flush=True)
sys.stdin.readline()
'''


def test_reader_of_a_killed_writer_reads_the_rest():
    with rank_process(WRITER) as process:
        handle = bytes.fromhex(process.stdout.readline())
        with cohort.MessageQueue.open(handle, 'heir') as reader:
            assert process.stdout.readline() == 'written\n'
            process.send_signal(signal.SIGKILL)
            process.wait(LONG)
            for i in range(3):
                assert reader.dequeue(LONG) == bytes([i]) * 1000000
            with pytest.raises(cohort.Aborted, match='the writer of "mortal".*is gone'):
                reader.dequeue(LONG)
        with pytest.raises(cohort.Unavailable):
            cohort.MessageQueue.open(handle, 'late')


def test_view_outlives_the_end_of_its_queue(pair):
    writer, reader = pair
    value = bytes(range(200)) * 100
    writer.enqueue(value)
    with reader.dequeue_view() as view:
        reader.close()
        with pytest.raises(cohort.DeadlineExceeded):
            while True:
                writer.enqueue(bytes(20000), 0.05)
        assert view == value
    writer.close()


def test_closed_queue(pair):
    writer, reader = pair
    for queue, calls in ((writer, (lambda: writer.enqueue(b''), writer.readers,
                                   lambda: writer.await_readers(0))),
                         (reader, (reader.dequeue, lambda: reader.shutdown('again'),
                                   lambda: reader.dequeue_view().__enter__()))):
        queue.close()
        queue.close()
        for call in calls:
            with pytest.raises(cohort.FailedPrecondition, match='close'):
                call()
    assert reader.name == 'the queue "pair"' and not reader.is_writer


def test_shutdown_ends_both_ends(pair):
    writer, reader = pair
    writer.enqueue(b'last')
    writer.shutdown('enough')
    with pytest.raises(cohort.Cancelled, match='enough'):
        writer.enqueue(b'')
    assert reader.dequeue() == b'last'
    with pytest.raises(cohort.Cancelled, match='enough'):
        reader.dequeue()
    reader.shutdown('me too')
    with pytest.raises(cohort.Cancelled, match='me too'):
        reader.dequeue()


def test_close_ends_the_wait_of_another_thread(pair):
    _, reader = pair
    with waiting(reader) as errors:
        reader.close()
    assert len(errors) == 1 and 'close' in errors[0]


@contextlib.contextmanager
def waiting(reader):
    """Yields while another thread waits for a value. Then the list has the error of that wait."""
    errors = []
    def wait():
        while not errors:
            try:
                reader.dequeue()
            except cohort.Error as error:
                # Until it waits, this thread's calls may collide with those below.
                if 'another thread' not in str(error):
                    errors.append(str(error))
    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(cohort.FailedPrecondition, match='another thread is reading'):
        while True:
            thread.join(0.001)
            with pytest.raises(cohort.DeadlineExceeded):
                reader.dequeue(0)
    yield errors
    thread.join(LONG)


def test_values_of_a_reader_that_threads_share_are_read_once(pair):
    writer, reader = pair
    read = []
    def body():
        while True:
            try:
                read.append(reader.dequeue())
            except cohort.FailedPrecondition:
                continue
            except cohort.Cancelled:
                return
    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        writer.enqueue(b'%d' % i)
    writer.shutdown('all are written')
    for thread in threads:
        thread.join(LONG)
    assert sorted(map(int, read)) == list(range(2000))


SIGNALS = '''
import contextlib, signal, sys, threading
import cohort
what, address = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
signal.signal(signal.SIGTERM, lambda *_: None)
forever = float("inf")
writer = cohort.MessageQueue.create_external("waits", block_bytes=1 << 14, blocks=1, timeout=forever)
reader = cohort.MessageQueue.open(writer.handle, "the reader", timeout=forever)
written = 0
def wait():
    global written
    if what == "dequeue":
        reader.dequeue()
    elif what == "view":
        with reader.dequeue_view():
            pass
    elif what == "enqueue":
        while True:
            writer.enqueue(b"%1000d" % written)
            written += 1
    elif what == "await_readers":
        writer.await_readers(2)
    elif what == "open":
        cohort.MessageQueue.open(writer.handle, "late", join_timeout=forever)
    elif what == "create":
        cohort.MessageQueue(group, join_timeout=forever)
if what == "create":
    group = cohort.Group("alone", rank=0, world_size=2, address=address)
if what == "open":
    # New readers come after this value, which has no room before it is read.
    def write():
        with contextlib.suppress(cohort.Cancelled):
            writer.enqueue(bytes(100000))
    threading.Thread(target=write).start()
    while writer.readers()[0].bytes_behind == 0:
        pass
try:
    print("ready", flush=True)
    wait()
except KeyboardInterrupt:
    print("interrupted", flush=True)
except cohort.Cancelled as error:
    print("cancelled:", error, flush=True)
if what == "enqueue":
    assert [int(reader.dequeue()) for _ in range(written)] == list(range(written))
if what != "open":
    writer.enqueue(b"next")
    value = reader.dequeue()
    if what == "enqueue" and value == b"%1000d" % written:
        value = reader.dequeue()  # the signal came between a call and its count
    assert value == b"next"
writer.shutdown("over")
'''

PEER = '''
import sys
import cohort
group = cohort.Group("alone", rank=1, world_size=2, address=sys.argv[1])
sys.stdin.readline()
'''
WAITS = ('dequeue', 'view', 'enqueue', 'await_readers', 'open', 'create')


@pytest.mark.parametrize('what', WAITS)
def test_a_handler_that_raises_ends_a_wait(what):
    with waiting_process(what) as process:
        process.send_signal(signal.SIGTERM)  # its handler returns, and the wait continues
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == 'interrupted\n'
        assert process.wait(LONG) == 0


@contextlib.contextmanager
def waiting_process(what):
    with contextlib.ExitStack() as stack:
        address = ''
        if what == 'create':
            address = stack.enter_context(coordinator())
            stack.enter_context(rank_process(PEER, address))
        process = stack.enter_context(rank_process(SIGNALS, what, address))
        assert process.stdout.readline() == 'ready\n'
        yield process


FORKED = '''
import os, sys
import cohort
writer = cohort.MessageQueue.create_external("forked")
reader = cohort.MessageQueue.open(writer.handle, "the reader")
writer.enqueue(b"in view")
writer.enqueue(b"next")
def refused(call):
    try:
        call()
    except cohort.FailedPrecondition as error:
        return "forked" in str(error)
with reader.dequeue_view() as view:
    child = os.fork()
if child == 0:
    assert refused(reader.dequeue) and refused(writer.readers)
    assert refused(lambda: writer.enqueue(b"")) and refused(lambda: reader.shutdown("no"))
    reader.close()
    sys.exit(3)  # ends the interpreter, which closes open queues
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert reader.dequeue() == b"next"
writer.enqueue(b"after the child")
assert reader.dequeue() == b"after the child"
assert not writer.departures()
sys.exit(4)
'''


def test_forked_child_neither_uses_nor_ends_the_queue():
    with rank_process(FORKED) as process:
        assert process.wait(LONG) == 4
