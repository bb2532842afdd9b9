"""Prefix reductions of `cohort.Group`, built on reduce_scatter."""

import math
import sys
from typing import Any, Literal, Optional, TypeVar, overload

from cohort import _core
from cohort.arrays import MOVED_ONLY, Array, new_like
from cohort.collectives import REDUCE_SCATTER
from cohort.facts import Facts
from cohort.pending_call import PendingCall
from cohort.reduce_op import Op, ReduceOp
from cohort.timeouts import Timeout

A = TypeVar('A')


class Scans(Facts):
    """The methods of `cohort.Group` that reduce the arrays of the ranks before this one.

    All ranks call them with the same type, shape and reduction. Floating types of 8 and 16 bits are
    rounded once, as in all_reduce. Each rank passes `size` arrays to a reduce_scatter, so a call
    takes `size` times the memory and the traffic of its array: scans are for small arrays.
    """

    _run: Any

    @overload
    def scan(self, array: A, out: Optional[A] = None, *, op: Op = 'sum', timeout: Timeout = None,
             wait: Literal[True] = True) -> A: ...

    @overload
    def scan(self, array: A, out: Optional[A] = None, *, op: Op = 'sum', timeout: Timeout = None,
             wait: Literal[False]) -> PendingCall[A]: ...

    def scan(self, array: Array, out: Optional[Array] = None, *, op: Op = 'sum',
             timeout: Timeout = None, wait: bool = True) -> Any:
        """out = the reduction of the arrays of ranks 0 to `rank`, this one's included; of array's
        shape. In place: out is array. Blocks for the ranks as all_reduce does, and has its errors.
        Source: MPI_Scan."""
        return self._scan('scan', array, out, op, self.rank + 1, timeout, wait)

    @overload
    def exscan(self, array: A, out: Optional[A] = None, *, op: Op = 'sum',
               timeout: Timeout = None, wait: Literal[True] = True) -> A: ...

    @overload
    def exscan(self, array: A, out: Optional[A] = None, *, op: Op = 'sum',
               timeout: Timeout = None, wait: Literal[False]) -> PendingCall[A]: ...

    def exscan(self, array: Array, out: Optional[Array] = None, *, op: Op = 'sum',
               timeout: Timeout = None, wait: bool = True) -> Any:
        """out = the reduction of the arrays of ranks 0 to `rank` - 1, without this one's; otherwise
        as scan. On rank 0 it is the value that changes no other: 0 for a sum, 1 for a product, the
        largest number for a minimum. The mean of no arrays is 0. Source: MPI_Exscan, which leaves
        rank 0 undefined."""
        return self._scan('exscan', array, out, op, self.rank, timeout, wait)

    def _scan(self, name: str, array: Array, out: Optional[Array], op: Any, count: int,
              timeout: Timeout, wait: bool) -> Any:
        """`count`: how many ranks the result of this rank has."""
        if out is None:
            out = new_like(array)
        skipped = self.rank if name == 'scan' else self.rank + 1
        # -0.0 + x is x, also if that is -0.0. The empty sum is 0.0.
        zero = 0.0 if name == 'exscan' and self.rank == 0 else -0.0
        try:
            number, scale = _core.read_reduction(op)
            parts = _Parts(array, number, self.size, skipped, zero)
            source, target, op = parts.source, out[None], (number, scale)
            # A wrong `out` of a mean goes to the collective, too.
            is_mean = parts.is_mean and parts.fits(out)
            if is_mean:
                into, op = parts.sums(), ReduceOp.SUM
                target = into[None]
        except Exception:  # pylint: disable=broad-exception-caught
            # It fails the collective on all ranks; an exception here would leave them waiting.
            source, target, is_mean = array, out, False

        def finish(result: Array) -> Array:
            if is_mean:
                parts.divide(into, max(count, 1), result)
            return result

        arguments = REDUCE_SCATTER, source, target, op, 0, -1, timeout
        if wait:
            self._run(*arguments)
            return finish(out)
        return PendingCall(self._core.start(*arguments), out, name, finish)


class _Parts:
    """An array for reduce_scatter: its parts for the ranks before `skipped` change nothing there,
    and the others are this rank's array.

    Attributes:
      source: [size, ...].
      is_mean: the result is a mean. `source` then has a type that sums are exact enough in.
    """

    def __init__(self, array: Array, op: int, size: int, skipped: int, zero: float):
        torch = sys.modules.get('torch')
        self._torch = torch if torch is not None and isinstance(array, torch.Tensor) else None
        import numpy  # pylint: disable=import-outside-toplevel
        self._numpy = numpy
        self._array = array.detach() if self._torch else numpy.asarray(array)
        name = str(self._array.dtype).rpartition('.')[2]
        is_reducible = name not in MOVED_ONLY
        self.is_mean = op == ReduceOp.AVG and name != 'bool' and is_reducible
        is_small = 'float' in name and self._array.dtype.itemsize < 4
        dtype = self._array.dtype
        if self.is_mean and is_small:
            dtype = (self._torch or numpy).float32
        self.source = self._empty([size, *self._array.shape], dtype)
        if not is_reducible:
            return  # the collective says so
        if skipped:
            self.source[:skipped] = _neutral(op, name, zero, self._torch or numpy, dtype)
        if skipped < size:
            self.source[skipped:] = self._array

    def _empty(self, shape: list, dtype: Any) -> Array:
        if self._torch:
            return self._array.new_empty(shape, dtype=dtype)
        return self._numpy.empty(shape, dtype)

    def fits(self, out: Array) -> bool:
        """Whether the mean can be written to `out`."""
        flags = getattr(out, 'flags', None)
        return (out.shape == self._array.shape and out.dtype == self._array.dtype
                and getattr(flags, 'writeable', True) and not getattr(out, 'requires_grad', False))

    def sums(self) -> Array:
        """Returns a new array for the sums of a mean."""
        return self._empty(list(self._array.shape), self.source.dtype)

    def divide(self, sums: Array, count: int, out: Array) -> None:
        """out = sums / count; integers are rounded towards zero."""
        if 'float' in str(sums.dtype):
            out[...] = sums / count
            return
        if self._torch and sums.device.type == 'cpu':  # PyTorch does not divide uint16
            sums, out = sums.numpy(), out.detach().numpy()
        quotient = sums // count
        out[...] = quotient + ((sums < 0) & (quotient * count != sums))


def _neutral(op: int, name: str, zero: float, library: Any, dtype: Any) -> Any:
    """Returns the element that changes no other."""
    if op == ReduceOp.PROD:
        return 1
    if op not in (ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BIT_AND):
        return zero if 'float' in name else 0
    if name == 'bool':
        return op != ReduceOp.MAX
    if 'float' in name:
        most = 448.0 if name == 'float8_e4m3fn' else math.inf  # it has no infinity
        return most if op == ReduceOp.MIN else -most
    limits = library.iinfo(dtype)
    if op == ReduceOp.BIT_AND:
        return -1 if limits.min < 0 else limits.max
    return limits.max if op == ReduceOp.MIN else limits.min
