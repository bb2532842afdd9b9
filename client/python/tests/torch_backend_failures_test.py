"""Lost and late ranks of torch.distributed on the backend "cohort", as the others see them."""

import pytest

from testing.coordinator import LONG, rank_process
from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def killed_in_a_call(rank, size, kind):
    call = {
        'all_reduce': lambda: dist.all_reduce(torch.ones(1000)),
        'async all_reduce': lambda: dist.all_reduce(torch.ones(1000), async_op=True).wait(),
        'future': lambda: dist.all_reduce(torch.ones(10), async_op=True).get_future().wait(),
        'all_gather': lambda: dist.all_gather([torch.ones(9)] * size, torch.ones(9)),
        'barrier': dist.barrier,
        'recv': lambda: dist.recv(torch.ones(1), 2),
        'recv from any': lambda: dist.recv(torch.ones(1)),
        'send': lambda: dist.send(torch.ones(1 << 20), 2),
        'objects': lambda: dist.all_gather_object([None] * size, rank),
    }[kind]
    is_message = kind.startswith('recv') or kind == 'send'
    for _ in range(0 if is_message else 20):
        call()
    if is_message:
        dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return str(error), time.monotonic() - begin
    raise AssertionError('expected an error')


@pytest.mark.parametrize('kind', ['all_reduce', 'async all_reduce', 'future', 'all_gather',
                                  'barrier', 'recv', 'recv from any', 'send', 'objects'])
def test_all_others_name_a_killed_rank_within_a_second(address, kind):
    for text, duration in run_torch_ranks(3, killed_in_a_call, address, kind, killed=[2])[:2]:
        assert 'rank 2' in text, text
        assert duration < 1, f'{duration} s: {text}'


def late(rank, size):
    begin = time.monotonic()
    group = dist.new_group(timeout=seconds(1))
    if rank == 1:
        dist.recv(torch.ones(1), 0)          # until the others have timed out
        return None
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except (cohort.DeadlineExceeded, cohort.Aborted) as error:  # Aborted: another rank gave up
        assert 1 <= time.monotonic() - begin < 3
        if rank == 0:
            dist.send(torch.ones(1), 1)
        return type(error).__name__, str(error)
    raise AssertionError('expected an error')


def test_the_timeout_names_the_ranks_that_did_not_call(address):
    results = run_torch_ranks(3, late, address)[::2]
    assert 'DeadlineExceeded' in [kind for kind, _ in results]
    for kind, text in results:
        assert 'rank 1' in text and 'all_reduce' in text, text
        assert kind != 'DeadlineExceeded' or 'timeout of 1 s' in text


def later(rank, size):
    first, second = dist.new_group(), dist.new_group([0])
    if rank == 1:
        dist.barrier()
        return None
    errors = []
    first.set_timeout(seconds(.5))
    for call in (lambda: dist.recv(torch.ones(1), 1, group=first),
                 lambda: dist.barrier(group=first)):
        begin = time.monotonic()
        try:
            call()
        except cohort.DeadlineExceeded as error:
            assert .5 <= time.monotonic() - begin < 1.5
            errors.append(str(error))
    work = dist.irecv(torch.ones(1), 0, group=second)
    try:
        work.wait(seconds(.2))
    except cohort.DeadlineExceeded as error:
        errors.append(str(error))
    dist.isend(torch.ones(1), 0, group=second)
    work.wait(seconds(20))                  # the receive went on
    dist.barrier()
    return errors


def test_set_timeout_and_the_timeout_of_a_wait(address):
    message, barrier, wait = run_torch_ranks(2, later, address)[0]
    assert 'recv from rank 1 with tag 0' in message and '0.5 s' in message
    assert 'rank 1' in barrier
    assert 'it goes on' in wait


def monitored(rank, size):
    dist.monitored_barrier(timeout=seconds(30))
    of_gloo = dist.new_group(backend='gloo')        # PyTorch's own function serves it
    if rank != 3:
        try:
            dist.monitored_barrier(of_gloo, timeout=seconds(1))
        except RuntimeError as error:
            assert rank != 0 or 'Rank 3 failed to pass monitoredBarrier' in str(error)
        else:
            raise AssertionError('expected an error')
    if rank in (1, 3):
        dist.barrier()
        return None
    try:
        dist.monitored_barrier(timeout=seconds(.3), wait_all_ranks=True)
    except RuntimeError as error:
        dist.barrier()
        return str(error)
    raise AssertionError('expected an error')


def test_monitored_barrier_names_all_missing_ranks(address):
    results = run_torch_ranks(4, monitored, address)
    assert 'Ranks 1, 3 failed to pass monitoredBarrier in 300 ms' in results[0]
    assert 'Rank 2 successfully reached monitoredBarrier' in results[2]
    assert 'rank-1' in results[2] and 'rank-3' in results[2]


def monitored_after_a_leave(rank, size, is_late):
    store = dist.group.WORLD.get_group_store()
    group = dist.new_group()
    if rank == 2:
        if is_late:
            await_sleep(int(store.get('called')))
        begin = time.monotonic()
        dist.destroy_process_group(group)
        took = time.monotonic() - begin
        store.set('left', '')
        dist.barrier()
        return took
    if rank == 1:                 # longer away than the farewell lasts
        store.wait(['left'])
    if rank == 0:
        store.set('called', str(os.getpid()))
    begin = time.monotonic()
    try:
        dist.monitored_barrier(group, timeout=seconds(60), wait_all_ranks=True)
    except RuntimeError as error:
        found = str(error), time.monotonic() - begin
        dist.barrier()            # none of the others has left the group
        return found
    raise AssertionError('expected an error')


@pytest.mark.parametrize('is_late', [False, True])
def test_a_farewell_is_no_arrival_in_a_monitored_barrier(address, is_late):
    first, second, took = run_torch_ranks(3, monitored_after_a_leave, address, is_late, timeout=60)
    assert took < 4
    for text, duration in (first, second):
        assert 'rank 2' in text or 'rank-2' in text, text
        assert duration < 5


def aborted(rank, size):
    group = dist.new_group()
    dist.barrier(group)
    if rank == 1:
        group.abort()
        return None
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except cohort.Aborted as error:
        return str(error)
    raise AssertionError('expected an error')


def test_abort_ends_the_calls_of_the_others(address):
    assert 'rank 1 aborted process group' in run_torch_ranks(2, aborted, address)[0]


def uneven_end(rank, size):
    for _ in range(200):
        dist.barrier()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


def test_a_rank_that_leaves_first_does_not_break_the_last_call_of_others(address):
    run_torch_ranks(4, uneven_end, address)


def ddp_killed(rank, size):
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(torch.nn.Linear(100, 100))
    assert dist.group.WORLD.failure(patience=0) is None
    for step in range(100):
        if rank == 1 and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        try:
            model(torch.ones(2, 100)).sum().backward()
        except RuntimeError as error:
            seconds_taken = time.monotonic() - begin
            return str(error), seconds_taken, dist.group.WORLD.failure().culprit
    raise AssertionError('expected an error')


def test_ddp_names_a_killed_rank(address):
    for result in run_torch_ranks(3, ddp_killed, address, killed=[1])[::2]:
        assert 'rank 1' in result[0], result
        assert result[1] < 1
        assert result[2] == 1


ENDS_WITH_AN_ERROR = '''
import sys
import torch
import torch.distributed as dist
import cohort.torch
rank = int(sys.argv[2])
dist.init_process_group("cohort", init_method="file://" + sys.argv[3], rank=rank, world_size=2,
                        pg_options=cohort.torch.Options(address=sys.argv[1]))
dist.barrier()
if rank == 1:
    raise ValueError("no more data")
try:
    dist.all_reduce(torch.ones(1))
except cohort.Aborted as error:
    print(error, flush=True)
'''


def test_a_rank_that_ends_with_an_exception_is_named_with_it(address, tmp_path):
    with rank_process(ENDS_WITH_AN_ERROR, address, 0, tmp_path / 'store') as survivor, \
            rank_process(ENDS_WITH_AN_ERROR, address, 1, tmp_path / 'store') as other:
        line = survivor.stdout.readline()
        assert 'rank 1 ended with ValueError: no more data' in line, line
        assert other.wait(LONG) == 1 and survivor.wait(LONG) == 0
