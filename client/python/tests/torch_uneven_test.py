"""Sizes that differ by rank, mixes of split sizes, complex numbers, and types that move as bytes, in
the collectives of torch.distributed."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def uneven(rank, size, is_async):
    import itertools

    def over(work):
        if is_async:
            work.wait()

    def full(rows, value, dtype=torch.float32):
        return torch.full((rows, 2), value).to(dtype)
    # Any ranks without rows, also large parts, which travel one by one.
    for rows in (*itertools.product((0, 2), repeat=size), list(range(1, size + 1)),
                 [30000] + [1] * (size - 1)):
        for dtype in (torch.float32, torch.int64, torch.complex64, torch.float8_e4m3fnuz):
            def same(xs, ys):
                return all(torch.equal(x.view(torch.uint8), y.view(torch.uint8))
                           for x, y in zip(xs, ys))
            case = rows, dtype
            mine, all_of_them = full(rows[rank], rank + 1, dtype), [
                full(rows[r], r + 1, dtype) for r in range(size)]
            outs = [full(n, 0, dtype) for n in rows]
            over(dist.all_gather(outs, mine, async_op=is_async))
            assert same(outs, all_of_them), case
            strided = [torch.zeros((2, n)).to(dtype).t() for n in rows]
            over(dist.all_gather(strided, mine, async_op=is_async))
            assert same([x.contiguous() for x in strided], all_of_them), case
            for root in range(size):
                outs = [full(n, 0, dtype) for n in rows] if rank == root else None
                over(dist.gather(mine, outs, root, async_op=is_async))
                assert rank != root or same(outs, all_of_them), case
                out = full(rows[rank], 0, dtype)
                over(dist.scatter(out, all_of_them if rank == root else None, root,
                                  async_op=is_async))
                assert same([out], [mine]), case
            if dtype != torch.float8_e4m3fnuz:
                out = full(rows[rank], 0, dtype)
                over(dist.reduce_scatter(out, [full(n, rank + 1, dtype) for n in rows],
                                         async_op=is_async))
                assert torch.equal(out, full(rows[rank], size * (size + 1) // 2, dtype)), case


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('is_async', [False, True])
def test_the_sizes_of_ranks_may_differ(address, size, is_async):
    run_torch_ranks(size, uneven, address, is_async)


def different_lists(rank, size):
    wrong = [1, 2, 4] if rank == 1 else [1, 2, 3]
    errors = []
    for call in (
            lambda: dist.all_gather([torch.zeros(n) for n in wrong], torch.ones(rank + 1)),
            lambda: dist.reduce_scatter(torch.ones(rank + 1), [torch.zeros(n) for n in wrong]),
            lambda: dist.gather(torch.ones(2 if rank == 2 else rank + 1),
                                [torch.zeros(n + 1) for n in range(3)] if rank == 1 else None, 1),
            lambda: dist.scatter(torch.ones(2 if rank == 2 else rank + 1),
                                 [torch.zeros(n + 1) for n in range(3)] if rank == 1 else None, 1)):
        try:
            call()
            errors.append('no error')
        except cohort.InvalidArgument as error:
            errors.append(str(error))
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == size
    return errors


def test_lists_that_differ_are_one_error_of_all_ranks(address):
    for errors in run_torch_ranks(3, different_lists, address):
        for error, call in zip(errors, ('all_gather', 'reduce_scatter', 'gather', 'scatter')):
            assert call in error and 'rank 1' in error, error


def mixed_splits(rank, size, is_async):
    # By rank: the sizes that it sends to each, and whether it passes these splits or None.
    for sends, given in (([[1, 1], [1, 1]], (True, False)), ([[1, 1], [1, 1]], (False, True)),
                         ([[3, 1], [1, 1]], (True, False)), ([[1, 1], [1, 5]], (False, True)),
                         ([[1, 0], [1, 0]], (True, True)), ([[0, 2], [2, 0]], (True, True)),
                         ([[0, 0], [0, 0]], (True, False)), ([[0, 0], [0, 0]], (True, True))):
        receives = [[sends[r][to] for r in range(size)] for to in range(size)]
        for dtype in (torch.float32, torch.complex64, torch.complex32, torch.float8_e4m3fnuz):
            source = torch.full((sum(sends[rank]), 3), rank + 1).to(dtype)
            out = torch.zeros((sum(receives[rank]), 3)).to(dtype)
            splits = (receives[rank], sends[rank]) if given[rank] else (None, None)
            work = dist.all_to_all_single(out, source, *splits, async_op=is_async)
            if is_async:
                work.wait()
            expected = torch.cat([torch.full((receives[rank][r], 3), r + 1).to(dtype)
                                  for r in range(size)])
            assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8)), (sends, dtype)
    # Splits of one direction only.
    out = torch.zeros(2)
    dist.all_to_all_single(out, torch.full((2,), rank + 1.), [1, 1] if rank else None, None)
    assert out.tolist() == [1, 2]


@pytest.mark.parametrize('is_async', [False, True])
def test_ranks_with_splits_and_without(address, is_async):
    run_torch_ranks(2, mixed_splits, address, is_async)


def complex_reductions(rank, size):
    import torch.distributed._functional_collectives as functional
    group, op = dist.group.WORLD, dist.ReduceOp
    c10d = torch._C._distributed_c10d
    found = []
    for dtype in (torch.complex32, torch.complex64, torch.complex128):
        def own(count=2):
            return torch.full((count,), complex(rank + 1, 2 - rank)).to(dtype)

        def calls(kind):
            names = {op.PRODUCT: 'product', op.MIN: 'min', op.MAX: 'max', op.SUM: 'sum',
                     op.AVG: 'avg'}
            coalesced, direct = c10d.AllreduceCoalescedOptions(), c10d.AllreduceOptions()
            coalesced.reduceOp = direct.reduceOp = kind
            x = [own() for _ in range(3)]
            out = [own(1) for _ in range(2)]
            yield 'reduce', lambda: dist.reduce(x[0], 0, kind), lambda: x[0] if rank == 0 else None
            yield 'reduce_scatter', lambda: dist.reduce_scatter(
                out[0], list(own().split(1)), kind), lambda: out[0]
            yield 'reduce_scatter_single', lambda: dist.reduce_scatter_single(
                out[1], own(), kind), lambda: out[1]
            yield 'group.allreduce', lambda: group.allreduce([x[1]], direct).wait(), lambda: x[1]
            yield 'group.allreduce_coalesced', lambda: group.allreduce_coalesced(
                [x[2]], coalesced).wait(), lambda: x[2]
            result = []
            yield 'functional', lambda: result.append(functional.wait_tensor(
                functional.reduce_scatter_single(own(), names[kind], 0, group))), lambda: result[0]
        for kind in (op.PRODUCT, op.MIN, op.MAX):
            for name, call, _ in calls(kind):
                try:
                    call()
                    found.append(f'{name} of {dtype} with {kind}: no error')
                except (cohort.InvalidArgument, ValueError) as error:
                    if 'complex' not in str(error):
                        found.append(f'{name}: {error}')
        for kind, expected in ((op.SUM, 3 + 3j), (op.AVG, 1.5 + 1.5j)):
            for name, call, value in calls(kind):
                call()
                got = value()
                if got is not None and any(x != expected for x in got.flatten().tolist()):
                    found.append(f'{name} of {dtype} with {kind}: {got}')
    return found


def test_complex_numbers_have_sums_and_no_products(address):
    assert run_torch_ranks(2, complex_reductions, address) == [[], []]


def bytes_of_types(rank, size):
    names = ('float8_e8m0fnu', 'float4_e2m1fn_x2', 'float8_e5m2fnuz', 'float8_e4m3fnuz', 'bits8',
             'bits16', 'complex32')
    for dtype in [getattr(torch, name) for name in names if hasattr(torch, name)]:
        width = torch.empty(0, dtype=dtype).element_size()
        for shape in ((), (0,), (1,), (2, 3), (0, 3)):
            count = torch.Size(shape).numel() * width

            def of(value):
                flat = torch.full((count,), value, dtype=torch.uint8)
                return (flat.view(dtype) if dtype != torch.complex32
                        else torch.view_as_complex(flat.view(torch.float16).view(-1, 2))
                        ).reshape(shape)

            def raw(x):
                x = torch.view_as_real(x) if dtype == torch.complex32 else x.reshape(-1)
                return bytes(x.reshape(-1).view(torch.uint8).tolist())
            case = dtype, shape
            x = of(rank + 1)
            dist.broadcast(x, 1)
            assert raw(x) == bytes([2]) * count, case
            parts = [of(0) for _ in range(size)]
            dist.all_gather(parts, of(rank + 1))
            assert [raw(part) for part in parts] == [bytes([r + 1]) * count for r in range(size)]
            parts = [of(0) for _ in range(size)] if rank == 0 else None
            dist.gather(of(rank + 1), parts, 0)
            assert rank or [raw(part) for part in parts] == [
                bytes([r + 1]) * count for r in range(size)], case
            x = of(0)
            dist.scatter(x, [of(r + 1) for r in range(size)] if rank == 1 else None, 1)
            assert raw(x) == bytes([rank + 1]) * count, case
            parts = [of(0) for _ in range(size)]
            dist.all_to_all(parts, [of(10 * rank + r) for r in range(size)])
            assert [raw(part) for part in parts] == [
                bytes([10 * r + rank]) * count for r in range(size)], case
        if dtype == torch.complex32:
            continue
        for call in (lambda: dist.all_reduce(of(1)), lambda: dist.reduce(of(1), 0)):
            try:
                call()
                raise AssertionError(f'no error for {dtype}')
            except (cohort.InvalidArgument, ValueError):
                pass


def test_unknown_types_move_and_are_not_reduced(address):
    run_torch_ranks(2, bytes_of_types, address)
