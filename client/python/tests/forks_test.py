"""Children of fork(): they take no part in what their parent does, and do not keep it alive."""

import contextlib
import os
import signal
import time

import pytest

import cohort
from testing.coordinator import LONG, rank_process, worker
from testing.fixtures import address_fixture

_address = address_fixture()

MEMORY = '''
import gc, os, sys
import cohort
group = cohort.Group("memory", rank=0, world_size=1, address=sys.argv[1])
kept = [group.empty(64 << 20, "uint8") for _ in range(5)]  # more than the heap keeps
for array in kept:
    array[::4096] = 7

def check():
    return all((array[::4096] == 7).all() for array in kept)

def child_deletes():
    global array
    del array
    kept.clear()
    gc.collect()
    os._exit(0)

def child_exits():
    sys.exit(0)  # which clears the globals

def child_collects():
    cycle = [kept[:]]
    cycle.append(cycle)
    kept.clear()
    del cycle
    gc.collect()
    os._exit(0)

def child_releases_a_tensor():
    import numpy
    views = [numpy.asarray(array) for array in kept]
    kept.clear()
    views.clear()
    os._exit(0)

for body in (child_deletes, child_exits, child_collects, child_releases_a_tensor):
    child = os.fork()
    if child == 0:
        body()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(body.__name__, status, check(), flush=True)
group.all_reduce(kept[0], out=kept[0])
print(check(), flush=True)
'''


def test_a_child_leaves_its_parents_memory_as_it_is(address):
    with rank_process(MEMORY, address) as process:
        lines = process.stdout.read().split('\n')
        assert lines == ['child_deletes 0 True', 'child_exits 0 True', 'child_collects 0 True',
                         'child_releases_a_tensor 0 True', 'True', '']
        assert process.wait(LONG) == 0


# Each call, and each fact, in a child that is forked while another thread is in a call.
CALLS = '''
import os, sys, threading, time
import numpy
import cohort
address = sys.argv[1]
group = cohort.Group("calls", rank=0, world_size=2, address=address, timeout=60)
other = cohort.Group("alone", rank=0, world_size=1, address=address)
members = cohort.ProcessGroup("members", rank=0, world_size=1, address=address)
store = cohort.Store(address)
watch = store.watch("calls/")
events = cohort.watch_group("calls", address=address)
queue = cohort.MessageQueue.create_external("calls", block_bytes=1 << 16, blocks=1)
reader = cohort.MessageQueue.open(queue.handle, "reader", timeout=60)
one = numpy.ones(4)
pending = group.all_reduce(numpy.ones(4), wait=False)
waiting = threading.Thread(target=lambda: store.get("calls/never", wait=60, timeout=60), daemon=True)
waiting.start()
CALLS = {
    "all_reduce": lambda: other.all_reduce(one),
    "all_gather_v": lambda: other.all_gather_v(one, [4]),
    "barrier": lambda: other.barrier(),
    "start": lambda: other.all_reduce(one, wait=False),
    "send": lambda: other.send(one, 0),
    "await_message": lambda: other.await_message([0], timeout=0),
    "empty": lambda: other.empty(4),
    "send_object": lambda: other.send_object(b"", 0),
    "all_gather_objects": lambda: other.all_gather_objects(b""),
    "rejoin": lambda: other.rejoin(1),
    "abort": lambda: other.abort("no"),
    "stats": lambda: other.stats(),
    "paths": lambda: other.paths,
    "test": pending.test,
    "wait": lambda: pending.wait(1),
    "cancel": pending.cancel,
    "members.barrier": members.barrier,
    "members.send": lambda: members.send(b"", 0),
    "members.report_progress": lambda: members.report_progress(1, "step"),
    "members.describe": members.describe,
    "members.leave": members.leave,
    "put": lambda: store.put("calls/x", b""),
    "get": lambda: store.get("calls/x"),
    "queue_pop": lambda: store.queue_pop("calls", wait=1),
    "watch": lambda: next(watch),
    "watch_group": lambda: next(events),
    "enqueue": lambda: queue.enqueue(b"x"),
    "dequeue": lambda: reader.dequeue(timeout=1),
    "join": lambda: cohort.Group("new", rank=0, world_size=1, address=address),
    "join members": lambda: cohort.ProcessGroup("new", rank=0, world_size=1, address=address),
    "connect": lambda: cohort.Store(address).get("x"),
}
CLOSINGS = [group.close, other.close, members.close, store.close, watch.close, events.close,
            queue.close, reader.close]
child = os.fork()
if child == 0:
    import faulthandler
    faulthandler.dump_traceback_later(30, exit=True)
    for name, call in CALLS.items():
        try:
            call()
            print(name, "returned", flush=True)
        except cohort.FailedPrecondition as error:
            if "forked" not in str(error):
                print(name, "raised", error, flush=True)
        except BaseException as error:
            print(name, "raised", repr(error), flush=True)
    for close in CLOSINGS:
        close()
    print("closed", flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
other.barrier()
members.barrier()
queue.enqueue(b"x")
print(reader.dequeue(timeout=60), flush=True)
store.put("calls/x", b"")
print(next(watch).key, flush=True)
group.abort("enough")
'''

PARTNER = '''
import sys
import cohort
group = cohort.Group("calls", rank=1, world_size=2, address=sys.argv[1], timeout=60)
sys.stdin.readline()
'''


def test_each_call_in_a_child_is_refused_and_the_parent_is_unharmed(address):
    with rank_process(CALLS, address) as process, rank_process(PARTNER, address):
        assert process.stdout.read().split('\n') == ['closed', '3', "b'x'", 'calls/x', '']
        assert process.wait(LONG) == 0


# Rank 1 forks a child that lives on. It says its child's number, and waits.
FORKING = '''
import os, signal, sys
import numpy
import cohort
address, name, form, host = sys.argv[1:5]
options = dict(host_identity=host) if form == "local" else dict(worker=sys.argv[5],
                                                                attached=form == "attached")
group = cohort.Group(name, rank=1, world_size=2, address=address, timeout=60, **options)
group.all_reduce(numpy.ones(1))
child = os.fork()
if child == 0:
    signal.pause()
    os._exit(0)
print(child, flush=True)
sys.stdin.readline()
'''

WAITING = '''
import sys, time
import numpy
import cohort
address, name, form, host = sys.argv[1:5]
options = dict(host_identity=host) if form == "local" else dict(worker=sys.argv[5],
                                                                attached=form == "attached")
group = cohort.Group(name, rank=0, world_size=2, address=address, timeout=60, **options)
group.all_reduce(numpy.ones(1))
print("ready", flush=True)
try:
    group.all_reduce(numpy.ones(1))
except cohort.Error as error:
    print(time.time(), error, flush=True)
'''


def _expect_named(first, forking, culprit):
    """`forking` is killed in an all_reduce of both; `first` names it within a second."""
    child = int(forking.stdout.readline())
    try:
        assert first.stdout.readline() == 'ready\n'
        killed = time.time()
        forking.kill()
        at, text = first.stdout.readline().split(' ', 1)
        assert culprit in text
        # A second is the promise; a loaded machine may need more.
        assert float(at) - killed < 5, text
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize('host', ['', 'another machine'])
def test_the_death_of_a_parent_is_named_though_its_child_lives(address, host):
    name = f'forking{host and 1}'
    with rank_process(WAITING, address, name, 'local', '') as first, \
            rank_process(FORKING, address, name, 'local', host) as forking:
        _expect_named(first, forking, 'rank 1')


@pytest.mark.parametrize('form', ['attached', 'remote'])
def test_the_death_of_a_client_of_a_worker_is_named_though_its_child_lives(address, form):
    with worker(address) as (daemon, _):
        with rank_process(WAITING, address, form, form, '', daemon) as first, \
                rank_process(FORKING, address, form, form, '', daemon) as forking:
            _expect_named(first, forking, 'rank 1')


MEMBER = '''
import os, signal, sys
import cohort
members = cohort.ProcessGroup("member", rank=0, world_size=1, address=sys.argv[1], lease=300)
child = os.fork()
if child == 0:
    signal.pause()
    os._exit(0)
print(child, flush=True)
sys.stdin.readline()
'''


def test_the_coordinator_hears_of_the_death_though_a_child_lives(address):
    with rank_process(MEMBER, address) as process:
        child = int(process.stdout.readline())
        try:
            with contextlib.closing(cohort.watch_group('member', address=address,
                                                       timeout=LONG)) as events:
                events.open()
                process.kill()
                assert any(event.kind == 'lost' for event in events)
        finally:
            os.kill(child, signal.SIGKILL)
