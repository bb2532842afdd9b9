"""Ends of processes with the backend "cohort": their time does not grow with the groups."""

import time

import pytest

import cohort
from testing.coordinator import LONG, rank_process, restartable_coordinator
from testing.fixtures import address_fixture

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

from cohort.torch.health import Health  # pylint: disable=wrong-import-position

_address = address_fixture()

BEGIN = '''
import atexit, os, sys, time
def tell():
    print(time.monotonic() - begin, flush=True)
atexit.register(tell)   # runs after the functions that are registered later
import torch
import torch.distributed as dist
import cohort.torch
rank = int(sys.argv[2])
dist.init_process_group("cohort", init_method="file://" + sys.argv[3], rank=rank, world_size=2,
                        pg_options=cohort.torch.Options(address=sys.argv[1]))
x = torch.ones(1)

def end():
    global begin
    begin = time.monotonic()
    print("ends", flush=True)
'''

MANY_GROUPS = BEGIN + '''
groups = [dist.new_group() for _ in range(16)]
for group in groups:
    dist.all_reduce(x, group=group)
if rank == 1:
    print("late", flush=True)
    sys.stdin.readline()
end()
'''

ENDS = {
    'destroy': 'dist.destroy_process_group()',
    'return': '',
    'exception': 'raise ValueError("no more data")',
    'pending call': 'work = dist.all_reduce(x, async_op=True)',
    'pending function': 'work = dist.all_gather([x, x], x, async_op=True)',
    'pending receive': 'work = dist.irecv(x, 1)',
    'pending send': 'work = dist.isend(x, 1)',
}


@pytest.mark.parametrize('kind', list(ENDS))
def test_17_groups_with_a_late_rank_end_within_the_time_of_one(address, tmp_path, kind):
    program = MANY_GROUPS + (ENDS[kind] if kind == 'destroy' else f'if rank == 0:\n    '
                             f'{ENDS[kind] or "pass"}\n')
    with rank_process(program, address, 1, tmp_path / 'store') as late, \
            rank_process(program, address, 0, tmp_path / 'store') as first:
        assert late.stdout.readline() == 'late\n'
        assert first.stdout.readline() == 'ends\n'
        assert float(first.stdout.readline()) < 4
        assert first.wait(LONG) == (1 if kind == 'exception' else 0)
        late.communicate('\n', timeout=LONG)
        assert late.returncode == 0


UNEVEN = BEGIN + '''
groups = [dist.new_group() for _ in range(16)]
for _ in range(20):
    for group in groups:
        dist.all_reduce(x, group=group)
end()
for group in groups if rank == 0 else groups[::-1]:
    dist.destroy_process_group(group)
'''


def test_ranks_that_destroy_their_groups_in_different_orders_do_not_wait_for_each(
        address, tmp_path):
    with rank_process(UNEVEN, address, 0, tmp_path / 'store') as first, \
            rank_process(UNEVEN, address, 1, tmp_path / 'store') as second:
        assert first.stdout.readline() == second.stdout.readline() == 'ends\n'
        for each in (first, second):
            assert float(each.stdout.readline()) < 4
            assert each.wait(LONG) == 0


WITHOUT_COORDINATOR = BEGIN + '''
groups = [dist.new_group() for _ in range(4)]
for group in groups:
    work = dist.isend(x, 1 - rank, group=group)
    dist.recv(torch.ones(1), 1 - rank, group=group)
    work.wait()
store = cohort.torch.Store("job", sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
end()
if sys.argv[4] == "destroy":
    dist.destroy_process_group()
'''


@pytest.mark.parametrize('is_killed', [True, False])
@pytest.mark.parametrize('kind', ['destroy', 'return'])
def test_ends_without_the_coordinator(tmp_path, kind, is_killed):
    store = tmp_path / 'store'
    with restartable_coordinator(journal=False) as coordinator, \
            rank_process(WITHOUT_COORDINATOR, coordinator.address, 0, store, kind) as first, \
            rank_process(WITHOUT_COORDINATOR, coordinator.address, 1, store, kind) as second:
        assert first.stdout.readline() == second.stdout.readline() == 'ready\n'
        (coordinator.kill if is_killed else coordinator.pause)()
        for each in (first, second):
            each.stdin.write('\n')
            each.stdin.flush()
        for each in (first, second):
            assert each.stdout.readline() == 'ends\n'
            # destroy_process_group takes two seconds of its own.
            assert float(each.stdout.readline()) < (4 if kind == 'destroy' else 3)
            assert each.wait(LONG) == 0


WITH_A_CALL = BEGIN + '''
import threading
from testing.threads import await_sleep
if rank == 1:
    print("here", flush=True)
    sys.stdin.readline()
    os._exit(0)
print("here", flush=True)
def call():
    try:
        if sys.argv[4] == "blocking":
            dist.all_reduce(x)
        elif sys.argv[4] == "async":
            dist.all_reduce(x, async_op=True).wait()
        elif sys.argv[4] == "function":
            dist.all_gather([x, x], x, async_op=True).wait()
        else:
            dist.recv(x, 1)
        print("no error", flush=True)
    except (cohort.Aborted, cohort.Cancelled) as error:
        print(time.monotonic() - begin, error, flush=True)
thread = threading.Thread(target=call)
thread.start()
await_sleep(os.getpid(), thread.native_id)
begin = time.monotonic()
dist.destroy_process_group()
closed = time.monotonic() - begin
thread.join()
print(closed, flush=True)
'''


@pytest.mark.parametrize('kind, limit', [('blocking', .9), ('async', 1.9), ('function', 1.9),
                                         ('message', 1.9)])
def test_destroy_ends_the_call_of_another_thread(address, tmp_path, kind, limit):
    with rank_process(WITH_A_CALL, address, 0, tmp_path / 'store', kind) as first, \
            rank_process(WITH_A_CALL, address, 1, tmp_path / 'store', kind) as second:
        assert first.stdout.readline() == second.stdout.readline() == 'here\n'
        took, _, text = first.stdout.readline().partition(' ')
        assert float(took) < limit and 'process group' in text
        assert float(first.stdout.readline()) < 3
        second.communicate('\n', timeout=LONG)


def test_each_rank_that_leaves_is_news():
    left = {}
    health = Health('test', lambda: (dict(left), None))
    try:
        for rank in (1, 2):
            left[rank] = cohort.Aborted(f'rank {rank} left the group')
            assert health.error_of(rank, LONG) is left[rank]
        assert health.error_of(1) is left[1] and health.error_of(3) is None
    finally:
        health.stop()
        health.join(time.monotonic() + LONG)
