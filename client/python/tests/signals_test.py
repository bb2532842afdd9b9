"""Handlers of signals that run in the middle of a call, in processes of their own."""

import signal
import subprocess

import pytest

import cohort
from testing.coordinator import LONG, eventually, rank_process
from testing.fixtures import address_fixture

_address = address_fixture()

# Calls one method, which blocks until the test lets it go. Argument 3 says how the handler ends.
WAITING = '''
import faulthandler, os, signal, sys
import numpy
import cohort
address, call, ending = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
store = cohort.Store(address)
name = "waits-" + call + "-" + ending

def handler(number, _):
    store.put("handled/" + name, str(number))  # a call of its own, while the other one waits
    if ending == "raises":
        sys.exit(7)

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1):
    if ending != "interrupted" or number != signal.SIGINT:
        signal.signal(number, handler)
if ending == "chained":
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    faulthandler.register(signal.SIGTERM, file=open(os.devnull, "w"), chain=True)
if call in ("barrier", "pending", "receive", "receive_object", "attached"):
    group = cohort.Group(name, rank=0, world_size=2, address=address, timeout=60)
if call in ("process_group", "send"):
    members = cohort.ProcessGroup(name, rank=0, world_size=2, address=address, timeout=60)
if call == "queue":
    queue = cohort.MessageQueue.create_external(name, block_bytes=1 << 16, blocks=1, timeout=60)
    store.put(name, queue.handle)
one = numpy.ones(4)
if ending == "set late":  # after the module has looked at the handlers for the first time
    signal.signal(signal.SIGTERM, handler)
try:
    print("ready", flush=True)
    if call == "get":
        assert store.get(name, wait=60, timeout=60) == b"go"
    elif call == "pop":
        assert store.queue_pop(name, wait=60, timeout=60) == b"go"
    elif call == "join":
        cohort.Group(name, rank=0, world_size=2, address=address)
    elif call == "barrier":
        assert group.all_reduce(one).tolist() == [2] * 4
    elif call == "pending":
        assert group.all_reduce(one, wait=False).wait().tolist() == [2] * 4
    elif call == "receive":
        assert group.receive(one, 1).tolist() == [1] * 4
    elif call == "receive_object":
        assert group.receive_object(1) == b"go"
    elif call == "process_group":
        members.barrier()
    elif call == "queue":
        queue.await_readers(1)
        queue.enqueue(b"go")
    print("done", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
'''

PEER = '''
import sys
import numpy
import cohort
address, call, ending = sys.argv[1:]
name = "waits-" + call + "-" + ending
one = numpy.ones(4)
options = dict(rank=1, world_size=2, address=address, timeout=60)
group = members = None
if call in ("barrier", "pending", "receive", "receive_object"):
    group = cohort.Group(name, **options)
if call == "process_group":
    members = cohort.ProcessGroup(name, **options)
sys.stdin.readline()
try:
    if call in ("get",):
        cohort.Store(address).put(name, b"go")
    elif call == "pop":
        cohort.Store(address).queue_push(name, b"go")
    elif call == "join":
        group = cohort.Group(name, **options)
    elif call in ("barrier", "pending"):
        group.all_reduce(one)
    elif call == "receive":
        group.send(one, 0)
    elif call == "receive_object":
        group.send_object(b"go", 0)
    elif call == "process_group":
        members.barrier()
    elif call == "queue":
        handle = cohort.Store(address).get(name)
        reader = cohort.MessageQueue.open(handle, "reader", timeout=60)
        assert reader.dequeue() == b"go"  # it stays until the writer has seen it
    print("done", flush=True)
except cohort.Error as error:
    print("error:", error, flush=True)
'''

CALLS = ('get', 'pop', 'join', 'barrier', 'pending', 'receive', 'receive_object', 'process_group',
         'queue')
# Those of all ranks: an exception of one rank is an error of the others.
SHARED = ('barrier', 'pending', 'receive')


def _await_handled(address, call, ending, number):
    with cohort.Store(address) as store:
        key = f'handled/waits-{call}-{ending}'
        assert store.get(key, wait=LONG) == str(int(number)).encode()
        store.delete(key)


@pytest.mark.parametrize('call', CALLS)
def test_a_handler_that_returns_runs_at_once_and_the_call_continues(address, call):
    arguments = (address, call, 'returns')
    with rank_process(WAITING, *arguments) as process, rank_process(PEER, *arguments) as peer:
        assert process.stdout.readline() == 'ready\n'
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1):
            process.send_signal(number)
            _await_handled(*arguments, number)
        print(file=peer.stdin, flush=True)
        assert process.stdout.readline() == 'done\n'
        assert process.wait(LONG) == 0
        assert peer.stdout.readline() == 'done\n'


@pytest.mark.parametrize('call', CALLS)
def test_a_handler_that_raises_ends_the_call_with_its_exception(address, call):
    arguments = (address, call, 'raises')
    with rank_process(WAITING, *arguments) as process, rank_process(PEER, *arguments) as peer:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 7
        if call in SHARED:
            print(file=peer.stdin, flush=True)
            line = peer.stdout.readline()
            assert line.startswith('error: ') and 'rank 0' in line, line


@pytest.mark.parametrize('call', ['join', 'barrier', 'queue'])
def test_keyboard_interrupt_ends_a_call(address, call):
    with rank_process(WAITING, address, call, 'interrupted') as process, \
            rank_process(PEER, address, call, 'interrupted'):
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.wait(LONG) == 0


@pytest.mark.parametrize('ending', ['set late', 'chained'])
def test_a_handler_may_be_set_between_calls_or_by_faulthandler(address, ending):
    arguments = (address, 'get', ending)
    with rank_process(WAITING, *arguments) as process, rank_process(PEER, *arguments) as peer:
        assert process.stdout.readline() == 'ready\n'
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            _await_handled(*arguments, signal.SIGTERM)
        print(file=peer.stdin, flush=True)
        assert process.stdout.readline() == 'done\n'
        assert process.wait(LONG) == 0


PREEMPTED = '''
import signal, sys
import numpy
import cohort
address, rank = sys.argv[1], int(sys.argv[2])
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
group = cohort.Group("preempted", rank=rank, world_size=2, address=address, timeout=60)
steps = 0
print("ready", flush=True)
while True:
    if rank == 1:
        sys.stdin.readline()  # late for each step
    steps += 1
    if group.all_reduce(numpy.array([len(stop)]), op="max")[0]:
        break
print("stopped after", steps, flush=True)
'''


def test_ranks_that_get_sigterm_stop_after_the_same_step(address):
    with rank_process(PREEMPTED, address, 0) as first, rank_process(PREEMPTED, address, 1) as late:
        assert first.stdout.readline() == late.stdout.readline() == 'ready\n'
        for process in (late, first):
            process.send_signal(signal.SIGTERM)
        for _ in range(3):
            print(file=late.stdin)
        late.stdin.flush()
        line = late.stdout.readline()
        assert line.startswith('stopped after') and first.stdout.readline() == line
        assert first.wait(LONG) == late.wait(LONG) == 0


WITHIN = '''
import signal, sys
import numpy
import cohort
group = cohort.Group("within", rank=0, world_size=2, address=sys.argv[1], timeout=60)

def handler(*_):
    try:
        group.barrier()
    except cohort.FailedPrecondition as error:
        print("refused:", error, flush=True)

signal.signal(signal.SIGUSR1, handler)
print("ready", flush=True)
print(group.all_reduce(numpy.ones(1))[0], flush=True)
'''

BESIDE = '''
import sys
import numpy
import cohort
group = cohort.Group("within", rank=1, world_size=2, address=sys.argv[1], timeout=60)
sys.stdin.readline()
group.all_reduce(numpy.ones(1))
'''


def test_a_handler_may_not_call_the_group_in_the_middle_of_its_call(address):
    with rank_process(WITHIN, address) as process, rank_process(BESIDE, address) as other:
        assert process.stdout.readline() == 'ready\n'
        command = ['cohort', 'who-is-missing', 'within', '--coordinator', address]
        eventually(lambda: 'all_reduce' in subprocess.run(
            command, check=False, capture_output=True, text=True).stdout)
        process.send_signal(signal.SIGUSR1)
        line = process.stdout.readline()
        assert line.startswith('refused:') and 'group within' in line and 'flag' in line
        print(file=other.stdin, flush=True)
        assert process.stdout.readline() == '2.0\n'
        assert process.wait(LONG) == 0


IN_ASYNCIO = '''
import asyncio, signal, sys
import cohort

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    store = cohort.Store(sys.argv[1])
    print("ready", flush=True)
    store.get("asyncio", wait=60, timeout=60)  # blocks the loop
    await asyncio.wait_for(stop.wait(), 60)
    print("stopped", flush=True)

asyncio.run(main())
'''


def test_a_handler_of_asyncio_runs_after_the_call(address):
    with rank_process(IN_ASYNCIO, address) as process, cohort.Store(address) as store:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGTERM)
        store.put('asyncio', b'')
        assert process.stdout.readline() == 'stopped\n'
        assert process.wait(LONG) == 0


FOREIGN = '''
import ctypes, signal, sys
import cohort
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None)
libc = ctypes.CDLL(None)
libc.signal.restype = ctypes.pythonapi.PyOS_getsig.restype = ctypes.c_void_p
libc.signal(signal.SIGTERM, handler)
before = [ctypes.pythonapi.PyOS_getsig(number) for number in (signal.SIGTERM, signal.SIGINT)]
store = cohort.Store(sys.argv[1])
store.put("here", b"")
print([ctypes.pythonapi.PyOS_getsig(number) for number in (signal.SIGTERM, signal.SIGINT)]
      == before, flush=True)
'''


def test_handlers_stay_as_they_are(address):
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

REJOINED = '''
import sys
import cohort
group = cohort.Group("rejoin", rank=1, world_size=2, address=sys.argv[1])
sys.stdin.readline()
'''


def test_keyboard_interrupt_ends_a_rejoin(address):
    with rank_process(REJOINED, address), rank_process(REJOINING, address) as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.wait(LONG) == 0
