"""Wrong arguments that torch.distributed refuses on one rank, before it calls the process group."""

import dis
import inspect

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

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


def objects_with_wrong_arguments(rank, size, culprit, root):
    """Only the culprit's arguments are wrong; `root` sends the objects of a list, or gets them."""
    def lists(wrong, right):
        return (wrong if rank == culprit else right) if rank == root else None
    objects = [None] * 2 if rank != root else ['object', rank]
    # By name: what the culprit calls, what the others call.
    calls = {
        'no rank': (lambda: dist.broadcast_object_list(list(objects), 77),
                    lambda: dist.broadcast_object_list(list(objects), root)),
        'no rank of the group': (lambda: dist.broadcast_object_list(list(objects), group_src=size),
                                 lambda: dist.broadcast_object_list(list(objects), root)),
        'another root': (lambda: dist.broadcast_object_list(list(objects), (root + 1) % size),
                         lambda: dist.broadcast_object_list(list(objects), root)),
        'no list': (lambda: dist.broadcast_object_list(7, root),
                    lambda: dist.broadcast_object_list(list(objects), root)),
        'a longer list': (lambda: dist.broadcast_object_list([None] * 5, root),
                          lambda: dist.broadcast_object_list(list(objects), root)),
        'scatter from no rank': (
            lambda: dist.scatter_object_list([None], [0] * size, 77),
            lambda: dist.scatter_object_list([None], [0] * size, root)),
        'scatter from another root': (
            lambda: dist.scatter_object_list([None], [0] * size, (root + 1) % size),
            lambda: dist.scatter_object_list([None], [0] * size, root)),
        'scatter without output': (
            lambda: dist.scatter_object_list([], [0] * size, root),
            lambda: dist.scatter_object_list([None], [0] * size, root)),
        'scatter of too few': (
            lambda: dist.scatter_object_list([None], [0] * (size - 1), root),
            lambda: dist.scatter_object_list([None], [0] * size, root)),
        'gather at no rank': (
            lambda: dist.gather_object(rank, [None] * size, 77),
            lambda: dist.gather_object(rank, [None] * size if rank == root else None, root)),
        'gather at another root': (
            lambda: dist.gather_object(rank, [None] * size, (root + 1) % size),
            lambda: dist.gather_object(rank, [None] * size if rank == root else None, root)),
        'all_gather into no list': (
            lambda: dist.all_gather_object(7, rank),
            lambda: dist.all_gather_object([None] * size, rank)),
    }
    problems = []
    for number, (name, (wrong, right)) in enumerate(calls.items()):
        begin = time.monotonic()
        try:
            (wrong if rank == culprit else right)()
        except Exception as error:
            told = isinstance(error, cohort.InvalidArgument) and f'rank {culprit}' in str(error)
            if rank != culprit and not told and 'another' not in name:
                problems.append(f'{name}: {error!r}')
        # The source of a list does not wait, so all ranks hear of the mistake here, or none does.
        heard = False
        try:
            dist.barrier()
        except cohort.InvalidArgument:
            heard = True
        if time.monotonic() - begin > 10:
            problems.append(f'{name}: {time.monotonic() - begin} s')
        outcomes = [None] * size
        dist.all_gather_object(outcomes, (number, rank, heard))
        if outcomes != [(number, each, heard) for each in range(size)]:
            problems.append(f'{name}, later: {outcomes}')
        for step in range(3):
            value = [torch.zeros(2) for _ in range(size)]
            dist.all_gather(value, torch.tensor([rank + 10. * step, number]))
            if [each.tolist() for each in value] != [
                    [each + 10 * step, number] for each in range(size)]:
                problems.append(f'{name}, step {step}: {value}')
    return problems


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('root', [0, 1])
@pytest.mark.parametrize('culprit', [0, 1])
def test_wrong_arguments_of_objects_keep_the_ranks_in_step(address, culprit, root, size):
    assert run_torch_ranks(size, objects_with_wrong_arguments, address, culprit, root) == [[]] * size


def messages_of_objects(rank, size, culprit):
    wrong, right = {
        0: (lambda objects: dist.send_object_list(objects, 1), ['an object', rank]),
        1: (lambda objects: dist.recv_object_list(objects, 0), [None, None]),
    }[rank]
    calls = {'no list': 7, 'a function without a name': [lambda: None, 2], 'a longer list': [0] * 5,
             'an empty list': []}
    if culprit == 1:
        del calls['a function without a name']
    problems = []
    for number, (name, objects) in enumerate(calls.items()):
        begin = time.monotonic()
        try:
            wrong(objects if rank == culprit else list(right))
            problems.append(f'{name}: no error')
        except Exception as error:
            if name == 'a longer list':
                assert isinstance(error, cohort.InvalidArgument), (name, error)
            elif rank != culprit and not (isinstance(error, cohort.InvalidArgument)
                                          and f'rank {culprit}' in str(error)):
                problems.append(f'{name}: {error!r}')
        if time.monotonic() - begin > 10:
            problems.append(f'{name}: {time.monotonic() - begin} s')
        for source in (0, 1):
            value = torch.full((3,), number + 10. * source)
            (dist.send if rank == source else dist.recv)(value, 1 - rank)
            if value.tolist() != [number + 10 * source] * 3:
                problems.append(f'{name}, later: {value}')
    return problems


@pytest.mark.parametrize('culprit', [0, 1])
def test_wrong_objects_of_messages_keep_the_ranks_in_step(address, culprit):
    assert run_torch_ranks(2, messages_of_objects, address, culprit) == [[], []]


def test_every_function_of_several_turns_is_known():
    from cohort.torch import refusals  # pylint: disable=import-outside-toplevel
    # pylint: disable=protected-access
    single = refusals._COLLECTIVES | set(refusals._MESSAGES)
    several = set()
    for name in torch.distributed.distributed_c10d.__all__:
        function = inspect.unwrap(getattr(torch.distributed.distributed_c10d, name))
        if inspect.isfunction(function):
            calls = [each for each in dis.get_instructions(function)
                     if each.opname == 'LOAD_GLOBAL' and each.argval in single]
            if len(calls) > 1:
                several.add(name)
    assert several - single == refusals._OF_OBJECTS | set(refusals._MESSAGES_OF_OBJECTS)
