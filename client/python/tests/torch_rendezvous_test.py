"""init_method="cohort://...", and the rendezvous backend of torchrun without torchrun."""

import concurrent.futures
import contextlib
import datetime
import os
import pickle
import queue
import time
import types

import pytest

import cohort
from testing.coordinator import (LONG, coordinator, rank_process, restartable_coordinator,
                                 run_ranks)

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
dist = torch.distributed

from torch.distributed.elastic.rendezvous import (  # pylint: disable=wrong-import-position
    RendezvousConnectionError, RendezvousParameters, dynamic_rendezvous,
    rendezvous_handler_registry)

import cohort.torch  # pylint: disable=wrong-import-position
from cohort.torch import (  # pylint: disable=wrong-import-position
    elastic, elastic_clock, rendezvous)

MINUTE = datetime.timedelta(seconds=LONG)


@pytest.fixture(scope='module', name='address')
def _address():
    with coordinator() as address:
        yield address


def url_of(address, name):
    """The URL of a job at a coordinator, whose address is a Unix socket."""
    return f'cohort://{address[len("unix:"):]}:{name}'


def enter(url, rank=-1, world_size=-1, timeout=MINUTE):
    """The store, the rank and the world size that the rendezvous of the URL yields."""
    return next(dist.rendezvous(url, rank, world_size, timeout=timeout))


@pytest.mark.parametrize('url, rank, world_size, expected', [
    ('cohort://host:7700/job', 1, 2, ('host:7700', 'job', 1, 2, '')),
    ('cohort://host:7700/job?world_size=2', -1, -1, ('host:7700', 'job', None, 2, '')),
    ('cohort://[::1]:7700/a/b%23c?rank=0&world_size=2&tenant=t', -1, -1,
     ('[::1]:7700', 'a/b#c', 0, 2, 't')),
    ('cohort:///run/cohort/socket:job?rank=-1', 3, 4, ('unix:/run/cohort/socket', 'job', 3, 4, '')),
])
def test_urls(url, rank, world_size, expected):
    assert rendezvous.parse_url(url, rank, world_size) == expected


@pytest.mark.parametrize('url, text', [
    ('cohort://', 'it names no coordinator'),
    ('cohort://host/job?world_size=2', 'the port of the coordinator is missing'),
    ('cohort://host:port/job?world_size=2', 'the port of the coordinator'),
    ('cohort://host:7700?world_size=2', 'the name of the job is missing'),
    ('cohort:///socket?world_size=2', 'expected cohort://HOST:PORT/NAME or cohort:///SOCKET:NAME'),
    ('cohort://host:7700/job', 'world_size is missing'),
    ('cohort://host:7700/job?world_size=0', 'world_size is 0'),
    ('cohort://host:7700/job?world_size=two', "world_size is 'two', expected a number"),
    ('cohort://host:7700/job?rank=2&world_size=2', 'the rank is 2, expected 0 to 1'),
    ('cohort://host:7700/job?world_size=2&size=2', "there is no option 'size'"),
    ('cohort://host:7700/job?world_size', 'world_size'),
])
def test_wrong_urls(url, text, monkeypatch):
    monkeypatch.delenv(rendezvous.WORKERS_URL, raising=False)
    with pytest.raises(ValueError) as caught:
        rendezvous.parse_url(url)
    assert text in str(caught.value) and f"init_method '{url.partition('?')[0]}'" in str(caught.value)


def test_an_error_shows_the_url_that_was_written():
    with pytest.raises(ValueError, match="init_method 'cohort:///run/x': expected cohort://"):
        dist.init_process_group('gloo', init_method='cohort:///run/x', rank=0, world_size=1)


def test_ranks_meet_in_a_store(address):
    def body(rank):
        store, given, size = enter(url_of(address, 'meet'), rank, 2)
        assert (given, size) == (rank, 2)
        store.set(f'from{rank}', str(rank))
        assert store.get(f'from{1 - rank}') == str(1 - rank).encode()
        store.barrier('end', 2)
        store.close()
    run_ranks(2, body)


def test_the_coordinator_assigns_ranks(address):
    def body(_):
        store, rank, _ = enter(url_of(address, 'assigned') + '?world_size=3')
        store.barrier('end', 3)
        store.close()
        return rank
    assert sorted(run_ranks(3, body)) == [0, 1, 2]


def test_missing_ranks_are_named(address):
    with pytest.raises(dist.DistStoreError,
                       match='job "alone" at unix:.*, rank 0, world size 3: .*1-2'):
        enter(url_of(address, 'alone'), 0, 3, datetime.timedelta(seconds=0.5))


WORKER = '''
import datetime, os, signal, sys
import torch, torch.distributed as dist
import cohort.torch
url, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method=url, rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=60))
sum = torch.tensor([rank + 1.0])
dist.all_reduce(sum)
print(sum.item())
sys.stdin.readline()
dist.destroy_process_group()
'''


def test_a_killed_job_starts_again_under_its_name(address):
    url = url_of(address, 'again')
    for turn in range(2):
        with rank_process(WORKER, url, 0) as zero, rank_process(WORKER, url, 1) as one:
            assert zero.stdout.readline() == one.stdout.readline() == '3.0\n'
            if turn == 0:
                zero.kill()
                one.kill()
            else:
                assert zero.communicate('\n', LONG) == one.communicate('\n', LONG) == ('', None)
                assert zero.returncode == one.returncode == 0


MEMBER = '''
import sys
import torch.distributed as dist
import cohort.torch
store, rank, _ = next(dist.rendezvous(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
store.set(f"from{rank}", "1")
print("ready")
sys.stdin.readline()
store.close()
'''


def test_a_job_under_the_name_of_a_living_one_is_an_error(address, monkeypatch):
    url = url_of(address, 'twice')
    with rank_process(MEMBER, url, 0, 2) as zero, rank_process(MEMBER, url, 1, 2) as one:
        assert zero.stdout.readline() == one.stdout.readline() == 'ready\n'
        with monkeypatch.context() as patched:
            patched.setattr(rendezvous, '_SECONDS_TO_FREE_A_RANK', 0.3)
            for rank in (0, -1):
                with pytest.raises(dist.DistStoreError, match='so a job with this name is running'):
                    enter(url, rank, 2)
            with pytest.raises(dist.DistStoreError, match='world size 3: '):
                enter(url, 0, 3)
        assert zero.communicate('\n', LONG) == one.communicate('\n', LONG) == ('', None)
    # Its name is free again, and its keys are gone.
    stores = [found[0] for found in run_ranks(2, lambda rank: enter(url, rank, 2))]
    assert not stores[1].check(['from0'])
    for store in stores:
        store.close()


def test_a_rank_that_comes_late_is_awaited(address, monkeypatch):
    url = url_of(address, 'late')
    attempts = queue.SimpleQueue()

    def join(*arguments, **options):
        attempts.put(options)
        return process_group(*arguments, **options)

    process_group = cohort.ProcessGroup
    monkeypatch.setattr(cohort, 'ProcessGroup', join)
    monkeypatch.setattr(rendezvous, '_SECONDS_TO_FREE_A_RANK', 0.3)

    def body(number):
        if number == 1:  # when the other one tries for the second time
            for _ in range(2):
                attempts.get(timeout=LONG)
        store, rank, _ = enter(url, -1, 2)
        store.barrier('end', 2)
        store.close()
        return rank
    assert sorted(run_ranks(2, body)) == [0, 1]


def test_a_process_may_join_its_job_again(address):
    """A program that has lost a rank destroys its process group, which leaves the store open."""
    url = url_of(address, 'joined again')

    def body(rank):
        for turn in range(3):
            store = enter(url, rank, 2)[0]
            assert not store.check(['a'])  # a key of the turn before
            store.barrier('checked', 2)
            store.set('a', str(turn))
            store.barrier('end', 2)
    run_ranks(2, body)


def test_ranks_that_the_coordinator_assigns_join_again_after_a_loss(address):
    url = url_of(address, 'assigned again')

    def enter_with(process):
        entered = run_ranks(2, lambda _: enter(url, -1, 3))
        assert process.stdout.readline() == 'ready\n'
        assert len({rank for _, rank, _ in entered}) == 2

    with rank_process(MEMBER, url, -1, 3) as lost:
        enter_with(lost)
        lost.kill()
    with rank_process(MEMBER, url, -1, 3) as successor:
        enter_with(successor)
        successor.communicate('\n', LONG)


@pytest.fixture(name='backend')
def _backend(address, request):
    with cohort.Store(address) as client:
        yield elastic.Backend(client, request.node.name)


def test_the_backend_writes_a_state_only_over_the_one_that_it_knows(backend):
    assert backend.name == 'cohort'
    assert backend.get_state() is None
    assert backend.set_state(b'no', token=7) is None
    first, token, written = backend.set_state(b'1')
    assert (first, written) == (b'1', True) and backend.get_state() == (b'1', token)
    assert backend.set_state(b'2') == (b'1', token, False)
    assert backend.set_state(b'2', token='no token') == (b'1', token, False)
    second, newer, written = backend.set_state(b'2', token)
    assert (second, written) == (b'2', True) and newer != token
    assert backend.set_state(b'3', token) == (b'2', newer, False)
    # The same value has another token when it is written again.
    assert backend.set_state(b'2', newer)[1] != newer


def parameters(address, nodes=1, **options):
    """The parameters of torchrun."""
    return RendezvousParameters('cohort', address, 'job', nodes, nodes, local_addr='localhost',
                                **options)


def test_the_handler_joins_rounds_over_a_restart_of_the_coordinator(monkeypatch):
    monkeypatch.setenv(rendezvous.WORKERS_URL, '')
    with restartable_coordinator() as running:
        handlers = [elastic.entry_point()(parameters(running.address, 2)) for _ in range(2)]
        urls = set()
        for turn in range(2):
            infos = run_ranks(2, lambda number: handlers[number].next_rendezvous())
            assert sorted(info.rank for info in infos) == [0, 1]
            assert {info.world_size for info in infos} == {2}
            infos[0].store.set('a', str(turn))
            assert infos[1].store.get('a') == str(turn).encode()
            urls.add(os.environ[rendezvous.WORKERS_URL])
            running.kill()
            running.start()
        assert len(urls) == 2
        assert [handler.num_nodes_waiting() for handler in handlers] == [0, 0]
        assert not handlers[0].is_closed()
        assert handlers[0].get_backend() == 'cohort' and handlers[0].get_run_id() == 'job'
        assert handlers[0].shutdown()
        end = time.monotonic() + LONG
        while not handlers[1].is_closed():  # PyTorch keeps the state for a second
            assert time.monotonic() < end
        assert handlers[1].shutdown()
        # The last agent has left: another job may have the id.
        again = elastic.create(parameters(running.address))
        assert not again.is_closed()
        again.shutdown()


def test_wrong_parameters_of_the_handler():
    with pytest.raises(ValueError, match='pass --rdzv-id'):
        elastic.create(RendezvousParameters('cohort', 'host:7700', '', 1, 2))
    with pytest.raises(ValueError):
        elastic.create(RendezvousParameters('cohort', 'unix:', 'job', 1, 1))


def test_an_absent_coordinator_is_a_connection_error(monkeypatch, tmp_path):
    monkeypatch.setattr(elastic, 'Store', lambda *args, **options: cohort.torch.Store(
        *args, **options, connect_timeout=0.3))
    with pytest.raises(RendezvousConnectionError, match='open of store "torchrun/job-[0-9a-f]*" at unix:'):
        elastic.create(parameters(f'unix:{tmp_path}/none'))


def test_a_pause_of_the_coordinator_counts_against_read_timeout():
    with restartable_coordinator() as running, contextlib.ExitStack() as stack:
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        short = elastic.create(parameters(running.address, read_timeout='0.2'))
        default = elastic.create(parameters(running.address))
        for handler in (short, default):
            stack.callback(handler.shutdown)
        running.pause()
        stack.callback(running.resume)
        waiting = pool.submit(default.is_closed)
        for _ in range(3):
            with pytest.raises(RendezvousConnectionError, match='the state of the rendezvous: '):
                short.is_closed()
        assert not waiting.done()
        running.resume()
        assert waiting.result() is False and not short.is_closed()


def test_the_limit_of_the_backend_is_that_of_pytorch():
    limits = []
    client = types.SimpleNamespace(get_many=lambda keys, timeout: limits.append(timeout) or {})
    elastic.Backend(client, 'key').get_state()
    assert limits == [60]


def test_the_registry_of_torch_takes_the_handler(address):
    rendezvous_handler_registry.register('cohort', elastic.entry_point())
    handler = rendezvous_handler_registry.create_handler(parameters(address))
    assert handler.get_backend() == 'cohort'
    handler.shutdown()


def test_others_are_not_silent_while_the_coordinator_is_away(monkeypatch):
    node, clock = dynamic_rendezvous._NodeDesc('other', 1, 0), [1000.]
    state = dynamic_rendezvous._RendezvousState()
    state.participants[node] = 0
    state.last_heartbeats[node] = datetime.datetime.now(datetime.timezone.utc)
    bits = pickle.dumps(state)

    class Backend:  # pylint: disable=too-few-public-methods
        """Has a state that no agent changes."""
        def get_state(self):
            """The state, and its token."""
            return bits, 1
    settings = dynamic_rendezvous.RendezvousSettings(
        'job', 1, 2, dynamic_rendezvous.RendezvousTimeout(), datetime.timedelta(seconds=5), 3)
    monkeypatch.setattr(elastic_clock.time, 'monotonic', lambda: clock[0])
    holder = elastic_clock.StateHolder(Backend(), settings)

    def is_there_after(seconds):
        clock[0] += seconds
        holder.sync()
        return node in holder.state.participants
    assert is_there_after(0)
    assert is_there_after(100), 'a read as late as the agent\'s own'
    assert is_there_after(5)
    assert not [is_there_after(5) for _ in range(3)][-1]
