"""Ends of processes and of groups: bounded, quiet, and with the process's own exit status."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import cohort
from testing.coordinator import LONG, rank_process, restartable_coordinator, run_ranks
from testing.fixtures import address_fixture, joined_groups, run

_address = address_fixture()

# The promise is two seconds; a loaded machine may need more. Timeouts are 300 s.
BOUND = 8

# Rank 0 makes calls that rank 1 does not, and ends. Argument 2 says how.
ENDING = '''
import signal, sys, threading, time
import numpy
import cohort
address, how = sys.argv[1:]
groups = [cohort.Group(f"ends-{how}-{i}", rank=0, world_size=2, address=address) for i in range(4)]
group = groups[0]
members = cohort.ProcessGroup(f"members-{how}", rank=0, world_size=1, address=address)
store = cohort.Store(address)
call = group.all_reduce(numpy.ones(3), wait=False)
signal.signal(signal.SIGINT, signal.default_int_handler)

def poll():
    while True:
        store.queue_pop("nothing", wait=0.01)

def receive():
    groups[1].receive_object(1)

def barrier():
    groups[2].barrier()

for body in (poll, poll, receive, barrier):
    threading.Thread(target=body, daemon=True).start()
print("ready", flush=True)
if how == "exits":
    sys.exit(5)
elif how == "raises":
    raise ValueError("bad weights")
elif how == "interrupted":
    sys.stdin.readline()
elif how == "leaves":
    with group:
        raise ValueError("bad weights")
elif how == "deletes":
    del group, groups, call
elif how == "aborted":
    group.abort("enough")
    group.close()
'''

PEER = '''
import sys
import cohort
address, how = sys.argv[1:]
groups = [cohort.Group(f"ends-{how}-{i}", rank=1, world_size=2, address=address) for i in range(4)]
print("ready", flush=True)
try:
    groups[0].receive_object(0)
except cohort.Error as error:
    print(error, flush=True)
'''


@pytest.mark.parametrize('how, status', [('returns', 0), ('exits', 5), ('raises', 1),
                                         ('interrupted', 130), ('leaves', 1), ('deletes', 0),
                                         ('aborted', 0)])
def test_a_process_with_pending_calls_ends_soon_and_with_its_own_status(address, how, status):
    command = [sys.executable, '-u', '-c', ENDING, address, how]
    with rank_process(PEER, address, how) as peer, subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True) as process:
        assert process.stdout.readline() == 'ready\n'
        assert peer.stdout.readline() == 'ready\n'
        begun = time.monotonic()
        if how == 'interrupted':
            process.send_signal(signal.SIGINT)
        # 128 + SIGINT, or the signal itself.
        assert process.wait(LONG) in ((status, -signal.SIGINT) if status == 130 else (status,))
        assert time.monotonic() - begun < BOUND
        assert 'terminate called' not in process.stderr.read()
        line = peer.stdout.readline()
        assert 'rank 0' in line, line
        if how in ('raises', 'leaves'):
            assert 'ValueError: bad weights' in line, line


DAEMON_THREADS = '''
import sys, threading
import cohort
store = cohort.Store(sys.argv[1])
def poll():
    while True:
        store.queue_pop("q", wait=0.001)
def watch():
    for _ in store.watch("w/"):
        pass
for body in [poll] * 20 + [watch] * 4:
    threading.Thread(target=body, daemon=True).start()
store.put("w/x", b"")
sys.exit(4)
'''


def test_daemon_threads_that_come_back_while_the_process_ends_do_not_abort_it(address):
    for _ in range(10):
        process = subprocess.run([sys.executable, '-c', DAEMON_THREADS, address], timeout=LONG,
                                 capture_output=True, text=True, check=False)
        assert (process.returncode, process.stderr) == (4, '')


MANY = '''
import sys
import cohort
groups = [cohort.Group(f"many-{i}", rank=0, world_size=1, address=sys.argv[1]) for i in range(12)]
members = [cohort.ProcessGroup(f"m-{i}", rank=0, world_size=1, address=sys.argv[1]) for i in range(12)]
print("ready", flush=True)
sys.stdin.readline()
'''


def test_many_groups_end_at_once_also_without_their_coordinator():
    with restartable_coordinator() as running:
        with rank_process(MANY, running.address) as process:
            assert process.stdout.readline() == 'ready\n'
            running.kill()
            begun = time.monotonic()
            print(file=process.stdin, flush=True)
            assert process.wait(LONG) == 0
            assert time.monotonic() - begun < BOUND


ASYNCIO_WITHOUT = '''
import asyncio, sys
import cohort.aio
async def main():
    async with cohort.aio.ProcessGroup("aio", rank=0, world_size=1, address=sys.argv[1]):
        print("ready", flush=True)
        sys.stdin.readline()
asyncio.run(main())
'''


def test_a_group_of_asyncio_ends_without_its_coordinator():
    with restartable_coordinator() as running:
        with rank_process(ASYNCIO_WITHOUT, running.address) as process:
            assert process.stdout.readline() == 'ready\n'
            running.kill()
            begun = time.monotonic()
            print(file=process.stdin, flush=True)
            assert process.wait(LONG) == 0
            assert time.monotonic() - begun < BOUND


def _in_thread(call):
    """Starts call(), and returns a function that waits for its error."""
    errors = []

    def body():
        try:
            call()
            errors.append(None)
        except cohort.Error as error:
            errors.append(error)
    thread = threading.Thread(target=body, daemon=True)
    thread.start()

    def result():
        thread.join(LONG)
        assert errors, 'the call has not ended'
        return errors[0]
    return result


@pytest.mark.parametrize('call', [
    lambda group: group.barrier(),
    lambda group: group.receive(numpy.ones(1), 1),
    lambda group: group.all_reduce(numpy.ones(1), wait=False).wait(),
    lambda group: group.receive_object(1),
    lambda group: group.all_gather_objects(b''),
])
def test_close_ends_the_calls_of_other_threads(address, call):
    with joined_groups('closed', 2, address) as (first, _):
        result = _in_thread(lambda: call(first))
        # A call that has not begun is refused; one that runs ends.
        first.close()
        error = result()
        assert error is not None and ('close' in str(error) or 'closed' in str(error)), error
        first.close()


@pytest.mark.parametrize('call', [lambda group: group.receive(1), lambda group: group.barrier(),
                                  lambda group: group.all_gather(b'')])
def test_close_of_a_process_group_ends_the_calls_of_other_threads_and_leaves(address, call):
    first, second = run_ranks(2, lambda rank: cohort.ProcessGroup(
        'members', rank=rank, world_size=2, address=address))
    result = _in_thread(lambda: call(first))
    first.close()
    assert result() is not None
    second.close()
    # The rank is free at once.
    with cohort.ProcessGroup('members', rank=0, world_size=1, address=address) as again:
        again.barrier()


def test_close_of_a_store_ends_the_calls_of_other_threads(address):
    store = cohort.Store(address)
    result = _in_thread(lambda: store.get('never', wait=300, timeout=300))
    store.close()
    assert 'close' in str(result())


def test_a_blocking_call_takes_its_turn_behind_pending_calls(address):
    # Rank 1 is late by turns, so that the calls of one rank could overtake each other.
    with joined_groups('ordered', 2, address) as groups:
        def body(group, rank):
            for step in range(200):
                first, second = numpy.full(3, float(step)), numpy.full(3, float(1000 + step))
                if (step + rank) % 2:
                    os.sched_yield()
                pending = group.all_reduce(first, out=first, wait=False)
                group.all_reduce(second, out=second)
                pending.wait()
                assert first.tolist() == [2. * step] * 3
                assert second.tolist() == [2. * (1000 + step)] * 3
        threads = [_in_thread(lambda g=group, r=rank: body(g, r))
                   for rank, group in enumerate(groups)]
        assert [result() for result in threads] == [None, None]


def test_a_timeout_covers_the_wait_for_pending_calls(address):
    with joined_groups('late', 2, address) as (first, _):
        pending = first.all_reduce(numpy.ones(1), wait=False)
        begun = time.monotonic()
        with pytest.raises(cohort.DeadlineExceeded):
            first.await_message([1], timeout=0)
        with pytest.raises(cohort.DeadlineExceeded, match='barrier|pending|did not begin'):
            first.barrier(timeout=0.2)
        with pytest.raises(cohort.Aborted, match='rank 0'):
            pending.wait(LONG)
        assert time.monotonic() - begun < BOUND


CLOSEABLES = '''
from cohort import _lifetime

class Closeable:
    def __init__(self, name):
        self.name = name
        _lifetime.close_at_exit(self)

    def close(self):
        print(self.name, flush=True)
        if self.name == "second":
            raise KeyboardInterrupt

kept = [Closeable(name) for name in ("first", "second", "third")]
'''


def test_the_last_object_closes_first_and_an_error_keeps_none_open():
    with rank_process(CLOSEABLES) as process:
        assert process.stdout.read().split() == ['third', 'second', 'first']
        assert process.wait(LONG) == 0


# --- A rank that leaves ends only the calls that need it.

@pytest.mark.parametrize('options', [{}, {'host_identity': True}])
def test_messages_of_other_ranks_go_on_when_a_rank_has_left(address, options):
    name = f'leaves-{len(options)}'
    groups = run_ranks(3, lambda rank: cohort.Group(
        name, rank=rank, world_size=3, address=address, timeout=LONG,
        **{key: f'host-{rank}' for key in options}))
    first, second, third = groups
    first.send(numpy.arange(3.0), 1)
    first.close()
    assert second.receive(numpy.empty(3), 0).tolist() == [0, 1, 2]
    for size in (1, 1 << 20):
        received = run((second, third), lambda group, rank: (
            group.send(numpy.ones(size), 2) if rank == 0 else group.receive(numpy.empty(size), 1)))
        assert (received[1] == 1).all()
    for call in (lambda: second.all_reduce(numpy.ones(3)), second.barrier,
                 lambda: third.broadcast(numpy.ones(3), 2),
                 lambda: second.receive(numpy.empty(3), 0),
                 lambda: third.send(numpy.ones(1 << 20), 0)):
        with pytest.raises(cohort.Aborted, match='rank 0 left the group') as caught:
            call()
        assert caught.value.culprit == 0
    second.send(numpy.ones(3), 2)
    assert third.receive(numpy.empty(3), 1).tolist() == [1, 1, 1]
    for group in (second, third):
        group.close()


def test_an_abort_ends_the_waits_of_others_at_the_coordinator(address):
    with joined_groups('aborts', 2, address) as (first, second):
        def wait(_, rank):
            if rank == 0:
                return first.abort('enough')
            with pytest.raises(cohort.Error, match='enough') as caught:
                second.receive_object(0)
            return caught.value.culprit
        assert run((first, second), wait)[1] == 0
