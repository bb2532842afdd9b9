"""Groups whose ranks are in worker daemons: the daemon runs the collectives, or watches this process."""

import contextlib
import signal
import subprocess

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, coordinator, rank_process, run_ranks, worker

RANKS = 2


@pytest.fixture(scope='module', name='address')
def _address():
    with coordinator() as address:
        yield address


@pytest.fixture(scope='module', name='workers')
def _workers(address):
    with worker(address) as (first, _), worker(address) as (second, _):
        yield first, second


@pytest.fixture(scope='module', name='groups', params=[False, True], ids=['remote', 'attached'])
def _groups(request, workers):
    groups = run_ranks(RANKS, lambda rank: cohort.Group(
        f'{request.param}', rank=rank, world_size=RANKS, timeout=LONG, worker=workers[rank],
        attached=request.param))
    yield groups
    for group in groups:
        group.close()


def run(groups, body):
    """Returns body(group, rank) of every rank."""
    return run_ranks(len(groups), lambda rank: body(groups[rank], rank))


def test_collectives(groups):
    def body(group, rank):
        registered = group.empty((2, 3), np.float32)
        registered[:] = rank
        plain = np.full(100000, rank + 1.0)
        return (group.all_reduce(registered, out=registered).copy(), group.all_reduce(plain),
                group.all_gather(np.array([rank])), group.all_reduce(plain, wait=False).wait(LONG))
    for registered, plain, gathered, later in run(groups, body):
        np.testing.assert_array_equal(registered, np.ones((2, 3)))
        np.testing.assert_array_equal(plain, np.full(100000, 3.0))
        np.testing.assert_array_equal(later, plain)
        assert gathered.tolist() == [0, 1]


def test_messages_objects_and_maps(groups):
    def body(group, rank):
        if rank == 0:
            group.send(np.arange(5), 1)
            group.send_object(b'object', 1)
            group.send_map({'x': np.arange(3), 'step': 7}, 1)
        else:
            assert group.receive(np.empty(5, int), 0).tolist() == [0, 1, 2, 3, 4]
            assert group.receive_object(0) == b'object'
            received = group.receive_map(0)
            assert received['step'] == 7 and received['x'].tolist() == [0, 1, 2]
        return group.all_gather_objects(b'%d' % rank)
    assert run(groups, body) == [[b'0', b'1']] * RANKS


def test_a_wrong_argument_is_an_error_on_all_ranks(groups):
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument, match='rank 1') as caught:
            group.all_reduce(np.ones(2 + rank))
        return str(caught.value)
    first, second = run(groups, body)
    assert first == second
    test_collectives(groups)


def test_layout_groups_share_the_session(groups):
    layout = cohort.make_layout(RANKS, {'tp': RANKS})
    def body(group, rank):
        with cohort.create_layout(group, layout, kinds=['tensor'], separate=['tensor']) as made:
            result = made['tensor'].all_reduce(np.array([rank]))
            made['tensor'].all_gather_objects(b'')
            return result.tolist()
    assert run(groups, body) == [[1], [1]]


def test_errors_have_the_ranks(groups):
    with pytest.raises(cohort.DeadlineExceeded) as caught:
        groups[0].barrier(timeout=0.1)
    assert caught.value.missing == (1,) and caught.value.culprit is None
    run(groups, lambda group, _: group.rejoin(LONG))
    with pytest.raises(cohort.DeadlineExceeded) as caught:
        groups[0].receive_object(1, timeout=0.1)
    assert caught.value.missing == (1,)
    test_collectives(groups)


def test_rejoin(groups):
    generation = groups[0].generation
    groups[0].abort('for the test')
    def body(group, rank):
        with pytest.raises(cohort.Aborted, match='for the test') as caught:
            while True:
                group.all_reduce(np.ones(2))
        assert caught.value.culprit == 0
        group.rejoin(LONG)
        assert group.generation == generation + 1
        return group.all_reduce(np.array([rank])).tolist()
    assert run(groups, body) == [[1], [1]]


CALLER = '''
import signal, sys
import cohort
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
worker, group, attached = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
try:
    print("ready", flush=True)
    with cohort.Group(group, rank=0, world_size=2, worker=worker, attached=attached) as joined:
        joined.receive_object(1, timeout=1000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
'''


def waiting_calls(address, operation):
    """The lines of `cohort waits` that name it."""
    output = subprocess.run(['cohort', '--coordinator', address, 'waits'], check=False,
                            stdout=subprocess.PIPE, text=True).stdout
    return [line for line in output.splitlines() if operation in line]


@pytest.mark.parametrize('attached', [False, True])
@pytest.mark.parametrize('joined', [False, True])
def test_a_signal_ends_a_wait(address, workers, attached, joined):
    group = f'signals-{attached}-{joined}'
    with rank_process(CALLER, workers[0], group, attached) as process, contextlib.ExitStack() as stack:
        assert process.stdout.readline() == 'ready\n'
        if joined:
            stack.enter_context(cohort.Group(group, rank=1, world_size=2, worker=workers[1],
                                             attached=attached, timeout=LONG))
        while not any('receive' in line or not joined
                      for line in waiting_calls(address, group)):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.wait(LONG) == 0


@pytest.mark.parametrize('attached', [False, True])
def test_a_killed_worker_is_named(address, attached):
    with worker(address) as (first, _), worker(address) as (second, process):
        groups = run_ranks(RANKS, lambda rank: cohort.Group(
            f'killed{attached}', rank=rank, world_size=RANKS, timeout=LONG,
            worker=[first, second][rank], attached=attached))
        process.kill()
        def body(group, rank):
            with pytest.raises(cohort.Aborted) as caught:
                while True:
                    group.all_reduce(np.ones(3))
            return caught.value
        errors = run(groups, body)
        assert errors[0].culprit == 1
        texts = [str(error) for error in errors]
        assert 'rank 1' in texts[0]
        # The other ranks may have told it first.
        assert second in texts[1] or 'rank 1' in texts[1]
        for group in groups:
            group.close()


MORTAL = """
import sys
import cohort
name, worker, attached = sys.argv[2:]
form = {'worker': worker, 'attached': attached == 'True'} if worker else {'address': sys.argv[1]}
group = cohort.Group(name, world_size=4, min_world_size=2, member='mortal', timeout=60, **form)
print('ready', flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize('form', ['local', 'remote', 'attached'])
def test_an_elastic_group_goes_on_without_a_rank(form, address, workers):
    """As groups of objects do, in each of the three forms."""
    name = f'elastic-{form}'

    def options(worker_of):
        return ({'address': address} if form == 'local' else
                {'worker': worker_of, 'attached': form == 'attached'})

    mortal = ('' if form == 'local' else workers[1], str(form == 'attached'))
    with rank_process(MORTAL, address, name, *mortal) as process:
        groups = run_ranks(3, lambda rank: cohort.Group(
            name, world_size=4, min_world_size=2, member=f'm{rank}', timeout=LONG,
            **options(workers[rank % RANKS])))
        assert sorted([group.size for group in groups]) == [4, 4, 4]
        process.kill()

        def body(rank):
            group = groups[rank]
            with pytest.raises(cohort.Aborted) as caught:
                group.all_reduce(np.ones(100000))
            assert 'mortal' in str(caught.value) or caught.value.culprit is not None
            group.rejoin(LONG)
            return group.size, sorted(group.all_gather(np.array([group.rank])).tolist()), (
                group.all_reduce(np.full(100000, 2.0)))
        for size, ranks, total in run_ranks(3, body):
            assert (size, ranks) == (3, [0, 1, 2])
            np.testing.assert_array_equal(total, np.full(100000, 6.0))
        for group in groups:
            group.close()


def test_groups_that_do_not_form(address, workers):
    def join(**options):
        return cohort.Group('unformed', world_size=1, rank=0, join_timeout=5, **options)
    with pytest.raises(ValueError, match='attached: no worker is given'):
        join(address=address, attached=True)
    for option in ({'labels': {'a': 'b'}}, {'advertised_host': 'h'}, {'host_identity': 'h'}):
        with pytest.raises(ValueError, match=next(iter(option))):
            join(worker=workers[0], **option)
    with pytest.raises(cohort.InvalidArgument, match='nonsense'):
        join(worker='nonsense')
    with pytest.raises(cohort.Unavailable, match='no/such/worker'):
        cohort.Group('unformed', world_size=1, worker='unix:/no/such/worker', join_timeout=0.2)
