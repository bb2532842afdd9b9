"""How a collective reduces the elements of all ranks to one."""

import enum
from typing import Any, Tuple, Union


class ReduceOp(enum.IntEnum):
    """How a collective reduces the elements of all ranks to one."""
    SUM = 1  # integers wrap
    PROD = 2
    MIN = 3  # a NaN on any rank is the result
    MAX = 4
    AVG = 5  # integers are rounded towards zero
    BIT_AND = 7
    BIT_OR = 8
    BIT_XOR = 9

    @staticmethod
    def pre_mul_sum(scale: float) -> Tuple[int, float]:
        """The sum of the elements, each multiplied by `scale` first."""
        return (6, scale)


# The name of a reduction, here or in numpy, torch.distributed or MPI: "sum", "add", "band" or
# "MPI_SUM". Or an enumerator, such as ReduceOp.SUM or torch.distributed.ReduceOp.SUM, a function of
# numpy such as numpy.add, an operation of mpi4py such as MPI.SUM, or ReduceOp.pre_mul_sum(scale).
Op = Union[str, ReduceOp, Tuple[int, float], Any]
