"""A training that a test runs on ranks of torch.distributed; see torch_ranks.py."""

# pylint: disable=undefined-variable  # it runs with the names of torch_ranks.py


def train(rank, size, kind, device):
    """The losses are those of one process. `kind`: "ddp" or "fsdp2", or one of them " with a
    hook". That of FSDP2 starts a call whose callback starts another one."""
    def make():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(),
                                   torch.nn.BatchNorm1d(50), torch.nn.Linear(50, 3)).to(device)

    def losses(model, rows, reduce):
        optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
        found = []
        for step in range(10):
            torch.manual_seed(step)
            batch, target = torch.randn(12, 20).to(device), torch.randn(12, 3).to(device)
            optimizer.zero_grad()
            loss = ((model(batch[rows]) - target[rows]) ** 2).mean()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            if reduce:
                dist.all_reduce(mean, dist.ReduceOp.AVG)
            found.append(mean.item())
        return found

    part = slice(rank * 12 // size, (rank + 1) * 12 // size)
    model = make()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.eval()
            module.requires_grad_(False)
    alone = make()
    alone[2].eval().requires_grad_(False)
    expected = losses(alone, slice(None), False)
    if kind == 'ddp':
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model, bucket_cap_mb=.001)
    elif kind == 'ddp with a hook':
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model)
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        hooked = kind == 'fsdp2 with a hook'
        mesh = (init_device_mesh(device, (size, 1), mesh_dim_names=('copies', 'parts')) if hooked
                else init_device_mesh(device, (size,)))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        first, second = torch.ones(1, device=device), torch.ones(1, device=device)

        def hook(_):
            started = dist.all_reduce(first, dist.ReduceOp.AVG, async_op=True)
            started.get_future().then(lambda _: dist.all_reduce(second, dist.ReduceOp.SUM)).wait()
        if hooked:
            model[0].set_all_reduce_hook(hook)
            model.set_all_reduce_hook(hook)
    found = losses(model, part, True)
    if kind == 'fsdp2 with a hook':
        assert first == 1 and second == size ** 20, (first, second)  # 10 steps of two parts
    tolerance = 1e-4 if device == 'cpu' else 1e-3
    assert torch.allclose(torch.tensor(found), torch.tensor(expected), rtol=tolerance), (
        found, expected)
