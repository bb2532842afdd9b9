"""The reductions of PyTorch as Cohort has them."""

from typing import Any, Tuple, Union

import torch.distributed as dist

from cohort.reduce_op import ReduceOp

# By the number that the hash of a ReduceOp of PyTorch is. Looking up its name takes longer.
_NUMBERS = {
    dist.ReduceOp.SUM: ReduceOp.SUM,
    dist.ReduceOp.AVG: ReduceOp.AVG,
    dist.ReduceOp.PRODUCT: ReduceOp.PROD,
    dist.ReduceOp.MIN: ReduceOp.MIN,
    dist.ReduceOp.MAX: ReduceOp.MAX,
    dist.ReduceOp.BAND: ReduceOp.BIT_AND,
    dist.ReduceOp.BOR: ReduceOp.BIT_OR,
    dist.ReduceOp.BXOR: ReduceOp.BIT_XOR,
}
_BY_HASH = {hash(torch_op): int(op) for torch_op, op in _NUMBERS.items()}


def reduction_of(op: Any) -> Union[int, Tuple[int, float]]:
    """Returns Cohort's reduction for a ReduceOp of PyTorch. Raises ValueError if it is not
    supported."""
    number = _BY_HASH.get(hash(op))
    if number is not None:
        return number
    kind, factor = op.__getstate__()
    if kind == dist.ReduceOp.PREMUL_SUM and isinstance(factor, (int, float)):
        return ReduceOp.pre_mul_sum(float(factor))
    raise ValueError(f'reduction: {op} is not supported; expected SUM, AVG, PRODUCT, MIN, MAX, '
                     f'BAND, BOR, BXOR, or PREMUL_SUM with a number')
