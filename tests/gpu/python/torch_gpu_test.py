"""torch.distributed over the backend "cohort" with tensors on a GPU, which all ranks share."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks
from testing.training import train

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
if not torch.cuda.is_available():
    pytest.skip('PyTorch has no GPU', allow_module_level=True)

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def reductions(rank, size):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8,
                  torch.uint8, torch.int32, torch.int64):
        rows = torch.arange(1, 1 + size * 1001).reshape(size, 1001) % 3 + 1
        for op, expected in ((dist.ReduceOp.SUM, rows.sum(0)), (dist.ReduceOp.MAX, rows.amax(0)),
                             (dist.ReduceOp.MIN, rows.amin(0)),
                             (dist.ReduceOp.PRODUCT, rows.prod(0))):
            x = rows[rank].to('cuda', dtype)
            dist.all_reduce(x, op)
            assert torch.equal(x.cpu(), expected.to(dtype)), (dtype, op)
            y = rows[rank].to('cuda', dtype)
            dist.reduce(y, 1, op)
            assert rank != 1 or torch.equal(y.cpu(), expected.to(dtype)), (dtype, op)
    x = torch.full((5,), float(rank), device='cuda')
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.tolist() == [(size - 1) / 2] * 5
    c = torch.full((2,), 1 + 1j * rank, device='cuda')
    dist.all_reduce(c)
    assert c.tolist() == [size + 1j * sum(range(size))] * 2


def test_reductions(address):
    run_torch_ranks(3, reductions, address, device='cuda:0')


def moves(rank, size):
    def full(value, count=3):
        return torch.full((count,), float(value), device='cuda')
    every = torch.empty(3 * size, device='cuda')
    dist.all_gather_into_tensor(every, full(rank))
    assert every.reshape(size, 3)[:, 0].tolist() == list(range(size))
    parts = [torch.empty(3, device='cuda') for _ in range(size)]
    dist.all_gather(parts, full(rank))
    assert [part[0].item() for part in parts] == list(range(size))
    scattered = torch.empty(2, device='cuda')
    dist.reduce_scatter_tensor(scattered, torch.arange(2. * size, device='cuda'))
    assert scattered.tolist() == [size * 2 * rank, size * (2 * rank + 1)]
    out = torch.empty(size, device='cuda')
    dist.all_to_all_single(out, torch.arange(size, device='cuda') + 10. * rank)
    assert out.tolist() == [10 * other + rank for other in range(size)]
    sizes = [rank + 1] * size
    out = torch.empty(sum(range(size + 1)), device='cuda')
    dist.all_to_all_single(out, full(rank, (rank + 1) * size), list(range(1, size + 1)), sizes)
    assert out.tolist() == [other for other in range(size) for _ in range(other + 1)]
    b = full(rank)
    dist.broadcast(b, 1)
    assert b.tolist() == [1] * 3
    gathered = [torch.empty(3, device='cuda') for _ in range(size)] if rank == 0 else None
    dist.gather(full(rank), gathered, 0)
    assert rank or [part[1].item() for part in gathered] == list(range(size))
    own = torch.empty(3, device='cuda')
    dist.scatter(own, [full(10 + other) for other in range(size)] if rank == 2 else None, 2)
    assert own.tolist() == [10 + rank] * 3
    objects = [None] * size
    dist.all_gather_object(objects, {'rank': rank, 'x': full(rank)})
    assert [each['rank'] for each in objects] == list(range(size))
    box = [full(5) if rank == 0 else None]
    dist.broadcast_object_list(box, 0)
    assert box[0].tolist() == [5] * 3
    dist.barrier()
    host = torch.full((4,), float(rank))
    dist.all_reduce(host)
    assert host.tolist() == [sum(range(size))] * 4


def test_moves(address):
    run_torch_ranks(3, moves, address, device='cuda:0')


def messages(rank, size):
    x = torch.full((1 << 18,), float(rank), device='cuda')
    y = torch.empty_like(x)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(y, 1)
    else:
        dist.recv(y, 0)
        dist.send(x, 0)
    assert y.eq(1 - rank).all().item()
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank),
                                    dist.P2POp(dist.irecv, y.zero_(), 1 - rank)])
    for work in works:
        work.wait()
    assert y.eq(1 - rank).all().item()


def test_messages(address):
    run_torch_ranks(2, messages, address, device='cuda:0')


def streams(rank, size):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for step in range(20):
            x = torch.zeros(1 << 20, device='cuda')
            torch.cuda._sleep(3_000_000)
            x += rank + step                  # late on the stream
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            y = x * 2                         # after it, on the same stream
            del x
            torch.full((1 << 20,), -1., device='cuda')     # reuses the memory
            assert y.eq(2 * (sum(range(size)) + size * step)).all().item()
    # On another stream, after an event.
    x = torch.ones(1 << 20, device='cuda')
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        dist.all_reduce(x)
    torch.cuda.current_stream().wait_stream(side)
    x *= 3
    assert x.eq(3 * size).all().item()
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] + 1)
    assert future.wait().eq(3 * size * size + 1).all().item()


def test_streams(address):
    run_torch_ranks(2, streams, address, device='cuda:0')


def captured(rank, size):
    x = torch.zeros(1024, device='cuda')
    y = torch.empty(1024 * size, device='cuda')
    dist.all_reduce(x)                        # connects the ranks
    dist.all_gather_into_tensor(y, x)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=side):
        x += rank
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x)
    torch.cuda.synchronize()
    x.zero_()
    expected = 0
    for _ in range(5):
        graph.replay()
        expected = size * expected + sum(range(size))
    assert x.eq(expected).all().item() and y.eq(expected).all().item()
    del graph


def test_captured_in_a_graph_of_pytorch(address):
    run_torch_ranks(2, captured, address, device='cuda:0')


@pytest.mark.parametrize('kind', ['ddp', 'ddp with a hook', 'fsdp2'])
def test_losses_are_those_of_one_process(address, kind):
    run_torch_ranks(2, train, address, kind, 'cuda', device='cuda:0')


def killed(rank, size):
    x = torch.ones(1 << 16, device='cuda')
    for _ in range(10):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while time.monotonic() - begin < 30:
            dist.all_reduce(x)
            torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error), time.monotonic() - begin
    raise AssertionError('expected an error')


def test_the_others_name_a_killed_rank(address):
    for text, duration in run_torch_ranks(3, killed, address, killed=[2], device='cuda:0')[:2]:
        print(f'{duration:.2f} s: {text}')
        assert 'rank 2' in text, text
        assert duration < 10, f'{duration} s: {text}'


def late(rank, size):
    x = torch.ones(1 << 16, device='cuda')
    dist.all_reduce(x)
    torch.cuda.synchronize()
    group = dist.new_group(timeout=seconds(3))
    dist.all_reduce(x, group=group)           # connects the ranks
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.monotonic()
    if rank == 1:
        dist.recv(torch.ones(1), 0)           # until the others have timed out
        return None
    try:
        while time.monotonic() - begin < 30:
            dist.all_reduce(x, group=group)
            torch.cuda.synchronize()
    except RuntimeError as error:
        if rank == 0:
            dist.send(torch.ones(1), 1)
        return str(error), time.monotonic() - begin
    raise AssertionError('expected an error')


def test_a_rank_that_does_not_call_is_named(address):
    for text, duration in run_torch_ranks(3, late, address, device='cuda:0')[::2]:
        print(f'{duration:.2f} s: {text}')
        assert 'rank 1' in text or 'ranks 1' in text, text
        assert duration < 10, f'{duration} s: {text}'


def disagreed(rank, size):
    x = torch.ones(16 if rank else 17, device='cuda')
    begin = time.monotonic()
    try:
        # The ranks compare their calls while the devices run them.
        while time.monotonic() - begin < 30:
            dist.all_reduce(x)
            torch.cuda.synchronize()
    except RuntimeError as error:
        return type(error).__name__, str(error)
    raise AssertionError('expected an error')


def test_counts_that_differ_are_an_error_on_all_ranks(address):
    for kind, text in run_torch_ranks(2, disagreed, address, device='cuda:0'):
        print(kind, text)
        assert kind == 'InvalidArgument' and '16' in text and '17' in text, text
