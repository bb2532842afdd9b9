"""Calls of the backend "cohort" in functions that torch.compile has compiled."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def compiled(rank, size):
    """Ranks 2 and 3 call; each function returns what a call that is not compiled returns."""
    group = dist.new_group([2, 3])
    if rank < 2:
        dist.barrier()
        return None

    def send(x):
        dist.send(x, 3, group=group) if rank == 2 else dist.recv(x, 2, group=group)
        return x + 1

    def send_by_group_rank(x):
        if rank == 2:
            dist.send(x, group=group, group_dst=1)
        else:
            dist.recv(x, group=group, group_src=0)
        return x + 1

    def batch(x):
        y = torch.empty_like(x)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 5 - rank, group),
                                        dist.P2POp(dist.irecv, y, 5 - rank, group)])
        for work in works:
            work.wait()
        return y + 1

    def broadcast(x):
        dist.broadcast(x, 3, group=group)
        dist.broadcast(x, group=group, group_src=1)
        return x + 1

    def reduce(x):
        dist.reduce(x, 3, group=group)
        return x + 1 if rank == 3 else x[:0]

    def scatter(x):
        dist.scatter(x, [x + 1, x + 2] if rank == 2 else None, src=2, group=group)
        return x + 1

    def gather(x):
        outputs = [torch.empty_like(x) for _ in range(2)] if rank == 3 else None
        dist.gather(x, outputs, dst=3, group=group)
        return x if outputs is None else outputs[0] + 2 * outputs[1]

    def barrier(x):
        dist.barrier(group)
        return x + 1

    def asynchronous(x):
        work = dist.all_reduce(x, group=group, async_op=True)
        work.wait()
        return x + 1

    for function in (send, send_by_group_rank, batch, broadcast, reduce, scatter, gather, barrier,
                     asynchronous):
        torch._dynamo.reset()
        expected = function(torch.full((3,), float(rank)))
        found = torch.compile(function, backend='eager')(torch.full((3,), float(rank)))
        assert torch.equal(found, expected), (function.__name__, found, expected)
    dist.barrier()
    return 'equal'


def test_compiled_calls_in_a_subgroup(address):
    assert run_torch_ranks(4, compiled, address)[2:] == ['equal', 'equal']
