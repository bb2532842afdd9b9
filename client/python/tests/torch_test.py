"""Tensors of PyTorch."""

import pytest

import cohort
from testing.fixtures import address_fixture, groups_fixture, run

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

RANKS = 2

_address = address_fixture()
_groups = groups_fixture('torch', RANKS)


@pytest.mark.parametrize('name', ['bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float16',
                                  'bfloat16', 'float32', 'float64', 'complex64', 'float8_e4m3fn'])
def test_all_gather_of_each_type(groups, name):
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f'this PyTorch has no {name}')
    def body(group, rank):
        return group.all_gather(torch.tensor([rank, 1]).to(dtype))
    for result in run(groups, body):
        assert result.dtype == dtype
        assert result.abs().to(torch.float32).tolist() == [0, 1, 1, 1] if dtype.is_complex else (
            result.to(torch.float32).tolist() == [0, 1, 1, 1])


def test_all_reduce(groups):
    def body(group, rank):
        tensor = torch.full((3, 4), float(rank + 1), dtype=torch.bfloat16)
        out = torch.zeros(4, 3, dtype=torch.bfloat16)
        assert group.all_reduce(tensor.t(), out=out) is out
        registered = group.empty((5,), torch.bfloat16)
        registered.fill_(rank)
        group.all_reduce(registered, out=registered)
        assert registered.tolist() == [1] * 5
        return out
    for result in run(groups, body):
        assert torch.equal(result, torch.full((4, 3), 3, dtype=torch.bfloat16))


def test_tensor_that_requires_grad(groups):
    def body(group, rank):
        weight = torch.nn.Parameter(torch.full((2,), float(rank)))
        assert group.all_reduce(weight).tolist() == [1, 1]
        with pytest.raises(cohort.InvalidArgument, match='requires grad'):
            group.all_reduce(weight, out=weight)
        assert group.all_reduce(weight.detach(), out=weight.detach()).tolist() == [1, 1]
        return weight.tolist()
    assert run(groups, body) == [[1, 1]] * RANKS


def test_lazy_conjugates_and_negatives_are_refused(groups):
    conjugate = torch.complex(torch.ones(2), torch.full((2,), 2.0)).conj()
    negative = conjugate.imag
    assert conjugate.is_conj() and negative.is_neg()
    def body(group, _):
        for tensor in (conjugate, negative, negative[:1], negative[:1].unsqueeze(-1)):
            with pytest.raises(cohort.InvalidArgument, match='resolve_conj'):
                group.all_gather(tensor)
        assert group.all_gather(conjugate.resolve_conj()).imag.tolist() == [-2] * 4
        return group.all_gather(negative.resolve_neg()).tolist()
    assert run(groups, body) == [[-2] * 4] * 2


def test_operations_of_torch(groups):
    import torch.distributed as dist
    for op, expected in ((dist.ReduceOp.SUM, 3), (dist.ReduceOp.PRODUCT, 2), (dist.ReduceOp.MAX, 2),
                         (dist.ReduceOp.MIN, 1), (dist.ReduceOp.BAND, 0), (dist.ReduceOp.BXOR, 3)):
        def body(group, rank):
            return group.all_reduce(torch.tensor([rank + 1]), op=op).item()  # pylint: disable=cell-var-from-loop
        assert run(groups, body) == [expected] * 2
