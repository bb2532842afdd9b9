"""send and recv of torch.distributed on the backend "cohort"."""

import pytest

import cohort
from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def matched(rank, size):
    if rank == 0:
        works = [dist.isend(torch.full((4,), float(tag)), 1, tag=tag) for tag in range(5)]
        works += [dist.isend(torch.full((2,), 10. * n), 1, tag=9) for n in range(3)]
        for work in works:
            work.wait()
            assert work.is_completed()
    else:
        for tag in reversed(range(5)):                  # another order than that of the sends
            x = torch.zeros(4)
            assert dist.recv(x, 0, tag=tag) == 0
            assert x.tolist() == [tag] * 4
        for n in range(3):                              # the order of the sends
            x = torch.zeros(2)
            dist.recv(x, 0, tag=9)
            assert x.tolist() == [10 * n] * 2


def test_messages_match_by_tag_and_in_order(address):
    run_torch_ranks(2, matched, address)


def from_any(rank, size):
    if rank == 0:
        sources = []
        for _ in range(2 * (size - 1)):
            x = torch.zeros(3, dtype=torch.int64)
            sources.append(dist.recv(x))
            assert x.tolist() == [sources[-1]] * 3
        assert sorted(sources) == sorted(2 * list(range(1, size)))
        x = torch.zeros(1)
        work = dist.irecv(x, tag=1)
        work.wait()
        assert work.source_rank() == work._source_rank() == 2 and x.item() == 5
    else:
        for _ in range(2):
            dist.send(torch.full((3,), rank, dtype=torch.int64), 0)
        if rank == 2:
            dist.send(torch.full((1,), 5.), 0, tag=1)


def test_receive_from_any_source(address):
    run_torch_ranks(4, from_any, address)


def ring(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (0, 1, 1000, 1 << 20):
        mine, theirs = torch.full((count,), float(rank)), torch.zeros(count)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right),
                                        dist.P2POp(dist.irecv, theirs, left)])
        for work in works:
            work.wait()
        assert torch.equal(theirs, torch.full((count,), float(left)))
    sends = [dist.isend(torch.full((100,), 1. * rank), r) for r in range(size)]  # also to itself
    parts = [torch.zeros(100) for _ in range(size)]
    receives = [dist.irecv(parts[r], r) for r in range(size)]
    for work in sends + receives:
        work.wait()
    assert [x[0].item() for x in parts] == list(range(size))
    column = torch.zeros(3, 3)
    receive = dist.irecv(column[:, 1], left)
    dist.send(torch.eye(3)[:, 1] + rank, right)
    receive.wait()
    assert column.tolist() == [[0, left, 0], [0, left + 1, 0], [0, left, 0]]


def test_exchanges_around_a_ring_do_not_deadlock(address):
    run_torch_ranks(3, ring, address)


def beside_collectives(rank, size):
    x = torch.zeros(5)
    receive = dist.irecv(x, 1 - rank, tag=7)
    for _ in range(20):
        y = torch.ones(100)
        dist.all_reduce(y)
        work = dist.all_reduce(y, async_op=True)
        dist.barrier()
        work.wait()
    assert not receive.is_completed()
    dist.barrier()
    dist.send(torch.full((5,), float(rank)), 1 - rank, tag=7)
    receive.wait()
    assert x.tolist() == [1 - rank] * 5


def test_a_receive_is_pending_while_collectives_run(address):
    run_torch_ranks(2, beside_collectives, address)


def while_a_collective_waits(rank, size):
    import threading
    for in_thread in (False, True):
        x, y = torch.ones(10), torch.zeros(1)
        if rank == 0:
            if in_thread:
                thread = threading.Thread(target=dist.all_reduce, args=(x,))
                thread.start()
            else:
                work = dist.all_reduce(x, async_op=True)      # waits for rank 1
            dist.recv(y, 1)                                   # longer than a look at the group
            dist.send(y, 1)
            thread.join() if in_thread else work.wait()
        else:
            begin = time.monotonic()
            while time.monotonic() < begin + 1:               # rank 1 computes
                torch.ones(100, 100) @ torch.ones(100, 100)
            dist.send(torch.ones(1), 0)
            dist.recv(y, 0)
            dist.all_reduce(x)
        assert y.item() == 1 and x[0].item() == 2


def test_messages_do_not_wait_for_a_collective(address):
    run_torch_ranks(2, while_a_collective_waits, address, timeout=20)


def sent_before_leaving(rank, size):
    if rank == 0:
        dist.send(torch.full((3,), 7.), 1)
        dist.destroy_process_group()
        return
    x = torch.zeros(3)
    dist.recv(x, 0)
    assert x.tolist() == [7] * 3
    dist.destroy_process_group()


def test_a_send_is_over_when_the_receiver_has_the_message(address):
    run_torch_ranks(2, sent_before_leaving, address, farewell=0)


def test_no_key_is_left_at_the_coordinator(address):
    run_torch_ranks(2, sent_before_leaving, address)
    with cohort.Store(address) as store:
        assert store.range('torch-messages/')[0] == []


def types(rank, size):
    for dtype in (torch.bool, torch.bfloat16, torch.float8_e4m3fnuz, torch.complex64, torch.int16):
        x = torch.tensor([rank, 1, 0]).to(dtype)
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
            assert torch.equal(x.view(torch.uint8), torch.tensor([0, 1, 0]).to(dtype).view(
                torch.uint8)), dtype
    if rank == 0:
        dist.send(torch.zeros(3), 1)
        dist.send(torch.ones(2), 1)
        return None
    try:
        dist.recv(torch.zeros(2), 0)
    except RuntimeError as error:
        x = torch.zeros(2)
        dist.recv(x, 0)
        assert x.tolist() == [1, 1]
        return str(error)
    raise AssertionError('expected an error')


def test_types_and_a_wrong_size(address):
    error = run_torch_ranks(2, types, address)[1]
    assert 'recv from rank 0 with tag 0' in error and 'sent 12 bytes, expected the 8' in error


def subgroup(rank, size):
    group = dist.new_group([0, 2])
    if rank == 1:
        return
    if rank == 0:
        dist.send(torch.ones(1), group_dst=1, group=group)
        dist.send(torch.full((1,), 2.), dst=2, group=group)
    else:
        x = torch.zeros(1)
        assert dist.recv(x, group=group) == 0 and x.item() == 1
        assert dist.recv(x, src=0, group=group) == 0 and x.item() == 2


def test_messages_of_a_subgroup(address):
    run_torch_ranks(3, subgroup, address)
