"""Ragged collectives of `cohort.Group`: parts of different sizes."""

import array as buffers
from typing import Any, List, Literal, Optional, Sequence, Tuple, TypeVar, overload

from cohort.arrays import Array, new_like
from cohort.collectives import NO_OP
from cohort.facts import Facts
from cohort.pending_call import PendingCall
from cohort.reduce_op import Op
from cohort.timeouts import Timeout

A = TypeVar('A')

# The numbers of the collectives in the C++ library.
_ALL_GATHER_V, _REDUCE_SCATTER_V, _GATHER_V, _ALL_TO_ALL_V = 9, 10, 11, 12
_NAMES = {_ALL_GATHER_V: 'all_gather_v', _REDUCE_SCATTER_V: 'reduce_scatter_v',
          _GATHER_V: 'gather_v', _ALL_TO_ALL_V: 'all_to_all_v'}


class RaggedCollectives(Facts):
    """The methods of `cohort.Group` that all ranks call, with parts of different sizes along `dim`.
    All ranks pass the same `sizes`, by rank. `wait` as in `Collectives`."""

    def _call_ragged(self, wait: bool, number: int, source: Array, out: Optional[Array], op: Any,
                     dim: int, root: int, sizes: Tuple[Sequence[int], ...],
                     timeout: Timeout) -> Any:
        arguments = number, source, out, op, dim, root, sizes, timeout
        if wait:
            self._core.run_ragged(*arguments)
            return out
        return PendingCall(self._core.start_ragged(*arguments), out, _NAMES[number])

    @overload
    def all_gather_v(self, array: A, sizes: Sequence[int], out: Optional[A] = None, *, dim: int = 0,
                     timeout: Timeout = None, wait: Literal[True] = True) -> A: ...

    @overload
    def all_gather_v(self, array: A, sizes: Sequence[int], out: Optional[A] = None, *, dim: int = 0,
                     timeout: Timeout = None, wait: Literal[False]) -> PendingCall[A]: ...

    def all_gather_v(self, array: Array, sizes: Sequence[int], out: Optional[Array] = None, *,
                     dim: int = 0, timeout: Timeout = None, wait: bool = True) -> Any:
        """Like all_gather; array's extent along `dim` is sizes[rank]."""
        if out is None:
            out = new_like(array, dim, lambda _: sum(sizes))
        return self._call_ragged(wait, _ALL_GATHER_V, array, out, NO_OP, dim, -1, (sizes,), timeout)

    @overload
    def reduce_scatter_v(self, array: A, sizes: Sequence[int], out: Optional[A] = None, *,
                         op: Op = 'sum', dim: int = 0, timeout: Timeout = None,
                         wait: Literal[True] = True) -> A: ...

    @overload
    def reduce_scatter_v(self, array: A, sizes: Sequence[int], out: Optional[A] = None, *,
                         op: Op = 'sum', dim: int = 0, timeout: Timeout = None,
                         wait: Literal[False]) -> PendingCall[A]: ...

    def reduce_scatter_v(self, array: Array, sizes: Sequence[int], out: Optional[Array] = None, *,
                         op: Op = 'sum', dim: int = 0, timeout: Timeout = None,
                         wait: bool = True) -> Any:
        """Like reduce_scatter; out's extent along `dim` is sizes[rank]."""
        if out is None:
            out = new_like(array, dim, lambda _: sizes[self.rank])
        return self._call_ragged(wait, _REDUCE_SCATTER_V, array, out, op, dim, -1, (sizes,), timeout)

    @overload
    def gather_v(self, array: A, sizes: Sequence[int], root: int, out: Optional[A] = None, *,
                 dim: int = 0, timeout: Timeout = None,
                 wait: Literal[True] = True) -> Optional[A]: ...

    @overload
    def gather_v(self, array: A, sizes: Sequence[int], root: int, out: Optional[A] = None, *,
                 dim: int = 0, timeout: Timeout = None,
                 wait: Literal[False]) -> PendingCall[Optional[A]]: ...

    def gather_v(self, array: Array, sizes: Sequence[int], root: int, out: Optional[Array] = None,
                 *, dim: int = 0, timeout: Timeout = None, wait: bool = True) -> Any:
        """Like all_gather_v, at the root; the other ranks get None."""
        if self.rank != root:
            out = None
        elif out is None:
            out = new_like(array, dim, lambda _: sum(sizes))
        return self._call_ragged(wait, _GATHER_V, array, out, NO_OP, dim, root, (sizes,), timeout)

    @overload
    def all_to_all_v(self, array: A, input_sizes: Sequence[int], output_sizes: Sequence[int],
                     out: Optional[A] = None, *, timeout: Timeout = None,
                     wait: Literal[True] = True) -> A: ...

    @overload
    def all_to_all_v(self, array: A, input_sizes: Sequence[int], output_sizes: Sequence[int],
                     out: Optional[A] = None, *, timeout: Timeout = None,
                     wait: Literal[False]) -> PendingCall[A]: ...

    def all_to_all_v(self, array: Array, input_sizes: Sequence[int], output_sizes: Sequence[int],
                     out: Optional[Array] = None, *, timeout: Timeout = None,
                     wait: bool = True) -> Any:
        """Sends input_sizes[r] elements along dimension 0 to rank r, and receives output_sizes[r]
        from it. If rank r sends another number, all ranks raise InvalidArgument."""
        if out is None:
            out = new_like(array, 0, lambda _: sum(output_sizes))
        return self._call_ragged(wait, _ALL_TO_ALL_V, array, out, NO_OP, 0, -1,
                                 (input_sizes, output_sizes), timeout)

    @overload
    def exchange_sizes(self, own: int, *, timeout: Timeout = None,
                       wait: Literal[True] = True) -> List[int]: ...

    @overload
    def exchange_sizes(self, own: int, *, timeout: Timeout = None,
                       wait: Literal[False]) -> PendingCall[List[int]]: ...

    def exchange_sizes(self, own: int, *, timeout: Timeout = None, wait: bool = True) -> Any:
        """Returns every rank's `own`, by rank: the sizes for a ragged collective."""
        if wait:
            return self._core.exchange_sizes(own, timeout)
        sizes = buffers.array('q', bytes(8 * self.size))
        return PendingCall(self._core.start_exchange_sizes(own, sizes, timeout), sizes,
                           'exchange_sizes', list)
