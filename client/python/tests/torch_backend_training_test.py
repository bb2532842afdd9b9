"""DDP, FSDP2, DTensor, checkpoints and functional collectives on the backend "cohort"."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks
from testing.training import train

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


@pytest.mark.parametrize('kind', ['ddp', 'ddp with a hook', 'fsdp2', 'fsdp2 with a hook'])
def test_losses_are_those_of_one_process(address, kind):
    run_torch_ranks(2, train, address, kind, 'cpu')


def uneven(rank, size):
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    with model.join():
        for _ in range(3 + rank):
            model(torch.ones(1, 2)).sum().backward()
    model = DistributedDataParallel(torch.nn.Linear(2, 2), find_unused_parameters=True)
    model(torch.ones(1, 2)).sum().backward()


def test_ddp_with_uneven_inputs(address):
    run_torch_ranks(2, uneven, address)


def tensors(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('dp', 'tp'))
    torch.manual_seed(0)
    a, b = torch.randn(8, 6), torch.randn(6, 10)
    x = distribute_tensor(a, mesh, [Shard(0), Replicate()])
    w = distribute_tensor(b, mesh, [Replicate(), Shard(1)])
    y = x @ w
    assert torch.allclose(y.full_tensor(), a @ b, atol=1e-5)
    assert torch.allclose(y.redistribute(mesh, [Replicate(), Replicate()]).to_local(), a @ b,
                          atol=1e-5)
    rows = distribute_tensor(b, mesh, [Replicate(), Shard(0)])
    z = distribute_tensor(a, mesh, [Shard(0), Shard(1)]) @ rows      # a partial sum
    assert torch.allclose(z.full_tensor(), a @ b, atol=1e-5)
    scattered = z.redistribute(mesh, [Shard(0), Shard(1)])
    assert torch.allclose(scattered.full_tensor(), a @ b, atol=1e-5)
    turned = distribute_tensor(a, mesh, [Shard(0), Replicate()]).redistribute(
        mesh, [Shard(1), Replicate()])
    assert torch.equal(turned.full_tensor(), a)
    uneven = distribute_tensor(torch.arange(7.), mesh, [Shard(0), Replicate()])
    assert torch.equal(uneven.full_tensor(), torch.arange(7.))
    assert torch.allclose(x.sum().full_tensor(), a.sum(), atol=1e-5)


def test_dtensor(address):
    run_torch_ranks(4, tensors, address)


def functional(rank, size):
    from torch.distributed import _functional_collectives as f
    group = dist.group.WORLD
    x = torch.full((2,), rank + 1.)
    assert f.all_reduce(x, 'sum', group).tolist() == [3, 3]
    assert f.all_gather_tensor(x, 0, group).tolist() == [1, 1, 2, 2]
    assert f.reduce_scatter_tensor(torch.ones(4), 'avg', 0, group).tolist() == [1, 1]
    assert f.broadcast(x, 1, group).tolist() == [2, 2]
    assert f.all_to_all_single(x, None, None, group).tolist() == [1, 2]
    assert [y.tolist() for y in f.all_reduce_coalesced([x, x], 'max', group)] == [[2, 2]] * 2
    assert [y.tolist() for y in f.all_gather_into_tensor_coalesced([x], group)] == [[1, 1, 2, 2]]
    y = x.clone().requires_grad_()
    from torch.distributed.nn import functional as with_gradients
    with_gradients.all_reduce(y).sum().backward()
    assert y.grad.tolist() == [2, 2]


def test_functional_collectives(address):
    run_torch_ranks(2, functional, address)


def saved(rank, size, folder):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def make(seed):
        torch.manual_seed(seed)
        model = torch.nn.Linear(10, 6)
        fully_shard(model, mesh=init_device_mesh('cpu', (size,)))
        return model
    model = make(1)
    checkpoint.save(model.state_dict(), checkpoint_id=folder)
    other = make(2)
    state = other.state_dict()
    checkpoint.load(state, checkpoint_id=folder)
    other.load_state_dict(state)
    for x, y in zip(model.parameters(), other.parameters()):
        assert torch.equal(x.full_tensor(), y.full_tensor())
    future = checkpoint.async_save(model.state_dict(), checkpoint_id=folder + '-async')
    future.result()


def test_checkpoints(address, tmp_path):
    run_torch_ranks(2, saved, address, str(tmp_path / 'checkpoint'))
