"""Ends of messages and of asynchronous calls that no thread waits for."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def unobserved(rank, size, event, how):
    group = dist.new_group(timeout=seconds(1 if event == 'timeout' else 60))
    if rank == 1:
        dist.barrier()
        if event == 'death':
            os.kill(os.getpid(), signal.SIGKILL)
        dist.group.WORLD.get_group_store().wait(['ended'])
        return None
    works = [dist.irecv(torch.ones(1), 1, group=group), dist.isend(torch.ones(1), 1, group=group)]
    found = [work.get_future() for work in works] if how == 'future' else works
    dist.barrier()
    begin = time.monotonic()
    if event == 'close':
        dist.destroy_process_group(group)
    texts = []
    for work, each in zip(works, found):
        if how == 'future':
            try:
                each.wait()
            except RuntimeError as error:
                texts.append(str(error))
        else:
            while not each.is_completed():
                assert time.monotonic() - begin < 30
                time.sleep(.001)
            texts.append(str(work.exception()))
    duration = time.monotonic() - begin
    dist.group.WORLD.get_group_store().set('ended', '')
    return texts, duration


@pytest.mark.parametrize('how', ['future', 'is_completed'])
@pytest.mark.parametrize('event, word', [('death', 'rank 1'), ('timeout', 'after 1 s'),
                                         ('close', 'destroyed')])
def test_messages_end_although_no_thread_waits(address, event, word, how):
    killed = [1] if event == 'death' else []
    texts, duration = run_torch_ranks(2, unobserved, address, event, how, killed=killed)[0]
    assert len(texts) == 2 and all(word in text for text in texts), texts
    assert duration < 5


def late_message(rank, size):
    group = dist.new_group(timeout=seconds(.5))
    store = dist.group.WORLD.get_group_store()
    if rank == 1:
        store.wait(['timed out'])
        group.set_timeout(seconds(60))
        dist.send(torch.full((1,), 7.), 0, group=group)
        return None
    first, second = torch.ones(1), torch.ones(1)
    try:
        dist.recv(first, 1, group=group)
    except cohort.DeadlineExceeded:
        group.set_timeout(seconds(60))
        store.set('timed out', '')
        dist.recv(second, 1, group=group)
    return first.item(), second.item()


def test_a_message_after_a_timeout_goes_to_the_next_receive(address):
    assert run_torch_ranks(2, late_message, address)[0] == (1, 7)


def ordered(rank, size):
    store = dist.group.WORLD.get_group_store()
    x = torch.full((4,), rank + 1.)
    if rank == 1:
        store.wait(['rank 0 has started both'])
    first = dist.all_reduce(x, async_op=True)
    outputs = [torch.empty(4) for _ in range(size)] if rank == 0 else None
    y = torch.full((4,), rank + 10.)
    second = dist.gather(y, outputs, dst=0, async_op=True)
    store.set('rank 0 has started both', '') if rank == 0 else None
    first.wait()
    second.wait()
    return x.tolist(), [each[0].item() for each in outputs or []]


def test_a_function_does_not_overtake_a_collective(address):
    assert run_torch_ranks(2, ordered, address) == [([3.] * 4, [10., 11.]), ([3.] * 4, [])]


def interrupted(rank, size):
    outputs = [torch.empty(1) for _ in range(size)]
    if rank == 1:
        try:
            dist.recv(torch.ones(1), 0)
        except RuntimeError as error:
            return str(error)
        return 'no error'
    import threading
    work = dist.all_gather(outputs, torch.ones(1), async_op=True)
    main = threading.main_thread().ident
    threading.Timer(.2, signal.pthread_kill, [main, signal.SIGINT]).start()
    try:
        work.wait()
    except KeyboardInterrupt:
        return 'interrupted'
    return 'no interrupt'


def test_an_interrupt_of_a_wait_aborts_the_group(address):
    first, second = run_torch_ranks(2, interrupted, address)
    assert first == 'interrupted'
    assert 'rank 0 aborted: KeyboardInterrupt' in second


def left_by_another(rank, size, kind, is_open):
    store = dist.group.WORLD.get_group_store()
    x, y = torch.zeros(3), torch.zeros(3)
    if is_open:  # channels from the leaver, and between the others
        for source in (0, 1):
            if rank == source:
                dist.send(y, 2)
            elif rank == 2:
                dist.recv(y, source)
    if rank == 0:
        store.wait(['waits'])
        dist.destroy_process_group()
        return None
    if rank == 1:
        store.wait(['noticed'])
        dist.send(torch.full((3,), 7.), 2)
        dist.recv(x, 2)
        return x.tolist()
    if kind == 'batch':
        pending, = dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 1)])
    else:
        pending = dist.irecv(x, 1 if kind == 'rank' else None)
    of_leaver = dist.irecv(y, 0)
    store.set('waits', '')
    try:
        of_leaver.wait()
        raise AssertionError('expected an error')
    except cohort.Aborted as error:
        assert 'rank 0 left' in str(error), error
    store.set('noticed', '')
    pending.wait()
    dist.send(x, 1)
    return x.tolist()


@pytest.mark.parametrize('kind', ['rank', 'any', 'batch'])
@pytest.mark.parametrize('is_open', [False, True])
def test_a_rank_that_leaves_ends_only_its_own_messages(address, kind, is_open):
    assert run_torch_ranks(3, left_by_another, address, kind, is_open) == [None, [7] * 3, [7] * 3]


def left_one_after_the_other(rank, size, kind, is_noticed):
    group = dist.new_group()
    texts = []

    def message(peer):
        work = (dist.isend if kind == 'send' else dist.irecv)(torch.ones(1), peer, group=group)
        try:
            work.wait()
        except cohort.Aborted as error:
            texts.append(str(error))

    for each in (2, 1):  # rank 3 stays
        if rank == each:
            dist.destroy_process_group(group)
        dist.barrier()
        if rank == 0 and is_noticed:
            message(each)
        dist.barrier()
    if rank == 0:
        for peer in (2, 1):
            message(peer)
    return texts


@pytest.mark.parametrize('is_noticed', [False, True])
@pytest.mark.parametrize('kind', ['send', 'recv'])
def test_a_message_names_the_rank_that_it_needs(address, kind, is_noticed):
    texts = run_torch_ranks(4, left_one_after_the_other, address, kind, is_noticed)[0]
    assert len(texts) == (4 if is_noticed else 2)
    for rank, text in zip((2, 1, 2, 1), texts):
        assert f'rank {rank} ' in text and f'rank {3 - rank} ' not in text, text


def send_after_a_timeout(rank, size, is_open):
    group = dist.new_group()
    store = dist.group.WORLD.get_group_store()
    texts = []
    if is_open:
        (dist.send if rank == 0 else dist.recv)(torch.zeros(1), 1 - rank, group=group)
    if rank == 0:
        group.set_timeout(seconds(.5))
        late = dist.isend(torch.tensor([1.]), 1, group=group)
        behind = dist.isend(torch.tensor([2.]), 1, group=group)
        for work in (late, behind):
            try:
                work.wait()
            except cohort.DeadlineExceeded as error:
                texts.append(str(error))
        group.set_timeout(seconds(60))
        store.set('late', '')
    else:
        store.wait(['late'])
    for value in (3., 4.):
        x = torch.full((1,), value * (rank == 0))
        try:
            (dist.send if rank == 0 else dist.recv)(x, 1 - rank, group=group)
            texts.append(f'rank {rank} has {x.item()}')
        except cohort.Error as error:
            texts.append(str(error))
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    return texts, x.item()


@pytest.mark.parametrize('is_open', [False, True])
def test_a_send_that_has_timed_out_does_not_arrive(address, is_open):
    (sent, of_sender), (received, of_receiver) = run_torch_ranks(
        2, send_after_a_timeout, address, is_open)
    assert of_sender == of_receiver == 2
    assert len(sent) == 4 and all('after 0.5 s' in text for text in sent[:2])
    if is_open:  # the channel has ended with the late send, whose text the later messages have
        assert all('send to rank 1' in text and 'after 0.5 s' in text
                   for text in sent[2:] + received), (sent, received)
    else:
        assert received == ['rank 1 has 3.0', 'rank 1 has 4.0'], (sent, received)


def no_such_rank(rank, size):
    texts, begin = [], time.monotonic()
    for peer in (7, -1, 'x'):
        for call in (lambda peer: dist.send(torch.ones(1), peer),
                     lambda peer: dist.recv(torch.ones(1), peer),
                     lambda peer: dist.isend(torch.ones(1), peer).wait(),
                     lambda peer: dist.irecv(torch.ones(1), peer).wait(),
                     lambda peer: dist.send_object_list(['x'], peer),
                     lambda peer: dist.recv_object_list([None], peer)):
            try:
                call(peer)
            except (cohort.InvalidArgument, ValueError, TypeError) as error:
                texts.append(str(error))
    assert time.monotonic() - begin < 10
    x, other = torch.zeros(1), torch.tensor(1 - rank)  # a number that is no int
    work = dist.isend(torch.ones(1), other)
    dist.recv(x, other)
    work.wait()
    dist.all_reduce(x)
    return len(texts), x.item()


def test_a_message_of_no_rank_is_refused_at_once(address):
    assert run_torch_ranks(2, no_such_rank, address) == [(18, 2)] * 2
