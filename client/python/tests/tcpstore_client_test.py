"""PyTorch's own TCPStore clients, of each version at hand, on the coordinator's port."""

import contextlib
import os
import subprocess

import pytest

from testing.coordinator import LONG, tcp_coordinator

# Where a process of the test finds torch.
TORCH_FOLDERS = {'of Debian': '/usr/lib/python3/dist-packages',
                 'of COHORT_TORCH': os.environ.get('COHORT_TORCH', '')}

# The client's methods, with the results of PyTorch's own server. Older versions lack some.
METHODS = '''
import datetime, sys
from torch.distributed import TCPStore
host, port = sys.argv[1].rsplit(":", 1)
soon = datetime.timedelta(milliseconds=200)

def fails(body, text):
    try:
        body()
    except Exception as error:
        assert text in str(error), error
        return
    raise AssertionError("no error: " + text)

def client(wait_for_workers=False):
    return TCPStore(host, int(port), 2, False, datetime.timedelta(seconds=20),
                    wait_for_workers=wait_for_workers)

store, other = client(True), client()
store.set("k", "value")
assert store.get("k") == other.get("k") == b"value"
store.set("empty", "")
assert store.get("empty") == b""
assert store.add("n", 5) == 5 and other.add("n", -7) == -2 and store.get("n") == b"-2"
store.set("m", "40")
assert store.add("m", 2) == 42
store.wait(["k", "n"])
assert store.compare_set("c", "", "first") == b"first"
assert store.compare_set("absent", "expected", "new") == b"expected"
assert store.compare_set("c", "other", "second") == b"first"
assert store.compare_set("c", "first", "second") == b"second"
assert store.delete_key("k") and not store.delete_key("k")
keys = store.num_keys()
store.set("large", b"x" * 1000000)
assert other.get("large") == b"x" * 1000000 and store.num_keys() == keys + 1
fails(lambda: other.wait(["never"], soon), "imeout")
if hasattr(store, "check"):
    assert store.check(["c", "n"]) and not store.check(["c", "absent"])
    assert other.add("n", 1) == -1  # the wait that timed out left nothing behind
if hasattr(store, "append"):
    store.append("text", "a")
    store.append("text", "b")
    store.multi_set(["x", "y"], ["1", "2"])
    assert store.multi_get(["text", "y", "x"]) == [b"ab", b"2", b"1"]
if hasattr(store, "queue_push"):
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2 and store.check(["q"])
    assert store.queue_pop("q") == b"1" and other.queue_pop("q") == b"2"
    fails(lambda: store.queue_pop("q", False), "empty")
    assert not store.check(["q"])
if hasattr(store, "list_keys"):
    assert set(store.list_keys()) >= {"c", "m", "n", "x", "y", "text"}
if hasattr(store, "barrier"):
    store.barrier("alone", 1)
if hasattr(store, "clone"):
    store.clone().set("cloned", "1")
    assert other.get("cloned") == b"1"
print("done")
'''

# A job that names the coordinator by MASTER_ADDR and MASTER_PORT alone.
JOB = '''
import datetime, os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="env://", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.ones(4) * (rank + 1)
dist.all_reduce(x)
assert x.tolist() == [size * (size + 1) / 2] * 4, x
pairs = [dist.new_group([0, 1]), dist.new_group([0, size - 1])]
dist.barrier()
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": each} for each in range(size)]
dist.barrier()
dist.destroy_process_group()
print("done")
'''

SETS_AND_SLEEPS = '''
import datetime, sys
from torch.distributed import TCPStore
host, port = sys.argv[1].rsplit(":", 1)
store = TCPStore(host, int(port), None, False, datetime.timedelta(seconds=20))
store.set(sys.argv[2], "set")
print("set", flush=True)
sys.stdin.read()
'''

WAITS = '''
import datetime, sys
from torch.distributed import TCPStore
host, port = sys.argv[1].rsplit(":", 1)
store = TCPStore(host, int(port), None, False, datetime.timedelta(seconds=50))
print("waits", flush=True)
store.wait(["late"])
print("done", flush=True)
'''


@pytest.fixture(scope='module', name='addresses')
def _addresses():
    """Two addresses of one coordinator: each port is a store of its own."""
    with tcp_coordinator('127.0.0.1:0', '127.0.0.1:0') as addresses:
        yield addresses


@pytest.fixture(name='torch', params=list(TORCH_FOLDERS))
def _torch(request):
    folder = TORCH_FOLDERS[request.param]
    if not os.path.isdir(os.path.join(folder, 'torch')):
        pytest.skip(f'there is no PyTorch {request.param}')
    return folder


@contextlib.contextmanager
def process_of(torch, program, *arguments, **environment):
    """Runs a program with this PyTorch, and yields its process."""
    environment = {**os.environ, 'PYTHONPATH': torch, 'GLOO_SOCKET_IFNAME': 'lo', **environment}
    with subprocess.Popen(['/usr/bin/python3', '-W', 'ignore', '-c', program, *arguments],
                          env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_each_method_does_what_it_does_with_pytorchs_server(addresses, torch):
    with process_of(torch, METHODS, addresses[0]) as process:
        assert process.communicate(timeout=LONG)[0] == 'done\n'


@pytest.mark.parametrize('size', [2, 4])
def test_a_job_names_the_coordinator_as_its_master(addresses, torch, size):
    host, port = addresses[0].rsplit(':', 1)
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(process_of(
            torch, JOB, MASTER_ADDR=host, MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(size),
            TORCHELASTIC_USE_AGENT_STORE='True', TORCHELASTIC_RESTART_COUNT='0'))
                 for rank in range(size)]
        outputs = [rank.communicate(timeout=LONG)[0] for rank in ranks]
        assert outputs == ['done\n'] * size


def test_clients_of_other_ports_and_killed_clients_change_nothing(addresses, torch):
    with process_of(torch, WAITS, addresses[0]) as waiter, \
            process_of(torch, SETS_AND_SLEEPS, addresses[0], 'other') as neighbour:
        assert waiter.stdout.readline() == 'waits\n'
        assert neighbour.stdout.readline() == 'set\n'
        with process_of(torch, SETS_AND_SLEEPS, addresses[1], 'late') as stranger:
            assert stranger.stdout.readline() == 'set\n'
        neighbour.kill()
        neighbour.wait(LONG)
        assert waiter.poll() is None
        with process_of(torch, SETS_AND_SLEEPS, addresses[0], 'late') as setter:
            assert setter.stdout.readline() == 'set\n'
            assert waiter.communicate(timeout=LONG)[0] == 'done\n'
