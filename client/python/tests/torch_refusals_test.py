"""Wrong arguments that torch.distributed refuses on one rank, before it calls the process group."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def refused_by_pytorch(rank, size, culprit):
    def parts():
        return [torch.zeros(1) for _ in range(size)]
    mine, double = torch.ones(1), torch.ones(1).double()
    # By name: what the culprit calls, and what the others call.
    calls = {
        'all_reduce': (lambda a: dist.all_reduce('no tensor', async_op=a),
                       lambda a: dist.all_reduce(mine, async_op=a)),
        'broadcast': (lambda a: dist.broadcast([mine], 2, async_op=a),
                      lambda a: dist.broadcast(torch.zeros(1 << 16), 2, async_op=a)),
        'reduce': (lambda a: dist.reduce(None, 0, async_op=a),
                   lambda a: dist.reduce(mine, 0, async_op=a)),
        'all_gather': (lambda a: dist.all_gather(parts(), double, async_op=a),
                       lambda a: dist.all_gather(parts(), mine, async_op=a)),
        'gather': (lambda a: dist.gather(mine, parts() if culprit else None, 0, async_op=a),
                   lambda a: dist.gather(mine, None if rank else parts(), 0, async_op=a)),
        'scatter': (lambda a: dist.scatter(mine, parts() if culprit else None, 0, async_op=a),
                    lambda a: dist.scatter(mine, None if rank else parts(), 0, async_op=a)),
        'reduce_scatter': (lambda a: dist.reduce_scatter(double, parts(), async_op=a),
                           lambda a: dist.reduce_scatter(mine, parts(), async_op=a)),
        'all_to_all': (lambda a: dist.all_to_all(parts(), [double] * size, async_op=a),
                       lambda a: dist.all_to_all(parts(), parts(), async_op=a)),
        'all_to_all_single': (lambda a: dist.all_to_all_single(mine, 3, async_op=a),
                              lambda a: dist.all_to_all_single(
                                  torch.zeros(size), torch.zeros(size), async_op=a)),
    }
    problems = []
    for name, (wrong, right) in calls.items():
        for is_async in (False, True):
            before = torch.full((2,), rank + 1.)
            pending = dist.all_reduce(before, async_op=True)
            begin = time.monotonic()
            try:
                work = (wrong if rank == culprit else right)(is_async)
                if work is not None:
                    work.wait()
                problems.append(f'{name}, async {is_async}: no error')
            except (ValueError, TypeError, RuntimeError) as error:
                if rank != culprit and (f'rank {culprit}' not in str(error)
                                        or not isinstance(error, cohort.InvalidArgument)):
                    problems.append(f'{name}, async {is_async}: {error!r}')
            if time.monotonic() - begin > 10:
                problems.append(f'{name}: {time.monotonic() - begin} s')
            pending.wait()
            assert before.tolist() == [size * (size + 1) / 2] * 2, name
            outs = parts()
            dist.all_gather(outs, torch.full((1,), rank + 1.))
            assert outs == [r + 1 for r in range(size)], name
    return problems


@pytest.mark.parametrize('culprit', [0, 1])
def test_a_refusal_of_pytorch_on_one_rank_fails_the_call_on_all(address, culprit):
    assert run_torch_ranks(3, refused_by_pytorch, address, culprit) == [[], [], []]


def objects_that_cannot_be_pickled(rank, size, culprit):
    wrong = lambda: None  # a function without a name
    def mine():
        return wrong if rank == culprit else rank
    calls = {
        'all_gather_object': lambda: dist.all_gather_object([None] * size, mine()),
        'gather_object': lambda: dist.gather_object(mine(), None if rank else [None] * size),
        'wrong destination': lambda: dist.gather_object(
            rank, None if rank else [None] * size, 7 if rank == culprit else 0),
        'wrong list': lambda: dist.gather_object(
            rank, [None] * size if (rank == 0) != (rank == culprit) else None),
        'broadcast_object_list': lambda: dist.broadcast_object_list([mine()], culprit),
        'scatter_object_list': lambda: dist.scatter_object_list([None], [mine()] * size, culprit),
        'no inputs': lambda: dist.scatter_object_list(
            [None], None if rank == culprit else [0] * size, culprit),
        'no output': lambda: dist.scatter_object_list(
            [] if rank == culprit else [None], [0] * size, culprit),
        'send_object_list': lambda: dist.send_object_list([mine()], (rank + 1) % size)
        if rank == culprit else dist.recv_object_list([None], culprit)
        if rank == (culprit + 1) % size else None,
    }
    problems = []
    for name, call in calls.items():
        begin = time.monotonic()
        try:
            call()
            if name != 'send_object_list' or rank in (culprit, (culprit + 1) % size):
                problems.append(f'{name}: no error')
        except Exception as error:
            if rank != culprit and (f'rank {culprit}' not in str(error)
                                    or not isinstance(error, cohort.InvalidArgument)):
                problems.append(f'{name}: {error!r}')
        if time.monotonic() - begin > 10:
            problems.append(f'{name}: {time.monotonic() - begin} s')
        objects = [None] * size
        dist.all_gather_object(objects, rank)
        assert objects == list(range(size)), name
    # A failure after the collectives is of this rank alone.
    try:
        dist.all_gather_object([None] * (1 if rank == culprit else size), rank)
        assert rank != culprit
    except IndexError:
        assert rank == culprit
    objects = [None] * size
    dist.all_gather_object(objects, rank)
    return problems


@pytest.mark.parametrize('culprit', [0, 1])
def test_an_object_that_cannot_be_sent_fails_the_call_on_all(address, culprit):
    assert run_torch_ranks(3, objects_that_cannot_be_pickled, address, culprit) == [[], [], []]
