"""The collectives of torch.distributed on the backend "cohort"."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def reductions(rank, size):
    ops = {'SUM': 6, 'AVG': 2, 'PRODUCT': 6, 'MIN': 1, 'MAX': 3, 'BAND': 0, 'BOR': 3, 'BXOR': 0}
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16,
                  torch.bfloat16, torch.float32, torch.float64):
        for name, expected in ops.items():
            if name.startswith('B') and dtype.is_floating_point:
                continue
            x = torch.full((5,), rank + 1, dtype=dtype)
            dist.all_reduce(x, getattr(dist.ReduceOp, name))
            assert x.tolist() == [expected] * 5, (dtype, name, x)
    flags = torch.tensor([True, rank == 0, False])
    for name, expected in {'SUM': [1, 1, 0], 'PRODUCT': [1, 0, 0], 'BAND': [1, 0, 0],
                           'BOR': [1, 1, 0], 'BXOR': [1, 1, 0], 'MAX': [1, 1, 0]}.items():
        x = flags.clone()
        dist.all_reduce(x, getattr(dist.ReduceOp, name))
        assert x.tolist() == expected, (name, x)
    x = torch.full((2,), rank + 1j, dtype=torch.complex64)
    dist.all_reduce(x)
    assert x.tolist() == [3 + 3j] * 2
    x = torch.full((2,), rank + 1.)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert x.tolist() == [3., 3.]
    x = torch.arange(12.).view(3, 4).t() + rank
    dist.all_reduce(x)
    assert torch.equal(x, 3 * torch.arange(12.).view(3, 4).t() + 3)
    x = torch.nn.Parameter(torch.ones(2))
    dist.all_reduce(x)
    assert x.tolist() == [3, 3]
    x = torch.full((2,), rank + 1.)
    dist.reduce(x, 1, dist.ReduceOp.MAX)
    assert rank != 1 or x.tolist() == [3, 3]


def test_reductions_of_each_type_and_kind(address):
    run_torch_ranks(3, reductions, address)


def moves(rank, size):
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32,
                  torch.complex64, torch.float8_e4m3fn, torch.float8_e4m3fnuz):
        mine = torch.tensor([rank, 1]).to(dtype)
        all_of_them = [torch.tensor([r, 1]).to(dtype) for r in range(size)]

        def same(x, y):
            return torch.equal(x.view(torch.uint8), y.view(torch.uint8))
        parts = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(parts, mine)
        assert all(map(same, parts, all_of_them)), dtype
        x = mine.clone()
        dist.broadcast(x, 1)
        assert same(x, all_of_them[1]), dtype
        out = torch.empty(2 * size, dtype=dtype)
        if not dtype.is_complex:
            dist.all_gather_single(out, mine)
            assert same(out, torch.cat(all_of_them)), dtype
        parts = [torch.empty_like(mine) for _ in range(size)] if rank == 1 else None
        dist.gather(mine, parts, 1)
        assert rank != 1 or all(map(same, parts, all_of_them)), dtype
        dist.scatter(x, all_of_them if rank == 2 else None, 2)
        assert same(x, mine), dtype
        parts = [torch.empty_like(mine) for _ in range(size)]
        dist.all_to_all(parts, [mine] * size)
        assert all(map(same, parts, all_of_them)), dtype
    column = torch.zeros(4, 4)[:, 1]
    dist.all_gather_single(torch.zeros(12), column)
    strided = [torch.zeros(4, 4).t()[1] for _ in range(size)]
    dist.all_gather(strided, torch.full((4,), float(rank)))
    assert [x[0].item() for x in strided] == [0, 1, 2]
    scalars = [torch.zeros(()) for _ in range(size)]
    dist.all_gather(scalars, torch.tensor(float(rank)))
    assert scalars == [0, 1, 2]


def test_moves_of_each_type(address):
    run_torch_ranks(3, moves, address)


def scattered(rank, size):
    out = torch.zeros(2)
    dist.reduce_scatter(out, [torch.full((2,), float(r)) for r in range(size)])
    assert out.tolist() == [size * rank] * 2
    dist.reduce_scatter_single(out, torch.arange(2. * size), dist.ReduceOp.AVG)
    assert out.tolist() == [2 * rank, 2 * rank + 1]
    sends = list(range(1, size + 1))                    # rank r gets r + 1 rows from each
    out = torch.zeros(size * (rank + 1), 2)
    rows = torch.cat([torch.full((n, 2), 10. * rank + n) for n in sends])
    dist.all_to_all_single(out, rows, [rank + 1] * size, sends)
    assert out[:, 0].tolist() == [10 * r + rank + 1 for r in range(size) for _ in range(rank + 1)]
    out = torch.zeros(size)
    dist.all_to_all_single(out, torch.arange(float(size)) + 10 * rank)
    assert out.tolist() == [10 * r + rank for r in range(size)]


def by_methods(rank, size):
    from datetime import timedelta
    group, long = dist.group.WORLD, timedelta(seconds=30)
    x, mine = torch.tensor([rank + 1.]), torch.tensor([10. + rank])
    parts = [torch.empty(1) for _ in range(size)]

    def values():
        return [each.item() for each in parts]
    group.allreduce(x, dist.ReduceOp.MAX, long).wait()
    assert x.item() == size
    group.reduce(mine, 1, dist.ReduceOp.MIN).wait()
    assert rank != 1 or mine.item() == 10
    mine = torch.tensor([10. + rank])
    group.broadcast(x.fill_(rank), 2, long).wait()
    assert x.item() == 2
    group.allgather(parts, mine, long).wait()
    assert values() == [10, 11, 12]
    group.gather(parts, mine.neg_(), 1, long).wait()
    assert values() == ([-10, -11, -12] if rank == 1 else [10, 11, 12])
    sources = [torch.tensor([100. * rank + each]) for each in range(size)]
    group.scatter(x, sources, 2, long).wait()
    assert x.item() == 200 + rank
    group.reduce_scatter(x, sources, dist.ReduceOp.SUM, long).wait()
    assert x.item() == 300 + 3 * rank
    group.alltoall(parts, sources, long).wait()
    assert values() == [rank, 100 + rank, 200 + rank]
    group.barrier(timeout=long).wait()


def test_the_methods_of_a_group_take_tensors_without_lists(address):
    run_torch_ranks(3, by_methods, address)


def test_reduce_scatter_and_all_to_all(address):
    run_torch_ranks(3, scattered, address)


def coalesced(rank, size):
    tensors = [torch.full((n,), rank + 1.) for n in (1, 3, 1000)]
    tensors.append(torch.full((4,), rank + 1))
    with dist._coalescing_manager():
        for x in tensors:
            dist.all_reduce(x)
    assert all(x[0].item() == 3 for x in tensors)
    outs = [torch.zeros(2), torch.zeros(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out, n in zip(outs, (1, 2)):
            dist.all_gather_single(out, torch.full((n,), float(rank)))
    manager.wait()
    assert [x.tolist() for x in outs] == [[0, 1], [0, 0, 1, 1]]
    outs = [torch.zeros(1), torch.zeros(2)]
    with dist._coalescing_manager():
        for out, n in zip(outs, (1, 2)):
            dist.reduce_scatter_single(out, torch.ones(size * n))
    assert [x.tolist() for x in outs] == [[2], [2, 2]]
    with dist._coalescing_manager(device=torch.device('cpu'), async_ops=True) as manager:
        x = torch.ones(1)
        dist.broadcast(x, 0, async_op=True)
    manager.wait()
    sparse = torch.sparse_coo_tensor([[rank, 2]], [1., 2.], (3,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1, 1, 4]


def test_coalesced_and_sparse(address):
    run_torch_ranks(2, coalesced, address)


def objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {'rank': rank})
    assert found == [{'rank': r} for r in range(size)]
    given = [f'from {rank}', rank]
    dist.broadcast_object_list(given, 1)
    assert given == ['from 1', 1]
    found = [None] * size if rank == 0 else None
    dist.gather_object(rank, found, 0)
    assert rank != 0 or found == [0, 1]
    out = [None]
    dist.scatter_object_list(out, ['a', 'b'] if rank == 0 else [None], 0)
    assert out == ['ab'[rank]]
    if rank == 0:
        dist.send_object_list([1, 'two'], 1)
    else:
        out = [None, None]
        assert dist.recv_object_list(out, 0) == 0 and out == [1, 'two']


def test_objects(address):
    run_torch_ranks(2, objects, address)


def asynchronous(rank, size):
    tensors = [torch.full((1000,), rank + 1.) for _ in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    last = torch.full((3,), rank + 1.)
    dist.all_reduce(last)                    # takes its turn after the others
    assert last.tolist() == [3] * 3
    assert all(work.is_completed() and work.is_success() for work in works)
    assert all(x[0].item() == 3 for x in tensors)
    work = dist.all_reduce(last, async_op=True)
    assert work.get_future().wait()[0].tolist() == [6] * 3
    assert work.wait() and work.exception() is None and work.result()[0] is last
    assert work.get_future().then(lambda future: future.value()[0] / 2).wait().tolist() == [3] * 3
    gathered = [torch.zeros(1) for _ in range(size)]
    work = dist.all_gather(gathered, torch.full((1,), float(rank)), async_op=True)
    assert work.wait(seconds(30)) and gathered == [0, 1]
    dist.barrier(async_op=True).wait()
    try:
        work.source_rank()
        raise AssertionError('expected RuntimeError')
    except RuntimeError:
        pass


def test_asynchronous_calls(address):
    run_torch_ranks(2, asynchronous, address)


def subgroups(rank, size):
    import threading
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine, other = halves[rank // 2], halves[1 - rank // 2]
    assert dist.get_rank(mine) == rank % 2 and other is dist.GroupMember.NON_GROUP_MEMBER
    pairs = dist.new_group([0, 2]) , dist.new_group([1, 3])
    pair = pairs[rank % 2]
    results = []

    def reduce_in(group, value):
        x = torch.full((100,), value)
        for _ in range(50):
            dist.all_reduce(x, dist.ReduceOp.AVG, group=group)
        results.append(x[0].item())
    threads = [threading.Thread(target=reduce_in, args=(group, float(rank)))
               for group in (mine, pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted([rank // 2 * 2 + .5, rank % 2 + 1.])
    group, _ = dist.new_subgroups(2)
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    assert x.item() == 2
    split = dist.group.WORLD.split_group([1, 3])
    assert (split is None) == (rank % 2 == 0)
    if split is not None:
        split.allreduce([x]).wait()
        assert x.item() == 4 and split.rank() == rank // 2
        split.shutdown()
    dist.destroy_process_group(mine)
    local = dist.new_group([0, 1], use_local_synchronization=True) if rank < 2 else None
    if local:
        dist.barrier(local)
    dist.barrier()
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_subgroups(address):
    run_torch_ranks(4, subgroups, address)


def again(rank, size, path):
    dist.destroy_process_group()
    for _ in range(2):                       # the same store, with the keys of the one before
        dist.init_process_group('cohort', store=dist.FileStore(path, size), rank=rank,
                                world_size=size)
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == size
        names = [None] * size
        dist.all_gather_object(names, dist.group.WORLD.cohort_name)
        assert len(set(names)) == 1
        dist.destroy_process_group()


def test_process_groups_are_made_again(address, tmp_path):
    run_torch_ranks(2, again, address, str(tmp_path / 'store'))


def over_url(rank, size):
    x = torch.ones(1)
    dist.all_reduce(x)
    half = dist.new_group([0])
    assert x.item() == 2 and (rank == 1 or dist.get_world_size(half) == 1)


def test_the_coordinator_of_the_url_is_that_of_the_groups(address):
    pytest.importorskip('cohort.torch.rendezvous')
    path = address.partition(':')[2]
    run_torch_ranks(2, over_url, '', init_method=f'cohort://{path}:torch-backend')


def wrong_arguments(rank, size):
    errors = []
    for call in (lambda: dist.all_reduce(torch.ones(rank + 1)),
                 lambda: dist.all_gather([torch.ones(1)], torch.ones(1)),
                 lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2), [1, 2], [1, 1])):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            errors.append(str(error))
    x = torch.ones(1)
    dist.all_reduce(x)                       # the group goes on
    assert x.item() == 2
    return errors


def test_wrong_arguments_name_the_call_and_leave_the_group_usable(address):
    for shapes, count, splits in run_torch_ranks(2, wrong_arguments, address):
        assert 'all_reduce' in shapes and 'process group 0' in shapes
        assert 'expected 2 outputs' in count
        assert 'split sizes' in splits
