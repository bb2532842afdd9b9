"""cohort.torch.Store: the methods of torch.distributed's stores, over a coordinator. One file, though
long: each test compares one part of the same interface."""

import concurrent.futures
import datetime
import gc
import pickle
import socket
import threading
import time

import pytest

import cohort
from testing.coordinator import (LONG, coordinator, rank_process, restartable_coordinator,
                                 run_ranks)

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
dist = torch.distributed

import cohort.torch  # pylint: disable=wrong-import-position
from cohort.torch import job_keys  # pylint: disable=wrong-import-position

SHORT = datetime.timedelta(milliseconds=50)
MINUTE = datetime.timedelta(seconds=LONG)


@pytest.fixture(scope='module', name='address')
def _address():
    with coordinator() as address:
        yield address


@pytest.fixture(name='store')
def _store(address, request):
    store = cohort.torch.Store(request.node.name, address, timeout=MINUTE)
    yield store
    store.close()


@pytest.fixture(name='tcp')
def _tcp():
    return dist.TCPStore('localhost', 0, 1, True, timeout=MINUTE)


def outcome(call):
    """The result of a call, or the types of its error."""
    try:
        return call()
    except Exception as error:  # pylint: disable=broad-except
        return type(error).__mro__[-5:]


# Each step is a call of a store; its result is the same on TCPStore.
STEPS = [
    lambda s: s.set('a', 'text'),
    lambda s: s.get('a'),
    lambda s: s.set('bytes', b'\xff\x00'),
    lambda s: s.get('bytes'),
    lambda s: s.set('', ''),
    lambda s: s.get(''),
    lambda s: s.check(['a', 'bytes']),
    lambda s: s.check(['a', 'absent']),
    lambda s: s.check([]),
    lambda s: s.wait([]),
    lambda s: s.wait(['a'], SHORT),
    lambda s: s.wait(['absent', 'a'], SHORT),
    lambda s: s.wait(['a', 'a'], SHORT),
    lambda s: s.check(['a', 'a']),
    lambda s: s.add('n', 3),
    lambda s: s.add('n', -5),
    lambda s: s.get('n'),
    lambda s: s.set('decimal', '40'),
    lambda s: s.add('decimal', 2),
    lambda s: s.compare_set('absent', 'expected', 'new'),
    lambda s: s.check(['absent']),
    lambda s: s.compare_set('made', '', 'new'),
    lambda s: s.compare_set('made', '', 'newer'),
    lambda s: s.compare_set('made', 'other', 'newer'),
    lambda s: s.compare_set('made', 'new', 'newer'),
    lambda s: s.get('made'),
    lambda s: s.set('empty', ''),
    lambda s: s.compare_set('empty', '', 'full'),
    lambda s: s.append('log', 'ab'),
    lambda s: s.append('log', 'c'),
    lambda s: s.get('log'),
    lambda s: s.multi_set(['m1', 'm2', 'm1'], ['1', '2', '3']),
    lambda s: s.multi_get(['m2', 'm1', 'm2']),
    lambda s: s.multi_get([]),
    lambda s: s.multi_set([], []),
    lambda s: s.multi_set(['m1'], ['1', '2']),
    lambda s: s.delete_key('a'),
    lambda s: s.delete_key('a'),
    lambda s: s.check(['a']),
    lambda s: s.has_extended_api(),
    lambda s: sorted(s.list_keys()),
    lambda s: s.queue_len('q'),
    lambda s: s.queue_pop('q', block=False),
    lambda s: s.queue_push('q', '1'),
    lambda s: s.queue_push('q', b'2'),
    lambda s: s.queue_len('q'),
    lambda s: s.check(['q']),
    lambda s: s.wait(['q', 'n'], SHORT),
    lambda s: s.delete_key('q'),
    lambda s: s.queue_pop('q'),
    lambda s: s.queue_pop('q', False),
    lambda s: s.check(['q']),
    lambda s: s.timeout,
    lambda s: s.set_timeout(SHORT),
    lambda s: s.timeout,
    lambda s: s.get('absent'),
    lambda s: s.multi_get(['n', 'absent']),
    lambda s: s.queue_pop('q'),
    lambda s: s.barrier('alone', 1),
    lambda s: s.barrier('two', 2),
    lambda s: s.set('n', 5),
    lambda s: s.add('n', '5'),
    lambda s: s.check('n'),
    lambda s: s.wait('n'),
]


def test_each_call_does_what_tcp_store_does(store, tcp):
    for number, step in enumerate(STEPS):
        assert outcome(lambda: step(store)) == outcome(lambda: step(tcp)), number  # pylint: disable=cell-var-from-loop


def test_an_error_names_the_missing_keys_and_the_store(store, address):
    store.set('here', '1')
    for call, keys in ((lambda: store.wait(['here', 'one', 'two'], SHORT), '/one, /two'),
                       (lambda: store.multi_get(['here', 'two']), '/two'),
                       (lambda: store.get('one'), '/one'),
                       (lambda: store.queue_pop('q'), '/q')):
        store.set_timeout(SHORT)
        with pytest.raises(dist.DistStoreError) as caught:
            call()
        assert str(caught.value) == (f'wait timeout after 50ms, keys: {keys} of '
                                     f'store "{store.name}" at {address}')
    with pytest.raises(dist.QueueEmptyError, match='queue is empty: q of store'):
        store.queue_pop('q', block=False)
    with pytest.raises(dist.DistStoreError, match='barrier timeout.*b of store.*1 of 2 have'):
        store.barrier('b', 2)


def test_wrong_arguments(store, address):
    with pytest.raises(ValueError, match='the name of the job is empty'):
        cohort.torch.Store('', address)
    with pytest.raises(ValueError):
        cohort.torch.Store('job', 'no address')
    with pytest.raises(ValueError, match='1024'):
        store.set('k' * 2000, '')
    with pytest.raises(dist.DistStoreError, match='1048576'):
        store.set('large', b'x' * (2 << 20))
    store.set('text', 'no number')
    with pytest.raises(dist.DistStoreError, match='add of store'):
        store.add('text', 1)
    with pytest.raises(ValueError, match='the queue .* takes 200 characters, and the most'):
        store.queue_push('q' * 200, '')
    with pytest.raises(TypeError):
        pickle.dumps(store)


def test_keys_and_queues_with_any_characters(store):
    names = ['a b', 'ä/€', '+2B', '"\n', '@:._-/', 'p/' * 40]
    for name in names:
        store.set(name, name)
    assert store.multi_get(names) == [name.encode() for name in names]
    assert sorted(store.list_keys()) == sorted(names)
    for name in names[:5]:
        store.queue_push('q' + name, name)
        assert store.check(['q' + name])
        assert store.queue_pop('q' + name) == name.encode()


def test_more_keys_and_bytes_than_one_call_takes(store):
    keys = [f'k{number}' for number in range(2500)]
    store.multi_set(keys, keys)
    assert store.num_keys() == 2500
    store.wait(keys)
    assert store.check(keys)
    assert store.multi_get(keys) == [key.encode() for key in keys]
    assert sorted(store.list_keys()) == sorted(keys)
    large = [b'x' * (700 << 10)] * 3
    store.multi_set(['l1', 'l2', 'l3'], large[:1] + [b'', b''])
    for number in range(3):
        store.set(f'l{number + 1}', large[number])
    assert store.multi_get(['l1', 'l2', 'l3']) == large


def test_a_key_that_is_asked_for_twice_is_no_wait(store):
    store.set_timeout(MINUTE)
    store.set('twice', '1')
    begin = time.monotonic()
    assert store.multi_get(['twice', 'twice']) == [b'1', b'1']
    assert time.monotonic() - begin < LONG / 2


def test_waits_end_when_the_key_or_the_queue_comes(store):
    def wait(call):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(call)
            yield
            yield waiting.result(LONG)
    for call, wake in ((lambda: store.get('later'), lambda: store.set('later', '1')),
                       (lambda: store.wait(['w1', 'w2']),
                        lambda: store.multi_set(['w1', 'w2'], ['', ''])),
                       (lambda: store.wait(['wq']), lambda: store.queue_push('wq', '')),
                       (lambda: store.queue_pop('pq'), lambda: store.queue_push('pq', ''))):
        steps = wait(call)
        next(steps)
        wake()
        next(steps)


def test_barrier_of_threads(store):
    clones = [store.clone() for _ in range(3)]
    def body(rank):
        for turn in range(4):
            clones[rank].add(f'arrived{turn}', 1)
            clones[rank].barrier(f'b{turn}', 3)
            assert store.get(f'arrived{turn}') == b'3'
        clones[rank].barrier('b0', 3)  # it does not wait
    run_ranks(3, body)
    for clone in clones:
        clone.close()


def test_clone_has_its_own_timeout(store):
    clone = store.clone()
    clone.set_timeout(SHORT)
    assert store.timeout == MINUTE and clone.timeout == SHORT
    clone.set('a', '1')
    assert store.get('a') == b'1'
    clone.close()
    assert store.get('a') == b'1'


def test_through_the_c_plus_plus_of_a_prefix_store(address, request):
    def make():
        return dist.PrefixStore('p', cohort.torch.Store(request.node.name, address))
    prefix = make()
    gc.collect()  # no Python object refers to the inner store
    prefix.set('a', '1')
    assert prefix.get('a') == b'1'
    assert prefix.add('n', 2) == 2
    assert prefix.compare_set('a', '1', '2') == b'2'
    assert prefix.check(['a', 'n'])
    assert prefix.delete_key('n') and not prefix.check(['n'])
    prefix.append('a', '3')
    prefix.multi_set(['x', 'y'], ['4', '5'])
    assert prefix.multi_get(['a', 'x', 'y']) == [b'23', b'4', b'5']
    assert prefix.num_keys() == 3
    assert prefix.has_extended_api()
    prefix.set_timeout(SHORT)
    assert prefix.timeout == SHORT
    with pytest.raises(dist.DistStoreError, match='50ms, keys: /p/absent of store'):
        prefix.get('absent')
    with pytest.raises(dist.DistStoreError, match='10ms, keys: /p/absent'):
        prefix.wait(['absent'], datetime.timedelta(milliseconds=10))
    prefix.barrier('alone', 1)
    assert prefix.clone().get('a') == b'23'


def test_jobs_have_keys_of_their_own(address):
    stores = [cohort.torch.Store(name, address) for name in ('job', 'job/a', 'job+2Fa', 'jo')]
    for number, store in enumerate(stores):
        store.set('a', str(number))
    assert [store.get('a') for store in stores] == [b'0', b'1', b'2', b'3']
    assert [store.num_keys() for store in stores] == [1] * 4
    for store in stores:
        store.close()


def test_keys_last_until_the_last_process_closes(address):
    first, second = (cohort.torch.Store('ends', address) for _ in range(2))
    first.set('a', '1')
    first.queue_push('q', '1')
    first.close()
    first.close()
    assert second.get('a') == b'1' and second.queue_len('q') == 1
    second.close()
    third = cohort.torch.Store('ends', address)
    assert not third.check(['a']) and third.queue_len('q') == 0
    with cohort.Store(address) as all_keys:
        begin = third.prefix[:third.prefix.index('ends/')] + 'ends/'
        assert all_keys.range(begin)[0] == []
    third.close()


def test_keys_of_killed_processes_end_with_their_lease(address):
    program = '''
import sys, cohort.torch
store = cohort.torch.Store("killed", sys.argv[1], lease=0.5)
store.set("a", "1")
store.queue_push("q", "1")
print(store.prefix)
sys.stdin.readline()
'''
    with rank_process(program, address) as process:
        prefix = process.stdout.readline().strip()
        watching = cohort.Store(address)
        with watching.watch('torch/job/killed', timeout=LONG) as changes:
            assert watching.get('torch/job/killed')  # it is renewed: more than one lease
            assert [next(changes).kind for _ in range(8)] == ['put'] * 8
            (client,) = watching.range('torch/client/killed/')[0]
            assert client.value == f'{socket.gethostname()}:{process.pid}'.encode()
            process.kill()
            assert any(change.kind == 'expired' for change in changes)
    assert watching.get(prefix + 'a') == b'1'
    other = cohort.torch.Store('other', address)  # it deletes the keys of ended jobs
    assert watching.range(prefix)[0] == []
    assert watching.queue_len(prefix + 'q') == 0
    other.close()
    watching.close()


def test_a_job_that_was_silent_too_long_says_so(address):
    keys = job_keys.JobKeys(cohort.Store(address), 'silent', address, LONG)
    store = cohort.torch.Store('silent', address)
    with cohort.Store(address) as all_keys:
        all_keys.put('torch/job/silent', 'another')
        store._keys._renew()  # pylint: disable=protected-access
    with pytest.raises(dist.DistStoreError, match='another job has taken the name'):
        store.get('a')
    store.close()
    keys.close()


def test_many_processes_begin_and_end_a_job_at_once(address):
    def body(rank):
        for turn in range(20):
            store = cohort.torch.Store('race', address)
            store.set(f'{rank}/{turn}', '1')
            assert store.get(f'{rank}/{turn}') == b'1'
            store.close()
    run_ranks(4, body)
    with cohort.Store(address) as all_keys:
        for kind in ('data', 'client', 'made', 'queue'):
            assert all_keys.range(f'torch/{kind}/race/')[0] == []


def test_it_survives_a_kill_of_the_coordinator():
    with restartable_coordinator() as running:
        store = cohort.torch.Store('survives', running.address, timeout=MINUTE)
        store.set('a', '1')
        store.add('n', 41)
        store.queue_push('q', '1')
        waiters = [lambda: store.get('later'), lambda: store.wait(['later', 'a']),
                   lambda: store.queue_pop('later queue')]
        with concurrent.futures.ThreadPoolExecutor(len(waiters)) as pool:
            waiting = [pool.submit(waiter) for waiter in waiters]
            for _ in range(100):
                store.check(['a'])  # meanwhile the coordinator gets the calls that wait
            running.kill()
            adding = threading.Thread(target=lambda: store.add('n', 1))
            adding.start()
            running.start()
            adding.join(LONG)
            store.set('later', 'value')
            store.queue_push('later queue', 'item')
            assert [future.result(LONG) for future in waiting] == [b'value', None, b'item']
        assert store.get('a') == b'1' and store.get('n') == b'42'
        assert store.queue_pop('q') == b'1'
        store.close()


def test_without_a_journal_the_loss_of_the_keys_is_an_error():
    with restartable_coordinator(journal=False) as running:
        store = cohort.torch.Store('lost', running.address, timeout=MINUTE)
        store.set('a', '1')
        running.kill()
        running.start()
        store._keys._renew()  # pylint: disable=protected-access
        with pytest.raises(dist.DistStoreError, match='it has restarted without a journal'):
            store.get('a')
        store.close()
        store = cohort.torch.Store('lost', running.address)
        assert store.num_keys() == 0
        store.close()


def test_calls_that_wait_tell_that_the_coordinator_lost_the_keys():
    with restartable_coordinator(journal=False) as running:
        store = cohort.torch.Store('lost', running.address, timeout=MINUTE)
        waiters = [lambda: store.get('later'), lambda: store.wait(['later', 'a']),
                   lambda: store.multi_get(['later']), lambda: store.queue_pop('later queue'),
                   lambda: store.barrier('later barrier', 100)]
        with concurrent.futures.ThreadPoolExecutor(len(waiters)) as pool:
            waiting = [pool.submit(waiter) for waiter in waiters]
            for _ in range(100):
                store.check(['a'])  # meanwhile the coordinator gets the calls that wait
            running.kill()
            running.start()
            begin = time.monotonic()
            for each in waiting:
                with pytest.raises(dist.DistStoreError, match='it has restarted without a journal'):
                    each.result(timeout=LONG)
            assert time.monotonic() - begin < 15
        store.close()


def test_wait_of_many_keys_has_one_timeout(address):
    store = cohort.torch.Store('many keys', address, timeout=MINUTE)
    keys = [f'key-{number}' for number in range(2500)]
    late = keys[::1000]
    store.multi_set([key for key in keys if key not in late], ['1'] * (len(keys) - len(late)))
    begin = time.monotonic()
    adding = threading.Timer(.9, store.set, [late[0], '1'])  # the first part waits for it
    adding.start()
    with pytest.raises(dist.DistStoreError, match='wait timeout after 1000ms'):
        store.wait(keys, datetime.timedelta(seconds=1))
    assert 1 <= time.monotonic() - begin < 1.7
    adding.join()
    store.close()


def test_an_unreachable_coordinator_is_a_network_error():
    with restartable_coordinator() as running:
        store = cohort.torch.Store('away', running.address, timeout=SHORT)
        store._patience = lambda: 0.2  # pylint: disable=protected-access
        running.kill()
        with pytest.raises(dist.DistNetworkError, match='set of store "away" at unix:'):
            store.set('a', '1')
        running.start()
        store.close()


GLOO = '''
import datetime, gc, sys
import torch, torch.distributed as dist
import cohort.torch
address, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", store=cohort.torch.Store(f"gloo{size}", address), rank=rank,
                        world_size=size, timeout=datetime.timedelta(seconds=60))
gc.collect()
sum = torch.tensor([rank + 1.0])
dist.all_reduce(sum)
assert sum.item() == size * (size + 1) / 2
pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
part = torch.tensor([float(rank)])
dist.all_reduce(part, group=pairs[rank // 2])
assert part.item() == rank // 2 * 4 + 1
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
model(torch.ones(3, 2) * rank).sum().backward()
assert torch.allclose(model.module.weight.grad, torch.full((1, 2), 3.0 * (size - 1) / 2))
gathered = [None] * size
dist.all_gather_object(gathered, {"rank": rank})
assert [item["rank"] for item in gathered] == list(range(size))
dist.monitored_barrier()
dist.barrier()
dist.destroy_process_group()
print("done")
'''


@pytest.mark.parametrize('size', [2, 4])
def test_gloo_process_group_and_ddp(address, size):
    ranks = [rank_process(GLOO, address, rank, size) for rank in range(size)]
    processes = [rank.__enter__() for rank in ranks]
    try:
        for process in processes:
            assert process.communicate(timeout=LONG * 2)[0] == 'done\n'
            assert process.returncode == 0
    finally:
        for rank in ranks:
            rank.__exit__(None, None, None)
