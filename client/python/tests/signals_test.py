"""Signals, forks and the end of the interpreter, in processes of their own."""

import contextlib
import signal
import subprocess

import cohort
from testing.coordinator import LONG, rank_process
from testing.fixtures import address_fixture

WAITING = '''
import signal, sys
import cohort
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
address, handler = sys.argv[1:]
if handler == "raises":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
elif handler == "returns":
    signal.signal(signal.SIGTERM, lambda *_: None)
store = cohort.Store(address)
store.put("here", b"")
try:
    print("ready", flush=True)
    store.get("never", wait=1000, timeout=1000)
except cohort.Cancelled as error:
    print("cancelled:", error, flush=True)
except KeyboardInterrupt:
    store.put("here", b"")
    print("interrupted", flush=True)
'''

TWO_RANKS = '''
import signal, sys
import numpy
import cohort
signal.signal(signal.SIGINT, signal.default_int_handler)
address, rank = sys.argv[1], int(sys.argv[2])
group = cohort.Group("pair", rank=rank, world_size=2, address=address)
group.all_reduce(numpy.ones(4))
try:
    print("ready", flush=True)
    if rank == 0:
        while True:
            group.all_reduce(numpy.ones(4))
    else:
        sys.stdin.readline()
        group.all_reduce(numpy.ones(4))
except KeyboardInterrupt:
    print("interrupted", flush=True)
except cohort.Aborted as error:
    print("aborted:", error, flush=True)
'''


_address = address_fixture()


def test_keyboard_interrupt_ends_a_wait(address):
    with rank_process(WAITING, address, 'none') as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.wait(LONG) == 0


def test_handler_of_sigterm_runs_at_once(address):
    with rank_process(WAITING, address, 'raises') as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 7


def test_call_is_cancelled_if_the_handler_returns(address):
    with rank_process(WAITING, address, 'returns') as process:
        assert process.stdout.readline() == 'ready\n'
        # A handler that returns before the call begins does not end it.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert process.stdout.read() == 'cancelled: this process got SIGTERM\n'
        assert process.returncode == 0


NESTED = '''
import os, signal, sys
import cohort
store = cohort.Store(sys.argv[1])
def handler(*_):
    store.put("handled", b"")  # a call of its own, while the other one waits
signal.signal(signal.SIGTERM, handler)
signal.signal(signal.SIGINT, signal.default_int_handler)
store.put("here", b"")
try:
    print("ready", flush=True)
    while True:
        try:
            store.get("never", wait=1000, timeout=1000)
        except cohort.Cancelled:
            print("cancelled", flush=True)
except KeyboardInterrupt:
    print("interrupted", store.get("handled"), flush=True)
'''


def test_handler_may_make_calls(address):
    with rank_process(NESTED, address) as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGTERM)
        # A signal before the call runs the handler, and does not end the call.
        with cohort.Store(address) as store:
            assert store.get('handled', wait=LONG) == b''
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().splitlines()[-1] == "interrupted b''"
        assert process.wait(LONG) == 0


def test_keyboard_interrupt_in_a_collective_names_the_rank_to_the_others(address):
    with rank_process(TWO_RANKS, address, 0) as first, rank_process(TWO_RANKS, address, 1) as other:
        assert first.stdout.readline() == 'ready\n'
        assert other.stdout.readline() == 'ready\n'
        first.send_signal(signal.SIGINT)
        assert first.stdout.readline() == 'interrupted\n'
        other.stdin.write('\n')
        other.stdin.flush()
        line = other.stdout.readline()
        # Between two calls, rank 0 has no collective to abort: it leaves.
        assert line.startswith('aborted:') and 'rank 0' in line
        assert 'SIGINT' in line or 'left' in line
        assert other.wait(LONG) == 0


REJOINING = '''
import signal, sys
import cohort
signal.signal(signal.SIGINT, signal.default_int_handler)
group = cohort.Group("rejoin", rank=0, world_size=2, address=sys.argv[1])
group.abort("again")
try:
    print("ready", flush=True)
    group.rejoin(1000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
'''

PEER = '''
import sys
import cohort
group = cohort.Group("rejoin", rank=1, world_size=2, address=sys.argv[1])
sys.stdin.readline()
'''


def test_keyboard_interrupt_ends_a_rejoin(address):
    with rank_process(PEER, address), rank_process(REJOINING, address) as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.wait(LONG) == 0


FOREIGN = '''
import ctypes, signal, sys
import cohort
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None)
libc = ctypes.CDLL(None)
libc.signal.restype = ctypes.pythonapi.PyOS_getsig.restype = ctypes.c_void_p
libc.signal(signal.SIGTERM, handler)
before = ctypes.pythonapi.PyOS_getsig(signal.SIGTERM)
store = cohort.Store(sys.argv[1])
store.put("here", b"")
print(ctypes.pythonapi.PyOS_getsig(signal.SIGTERM) == before, flush=True)
'''


def test_handlers_of_other_libraries_stay(address):
    with rank_process(FOREIGN, address) as process:
        assert process.stdout.readline() == 'True\n'
        assert process.wait(LONG) == 0


JOINING = '''
import signal, sys
import cohort
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    cohort.ProcessGroup("never", rank=0, world_size=2, address=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    with cohort.ProcessGroup("never", rank=0, world_size=1, address=sys.argv[1]) as group:
        print(group.size, flush=True)
'''


def test_keyboard_interrupt_while_joining_leaves_no_member_behind(address):
    with rank_process(JOINING, address) as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.stdout.readline() == '1\n'
        assert process.wait(LONG) == 0


FORKED = '''
import os, sys
import cohort
group = cohort.ProcessGroup("forked", rank=0, world_size=1, address=sys.argv[1])
child = os.fork()
if child == 0:
    try:
        group.barrier()
    except cohort.FailedPrecondition as error:
        os._exit(3 if "forked" in str(error) else 4)
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
child = os.fork()
if child == 0:
    sys.exit(6)  # ends the interpreter, which closes open objects
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
group.barrier()
'''


def test_forked_child_gets_an_error(address):
    with rank_process(FORKED, address) as process:
        assert process.stdout.readline() == '3\n'
        assert process.stdout.readline() == '6\n'
        assert process.wait(LONG) == 0


FORKED_WITH_A_STORE = '''
import os, sys
import cohort
store = cohort.Store(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        store.get("key")
    except cohort.FailedPrecondition as error:
        sys.exit(3)
    sys.exit(5)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
'''


def test_store_is_not_used_in_a_forked_child(address):
    with rank_process(FORKED_WITH_A_STORE, address) as process:
        assert process.wait(LONG) == 3


FORKED_BEFORE_USE = '''
import os, sys
import cohort
child = os.fork()
with cohort.ProcessGroup(sys.argv[2], rank=int(child == 0), world_size=2,
                         address=sys.argv[1], timeout=60, join_timeout=60) as group:
    group.barrier()
if child == 0:
    sys.exit(6)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
'''


def test_process_may_be_forked_after_the_import(address):
    with rank_process(FORKED_BEFORE_USE, address, 'forked') as process:
        assert process.wait(LONG) == 6


LEFT_OPEN = '''
import sys
import numpy
import cohort
group = cohort.Group("open", rank=0, world_size=1, address=sys.argv[1])
call = group.all_reduce(numpy.ones(3), wait=False)
'''


def test_end_of_the_interpreter_leaves_open_groups(address):
    with rank_process(LEFT_OPEN, address) as process:
        assert process.wait(LONG) == 0
    # The rank is free at once.
    with rank_process(LEFT_OPEN, address) as process:
        assert process.wait(LONG) == 0
