"""Futures of asynchronous calls on the backend "cohort", and what their callbacks may do."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def callbacks(rank, size, kind, starter):
    from concurrent import futures
    x, y, out = torch.ones(3), torch.ones(3), [torch.empty(3) for _ in range(size)]

    def in_callback(future):
        future.wait()
        if kind == 'future':
            dist.all_reduce(y, async_op=True).get_future().wait()
        elif kind == 'future of a function':
            dist.all_gather(out, y, async_op=True).get_future().wait()
            y.copy_(out[0] + out[1])
        elif kind == 'work':
            dist.all_reduce(y, async_op=True).wait()
        elif kind == 'work of a function':
            dist.all_gather(out, y, async_op=True).wait()
            y.copy_(out[0] + out[1])
        elif kind == 'sync':
            dist.all_reduce(y)
        elif kind == 'sync function':
            dist.all_gather(out, y)
            y.copy_(out[0] + out[1])
        elif kind == 'nested':
            dist.all_reduce(y, async_op=True).get_future().then(
                lambda f: dist.barrier()).wait()
        return [y]
    if starter == 'all_reduce':
        first = dist.all_reduce(x, async_op=True)
    else:
        first = dist.all_gather([torch.empty(3) for _ in range(size)], x, async_op=True)
    outside = futures.ThreadPoolExecutor(1)
    waits = outside.submit(lambda: first.get_future().then(in_callback).wait())
    assert waits.result(timeout=20)[0].tolist() == [2, 2, 2]


@pytest.mark.parametrize('starter', ['all_reduce', 'all_gather'])
@pytest.mark.parametrize('kind', ['future', 'future of a function', 'work', 'work of a function',
                                  'sync', 'sync function', 'nested'])
def test_callbacks_start_calls_and_wait_for_them(address, kind, starter):
    run_torch_ranks(2, callbacks, address, kind, starter)


def later(rank, size):
    import threading
    store = dist.group.WORLD.get_group_store()
    x, outputs = torch.ones(3), [torch.empty(3) for _ in range(size)]
    if rank == 1:
        store.wait(['the callback waits'])
        for _ in range(2):
            dist.all_reduce(x)
        dist.all_gather(outputs, x)
        return
    started = threading.Event()
    works = []

    def in_callback(future):
        assert started.wait(20)
        works[0].get_future().wait()
        works[1].wait()
        return 'done'
    chained = dist.all_reduce(x, async_op=True).get_future().then(in_callback)
    store.set('the callback waits', '')
    works += [dist.all_reduce(x, async_op=True), dist.all_gather(outputs, x, async_op=True)]
    other = works[1].get_future()
    started.set()
    assert chained.wait() == 'done'
    other.wait()
    assert x.tolist() == [4, 4, 4]


def test_a_callback_waits_for_calls_that_others_start(address):
    run_torch_ranks(2, later, address)


def slow(rank, size):
    import hashlib
    from concurrent import futures
    x, y, z = torch.ones(3), torch.ones(3), torch.ones(5)

    def in_callback(future):
        if rank == 0:  # asleep for over a second, while another thread computes
            with futures.ThreadPoolExecutor(1) as computing:
                computing.submit(hashlib.pbkdf2_hmac, 'sha256', b'', b'', 3_000_000).result()
        dist.all_reduce(y)
        return y
    chained = dist.all_reduce(x, async_op=True).get_future().then(in_callback)
    dist.all_reduce(z)
    assert chained.wait().tolist() == [2] * 3 and z.tolist() == [2] * 5


def test_a_later_call_waits_for_a_callback_of_which_another_thread_computes(address):
    run_torch_ranks(2, slow, address)


def trained(rank, size, hook, bucket):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
    from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization
    from torch.nn.parallel import DistributedDataParallel
    torch.manual_seed(1)
    between = [torch.nn.Linear(60, 60, bias=False) for _ in range(0 if bucket > 1 else 4)]
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(40, 60, bias=False), torch.nn.ReLU(), *between,
        torch.nn.Linear(60, 30, bias=False)), bucket_cap_mb=bucket)
    if hook == 'batched_powerSGD_hook':
        # PyTorch 2.13 passes a matrix to this function, which takes a batch of them.
        of_batch = power._orthogonalize
        power._orthogonalize = lambda matrix, epsilon=0: of_batch(
            matrix if matrix.dim() == 3 else matrix.unsqueeze(0), epsilon)
    if 'SGD' in hook:
        state = power.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2,
                                    min_compression_rate=1)
    else:
        state = dist.group.WORLD
    model.register_comm_hook(state, getattr(power, hook, None) or getattr(quantization, hook))
    optimizer = torch.optim.SGD(model.parameters(), lr=.3)
    torch.manual_seed(2)
    target = torch.randn(30, 40)
    losses = []
    for step in range(20):
        torch.manual_seed(rank)
        batch = torch.randn(64, 40)
        optimizer.zero_grad()
        loss = ((model(batch) - batch @ target.t()) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(gathered, weights)
    assert torch.equal(gathered[0], gathered[1])
    # One matrix of rank 2 for all gradients learns slowly, and so does a deep model.
    assert min(losses) < losses[0]
    assert between or min(losses) < (.95 if 'batched' in hook else .8) * losses[0], losses


@pytest.mark.parametrize('hook', ['powerSGD_hook', 'batched_powerSGD_hook',
                                  'quantization_pertensor_hook', 'quantization_perchannel_hook'])
@pytest.mark.parametrize('bucket', [25, .01], ids=['one bucket', 'many buckets'])
def test_hooks_of_pytorch_train(address, hook, bucket):
    run_torch_ranks(2, trained, address, hook, bucket)


def all_of(rank, size):
    group = dist.group.WORLD
    group._start_coalescing(torch.device('cpu'))
    x = torch.ones(2)
    dist.all_reduce(x, async_op=True)
    dist.all_gather([torch.empty(2) for _ in range(size)], x, async_op=True)
    work = group._end_coalescing(torch.device('cpu'))
    assert work.get_future_result().wait() == 0
    second = dist.new_group(timeout=seconds(.5))
    if rank == 0:
        second._start_coalescing(torch.device('cpu'))
        dist.all_reduce(x, async_op=True, group=second)
        work = second._end_coalescing(torch.device('cpu'))
        result = work.get_future_result()
        assert not result.done()
        assert result.wait() == 100 and work.exception() is not None
    dist.barrier()


def test_the_result_of_coalesced_calls_is_theirs(address):
    run_torch_ranks(2, all_of, address)


def in_one_order(rank, size, kind):
    """Calls of callbacks and of the program have equal sizes: mixed, they give wrong sums."""
    import random
    rng = random.Random(rank)

    def compute():
        for _ in range(rng.randrange(4000)):
            pass

    def call(value):
        x = torch.full((2,), float(value))
        if kind == 'sync':
            dist.all_reduce(x)
        elif kind == 'async':
            dist.all_reduce(x, async_op=True).get_future().wait()
        elif kind == 'function':
            parts = [torch.empty(2) for _ in range(size)]
            dist.all_gather(parts, x, async_op=True).wait()
            x = sum(parts)
        elif kind == 'not awaited':
            return x, dist.all_reduce(x, async_op=True)
        else:
            compute()
            chained = dist.all_reduce(x, async_op=True).get_future().then(
                lambda f: (compute(), call_plain(7)))
            call_plain(9)
            chained.wait()
        return x, None

    def call_plain(value):
        x = torch.full((2,), float(value))
        dist.all_reduce(x)
        assert x.tolist() == [size * value] * 2, (x, value)

    for step in range(60):
        seen = []

        def in_callback(future):
            compute()
            seen.append(call(1000))
            compute()
            seen.append(call(3000))

        first, second = torch.ones(2), torch.full((2,), 5.)
        chained = dist.all_reduce(first, async_op=True).get_future().then(in_callback)
        compute()
        pending = dist.all_reduce(second, async_op=True)
        compute()
        call_plain(11 + step)
        pending.wait()
        chained.wait()
        for (x, work), value in zip(seen, (1000, 3000)):
            if work is not None:
                work.wait()
            assert x.tolist() == [size * value] * 2, (step, x)
        assert first.tolist() == [size] * 2 and second.tolist() == [5 * size] * 2, step


@pytest.mark.parametrize('kind', ['sync', 'async', 'function', 'not awaited', 'nested'])
def test_calls_of_callbacks_have_one_order(address, kind):
    run_torch_ranks(2, in_one_order, address, kind)
