"""How a collective reduces the elements of all ranks to one."""

import enum
from typing import Tuple, Union


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


Op = Union[str, ReduceOp, Tuple[int, float]]
