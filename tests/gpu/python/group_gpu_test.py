"""cohort.Group with tensors on a GPU, which all ranks share: each rank is a process."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
if not torch.cuda.is_available():
    pytest.skip('PyTorch has no GPU', allow_module_level=True)

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def collectives(rank, size, heap):
    with cohort.Group('direct', rank=rank, world_size=size, timeout=60,
                      address=os.environ['COHORT_ADDRESS'], device='cuda:0',
                      device_heap_bytes=heap) as group:
        assert (group.placement, group.device) == ('both', 'cuda:0')
        own = group.empty(1000, torch.float32, device='cuda')
        assert own.is_cuda
        own.fill_(rank + 1)
        total = size * (size + 1) / 2
        result = group.all_reduce(own)
        assert result.is_cuda and result.eq(total).all().item()
        group.all_reduce(own, out=own)
        own.div_(size)
        group.await_streams()
        assert own.eq(total / size).all().item()
        every = group.all_gather(torch.full((2, 3), rank, dtype=torch.bfloat16, device='cuda'))
        assert every.shape[0] == 2 * size, every.shape
        assert every.float()[::2, 0].tolist() == list(range(size))
        part = group.reduce_scatter(torch.arange(4 * size, device='cuda'))
        assert part.tolist() == [size * (4 * rank + i) for i in range(4)]
        swapped = group.all_to_all(torch.full((size, 2), rank, device='cuda'))
        assert swapped[:, 0].tolist() == list(range(size))
        b = group.broadcast(torch.full((3,), rank, device='cuda'), 1)
        assert b.tolist() == [1] * 3
        calls = [group.all_reduce(torch.ones(10, device='cuda'), wait=False) for _ in range(5)]
        assert [call.wait(60)[0].item() for call in calls] == [size] * 5
        first, second = torch.ones(3, device='cuda'), torch.ones(4, device='cuda')
        group.all_reduce_coalesced([first, second], out=[first, second])
        assert first.tolist() + second.tolist() == [size] * 7
        host = group.all_reduce(np.ones(3))
        assert host.tolist() == [size] * 3
        group.all_gather_objects(b'')         # no rank leaves before all are through


@pytest.mark.parametrize('heap', [0, 64 << 20])
def test_collectives(address, heap):
    run_torch_ranks(2, collectives, address, heap)


def maps(rank, size):
    with cohort.Group('maps', rank=rank, world_size=size, timeout=60,
                      address=os.environ['COHORT_ADDRESS'], device=0) as group:
        x = torch.arange(6., device='cuda').reshape(2, 3)
        if rank == 0:
            group.send_map({'x': x, 'h': x.half(), 'host': torch.ones(2), 'step': 3}, 1)
        else:
            got = group.receive_map(0, tensors='torch')
            assert got['x'].is_cuda and torch.equal(got['x'], x), got
            assert got['h'].dtype == torch.float16 and torch.equal(got['h'], x.half())
            assert not got['host'].is_cuda and got['step'] == 3
        everywhere = group.broadcast_map({'y': x + 1} if rank == 1 else None, 1,
                                         tensors='torch')
        assert torch.equal(everywhere['y'], x + 1)
        if rank == 0:
            group.send(torch.full((1 << 20,), 7., device='cuda'), 1)
        else:
            y = group.receive(torch.empty(1 << 20, device='cuda'), 0)
            assert y.eq(7).all().item()
        shifted = cohort.ring_shift(group, torch.full((4,), float(rank), device='cuda'), 1)
        assert shifted.tolist() == [1 - rank] * 4
        group.all_gather_objects(b'')


def test_maps_and_messages(address):
    run_torch_ranks(2, maps, address)


def experts(rank, size):
    placement = cohort.moe.ExpertPlacement.blocks(experts=size, ranks=size)
    with cohort.Group('experts', rank=rank, world_size=size, timeout=60,
                      address=os.environ['COHORT_ADDRESS'], device=0) as group:
        hidden = torch.full((5, 8), rank + 1., device='cuda')
        ids = torch.full((5, 1), 1 - rank, dtype=torch.int32, device='cuda')
        weights = torch.full((5, 1), .5, device='cuda')
        batch = cohort.moe.dispatch_to_experts(group, hidden, ids, weights, placement)
        outputs = torch.zeros_like(batch.hidden)
        for rows in batch.expert_rows:
            outputs[rows] = 2 * batch.hidden[rows] * batch.weights[rows]
        back = cohort.moe.combine_from_experts(group, batch, outputs)
        assert torch.equal(back, hidden), back
        group.all_gather_objects(b'')


def test_experts(address):
    run_torch_ranks(2, experts, address)


def rejoined(rank, size):
    with cohort.Group('again', rank=rank, world_size=size, timeout=60,
                      address=os.environ['COHORT_ADDRESS'], device=0) as group:
        x = torch.ones(10, device='cuda')
        group.all_reduce(x, out=x)
        torch.cuda.synchronize()
        if rank == 0:
            group.abort('for the test')
        else:
            begin = time.monotonic()
            try:
                while time.monotonic() - begin < 30:
                    group.all_reduce(x, out=x)
                    group.await_streams()
                raise AssertionError('expected an error')
            except cohort.Aborted as error:
                assert 'for the test' in str(error), error
        group.rejoin(60)
        x = torch.full((10,), rank + 1., device='cuda')
        group.all_reduce(x, out=x)
        group.await_streams()
        assert x.tolist() == [3] * 10
        group.all_gather_objects(b'')


def test_rejoin(address):
    run_torch_ranks(2, rejoined, address)


def of_cupy(rank, size):
    import cupy
    with cohort.Group('cupy', rank=rank, world_size=size, timeout=60,
                      address=os.environ['COHORT_ADDRESS'], device=0) as group:
        x = cupy.full(100, rank + 1, dtype=cupy.float32)
        group.all_reduce(x, out=x)
        group.await_streams()
        assert (x.get() == 3).all()
        group.all_gather_objects(b'')


def test_arrays_of_cupy(address):
    pytest.importorskip('cupy', reason='CuPy is not installed for this Python')
    run_torch_ranks(2, of_cupy, address)
