"""Streams, futures, messages and wrong arguments of torch.distributed over the backend "cohort". The
ranks share a GPU."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
if not torch.cuda.is_available():
    pytest.skip('PyTorch has no GPU', allow_module_level=True)

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def memory(rank, size):
    """A tensor whose only owner is the work is not reused before the work is done."""
    side = torch.cuda.Stream()
    count = 1 << 20
    expected = sum(range(size))
    for step in range(20):
        with torch.cuda.stream(side):
            x = torch.full((count,), float(rank + step), device='cuda')
            torch.cuda._sleep(2_000_000)
            work = dist.all_reduce(x, async_op=True)
            result = work.result()[0]
            del x
            torch.full((count,), -1., device='cuda')
        work.wait()                           # the default stream waits for the side stream
        copy = result * 1
        assert copy.eq(expected + size * step).all().item(), step
        del result, work


def futures(rank, size):
    """The future's wait and its callbacks order their streams after the work."""
    side = torch.cuda.Stream()
    for step in range(10):
        with torch.cuda.stream(side):
            x = torch.full((1 << 20,), float(rank), device='cuda')
            torch.cuda._sleep(3_000_000)
            x += step
            future = dist.all_reduce(x, async_op=True).get_future()
        halved = future.then(lambda f: f.value()[0] / 2)
        assert halved.wait().eq((sum(range(size)) + size * step) / 2).all().item()
    work = dist.all_reduce(torch.ones(3, device='cuda'), async_op=True)
    begin = time.monotonic()
    while not work.is_completed():
        assert time.monotonic() - begin < 20
    assert work.is_success()


def callbacks(rank, size):
    """A callback starts a collective and waits for it."""
    x = torch.full((1 << 16,), float(rank), device='cuda')
    y = torch.ones(1 << 16, device='cuda')

    def second(future):
        z = future.value()[0] + 1
        dist.all_reduce(z)
        return z
    chained = dist.all_reduce(x, async_op=True).get_future().then(second)
    dist.all_reduce(y)
    total = sum(range(size))
    assert chained.wait().eq(size * (total + 1)).all().item()
    assert y.eq(size).all().item()


def batches(rank, size):
    """All ranks send before they receive, and more than any buffer takes."""
    count = 16 << 20
    x = torch.full((count,), float(rank), device='cuda')
    y, z = torch.zeros(count, device='cuda'), torch.zeros(count, device='cuda')
    after, before = (rank + 1) % size, (rank - 1) % size
    for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, x, after), dist.P2POp(dist.isend, x, before),
            dist.P2POp(dist.irecv, y, before), dist.P2POp(dist.irecv, z, after)]):
        work.wait()
    assert y.eq(before).all().item() and z.eq(after).all().item()
    with dist._coalescing_manager(device=torch.device('cuda:0'), async_ops=True) as manager:
        dist.isend(x, after)
        dist.irecv(y.zero_(), before)
    manager.wait()
    assert y.eq(before).all().item()
    parts = [torch.full((1000,), float(rank + part), device='cuda') for part in range(4)]
    with dist._coalescing_manager(device=torch.device('cuda:0'), async_ops=True) as manager:
        for part in parts:
            dist.all_reduce(part)
    manager.wait()
    assert [part[0].item() for part in parts] == [
        sum(range(size)) + size * part for part in range(4)]


def uneven(rank, size):
    """Lists of tensors of different sizes."""
    parts = [torch.empty(other + 1, device='cuda') for other in range(size)]
    dist.all_gather(parts, torch.full((rank + 1,), float(rank), device='cuda'))
    assert [part.tolist() for part in parts] == [[other] * (other + 1) for other in range(size)]
    own = torch.empty(rank + 1, device='cuda')
    dist.reduce_scatter(own, [torch.full((other + 1,), float(other), device='cuda')
                              for other in range(size)])
    assert own.tolist() == [rank * size] * (rank + 1)


def compiled(rank, size):
    """torch.compile of functional collectives."""
    from torch.distributed import _functional_collectives as functional

    @torch.compile(backend='eager', fullgraph=True)
    def step(x):
        total = functional.all_reduce(x + 1, 'sum', dist.group.WORLD)
        every = functional.all_gather_tensor(total * 2, 0, dist.group.WORLD)
        return functional.reduce_scatter_tensor(every, 'sum', 0, dist.group.WORLD) + 1
    x = torch.full((8,), float(rank), device='cuda')
    total = sum(range(size)) + size
    assert step(x).tolist() == [2 * total * size + 1] * 8


@pytest.mark.parametrize('body', [memory, futures, callbacks, batches, uneven, compiled],
                         ids=lambda body: body.__name__)
def test_streams(address, body):
    run_torch_ranks(3, body, address, device='cuda:0')


def trained(rank, size, hook):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
    from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization
    from torch.nn.parallel import DistributedDataParallel
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(40, 60, bias=False), torch.nn.ReLU(),
        torch.nn.Linear(60, 30, bias=False)).to('cuda'), device_ids=[0], bucket_cap_mb=.01)
    state = dist.group.WORLD
    if 'SGD' in hook:
        state = power.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2,
                                    min_compression_rate=1)
    model.register_comm_hook(state, next(
        getattr(module, hook) for module in (power, quantization, default_hooks)
        if hasattr(module, hook)))
    optimizer = torch.optim.SGD(model.parameters(), lr=.3)
    torch.manual_seed(2)
    target = torch.randn(30, 40, device='cuda')
    losses = []
    for _ in range(20):
        torch.manual_seed(rank)
        batch = torch.randn(64, 40).to('cuda')
        optimizer.zero_grad()
        loss = ((model(batch) - batch @ target.t()) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(gathered, weights)
    assert torch.equal(gathered[0], gathered[1])
    assert min(losses) < .8 * losses[0], losses


@pytest.mark.parametrize('hook', ['powerSGD_hook', 'quantization_pertensor_hook',
                                  'bf16_compress_hook'])
def test_hooks_of_pytorch_train(address, hook):
    run_torch_ranks(2, trained, address, hook, device='cuda:0')


def bound(rank, size):
    assert dist.group.WORLD.cohort_group.device == 'cuda:0'
    alone = dist.new_group([size - 1])
    if rank == size - 1:
        assert alone.cohort_group.device == 'cuda:0'
        x = torch.ones(2, device='cuda:0')
        dist.all_reduce(x, group=alone)
        assert x.tolist() == [1, 1]
    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        x = torch.full((2,), float(rank), device='cuda:0')
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [size - 1] * 2
    dist.barrier()


def test_the_bound_device_is_that_of_subgroups_too(address):
    run_torch_ranks(2, bound, address, device='cuda:0')


def on_host_alone(rank, size):
    x = torch.full((1000,), float(rank))
    dist.all_reduce(x)
    objects = [None] * size
    dist.all_gather_object(objects, rank)
    assert x[0].item() == sum(range(size)) and objects == list(range(size))
    assert not torch.cuda.is_initialized()
    opened = [os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd')
              if os.path.exists(f'/proc/self/fd/{name}')]
    assert not [name for name in opened if '/dev/nvidia' in name], opened
    try:
        dist.all_reduce(torch.ones(1, device='cuda'))
    except RuntimeError as error:
        assert 'device_id' in str(error), error
    else:
        raise AssertionError('expected an error')


def test_a_program_of_host_memory_opens_no_gpu(address):
    run_torch_ranks(2, on_host_alone, address)


def refused(rank, size, kind):
    x = torch.ones(16, device='cuda')
    dist.all_reduce(x)
    torch.cuda.synchronize()
    begin = time.monotonic()
    try:
        if kind == 'reduction':
            dist.all_reduce(x, dist.ReduceOp.BAND if rank == 1 else dist.ReduceOp.SUM)
        elif kind == 'list':
            dist.all_gather([torch.empty_like(x)] * (size - (rank == 1)), x)
        elif kind == 'type':
            out = torch.empty(16 * size, device='cuda')
            dist.all_gather_into_tensor(out, x.double() if rank == 1 else x)
        else:
            dist.all_gather([torch.empty_like(x) for _ in range(size)], 1 if rank == 1 else x)
        while time.monotonic() - begin < 30:
            torch.cuda.synchronize()
            dist.all_reduce(x)
    except (RuntimeError, ValueError, TypeError) as error:
        found = time.monotonic() - begin, type(error).__name__, str(error)
        store = dist.group.WORLD.get_group_store()
        store.set(f'rank {rank}', '')         # none leaves before all have their errors
        store.wait([f'rank {other}' for other in range(size)])
        return found
    raise AssertionError('expected an error')


@pytest.mark.parametrize('kind', ['reduction', 'list', 'type', 'no tensor'])
def test_a_wrong_argument_of_one_rank_is_an_error_of_all(address, kind):
    results = run_torch_ranks(3, refused, address, kind, device='cuda:0')
    for rank, (duration, name, text) in enumerate(results):
        print(f'rank {rank} after {duration:.2f} s: {name}: {text}')
    for rank, (duration, _, text) in enumerate(results):
        assert duration < 10, text
        assert rank == 1 or 'rank 1 a call with a wrong argument' in text, text


def probed(rank, size):
    x = torch.ones(16, device='cuda')
    for _ in range(3):
        try:
            dist.all_gather([torch.empty_like(x)], x)
        except (RuntimeError, ValueError):
            dist.all_reduce(x)
        else:
            raise AssertionError('expected an error')
    assert x.tolist() == [size ** 3] * 16


def test_a_wrong_argument_of_all_ranks_leaves_the_group_as_it_was(address):
    run_torch_ranks(2, probed, address, device='cuda:0')
