"""Collectives of `cohort.Group` in which every rank has a part of the same size."""

from typing import Any, Literal, Optional, Sequence, TypeVar, overload

from cohort.arrays import Array, new_like
from cohort.facts import Facts
from cohort.pending_call import PendingCall
from cohort.reduce_op import Op
from cohort.timeouts import Timeout

A = TypeVar('A')

# The numbers of the collectives in the C++ library.
_ALL_REDUCE, _REDUCE, _BROADCAST, _ALL_GATHER, REDUCE_SCATTER = 1, 2, 3, 4, 5
_ALL_TO_ALL, _GATHER, _SCATTER = 6, 7, 8
_NAMES = ('', 'all_reduce', 'reduce', 'broadcast', 'all_gather', 'reduce_scatter', 'all_to_all',
          'gather', 'scatter')
# For collectives that do not reduce.
NO_OP = 1


class Collectives(Facts):
    """The methods of `cohort.Group` that all ranks call, with arrays of the same type and shape.

    With wait=True they block until their arrays may be used again, and return the result. With
    wait=False they return a `PendingCall` of it at once.
    """

    _run: Any

    def _call(self, wait: bool, number: int, source: Optional[Array], out: Optional[Array], op: Any,
              dim: int, root: int, timeout: Timeout) -> Any:
        if wait:
            self._run(number, source, out, op, dim, root, timeout)
            return out
        return PendingCall(self._core.start(number, source, out, op, dim, root, timeout), out,
                           _NAMES[number])

    @overload
    def all_reduce(self, array: A, out: Optional[A] = None, *, op: Op = 'sum',
                   timeout: Timeout = None, wait: Literal[True] = True) -> A: ...

    @overload
    def all_reduce(self, array: A, out: Optional[A] = None, *, op: Op = 'sum',
                   timeout: Timeout = None, wait: Literal[False]) -> PendingCall[A]: ...

    def all_reduce(self, array: Array, out: Optional[Array] = None, *, op: Op = 'sum',
                   timeout: Timeout = None, wait: bool = True) -> Any:
        """out = the reduction of all ranks' arrays, of the same shape. In place: out is array.
        Source: MPI_Allreduce, ncclAllReduce."""
        if out is None:
            out = new_like(array)
        return self._call(wait, _ALL_REDUCE, array, out, op, -1, -1, timeout)

    @overload
    def all_reduce_coalesced(self, inputs: Sequence[A], out: Optional[Sequence[A]] = None, *,
                             op: Op = 'sum', timeout: Timeout = None,
                             wait: Literal[True] = True) -> Sequence[A]: ...

    @overload
    def all_reduce_coalesced(self, inputs: Sequence[A], out: Optional[Sequence[A]] = None, *,
                             op: Op = 'sum', timeout: Timeout = None,
                             wait: Literal[False]) -> PendingCall[Sequence[A]]: ...

    def all_reduce_coalesced(self, inputs: Sequence[Array], out: Optional[Sequence[Array]] = None,
                             *, op: Op = 'sum', timeout: Timeout = None, wait: bool = True) -> Any:
        """all_reduce of several arrays of one type, in one step. Source: all_reduce_coalesced of
        torch.distributed."""
        if out is None:
            # Without arrays, the call fails on all ranks. An exception here would leave them waiting.
            out = [new_like(array) for array in inputs] if hasattr(inputs, '__iter__') else ()
        if wait:
            self._core.all_reduce_coalesced(inputs, out, op, timeout)
            return out
        return PendingCall(self._core.start_all_reduce_coalesced(inputs, out, op, timeout), out,
                           'all_reduce_coalesced')

    @overload
    def reduce(self, array: A, root: int, out: Optional[A] = None, *, op: Op = 'sum',
               timeout: Timeout = None, wait: Literal[True] = True) -> Optional[A]: ...

    @overload
    def reduce(self, array: A, root: int, out: Optional[A] = None, *, op: Op = 'sum',
               timeout: Timeout = None, wait: Literal[False]) -> PendingCall[Optional[A]]: ...

    def reduce(self, array: Array, root: int, out: Optional[Array] = None, *, op: Op = 'sum',
               timeout: Timeout = None, wait: bool = True) -> Any:
        """Like all_reduce, at the root; the other ranks get None."""
        is_root = self.rank == root
        if is_root and out is None:
            out = new_like(array)
        return self._call(wait, _REDUCE, array, out if is_root else None, op, -1, root,
                          timeout)

    @overload
    def broadcast(self, array: A, root: int, *, timeout: Timeout = None,
                  wait: Literal[True] = True) -> A: ...

    @overload
    def broadcast(self, array: A, root: int, *, timeout: Timeout = None,
                  wait: Literal[False]) -> PendingCall[A]: ...

    def broadcast(self, array: Array, root: int, *, timeout: Timeout = None,
                  wait: bool = True) -> Any:
        """Every rank's array gets the elements of the root's. Returns the array."""
        return self._call(wait, _BROADCAST, None, array, NO_OP, -1, root, timeout)

    @overload
    def all_gather(self, array: A, out: Optional[A] = None, *, dim: int = 0,
                   timeout: Timeout = None, wait: Literal[True] = True) -> A: ...

    @overload
    def all_gather(self, array: A, out: Optional[A] = None, *, dim: int = 0,
                   timeout: Timeout = None, wait: Literal[False]) -> PendingCall[A]: ...

    def all_gather(self, array: Array, out: Optional[Array] = None, *, dim: int = 0,
                   timeout: Timeout = None, wait: bool = True) -> Any:
        """out = all ranks' arrays concatenated along `dim`, by rank. Source: MPI_Allgather."""
        if out is None:
            out = new_like(array, dim, lambda extent: extent * self.size)
        return self._call(wait, _ALL_GATHER, array, out, NO_OP, dim, -1, timeout)

    @overload
    def reduce_scatter(self, array: A, out: Optional[A] = None, *, op: Op = 'sum', dim: int = 0,
                       timeout: Timeout = None, wait: Literal[True] = True) -> A: ...

    @overload
    def reduce_scatter(self, array: A, out: Optional[A] = None, *, op: Op = 'sum', dim: int = 0,
                       timeout: Timeout = None, wait: Literal[False]) -> PendingCall[A]: ...

    def reduce_scatter(self, array: Array, out: Optional[Array] = None, *, op: Op = 'sum',
                       dim: int = 0, timeout: Timeout = None, wait: bool = True) -> Any:
        """out = this rank's part along `dim` of the reduction of all arrays, whose extent there is
        a multiple of size. Source: MPI_Reduce_scatter_block."""
        if out is None:
            out = new_like(array, dim, lambda extent: extent // self.size)
        return self._call(wait, REDUCE_SCATTER, array, out, op, dim, -1, timeout)

    @overload
    def all_to_all(self, array: A, out: Optional[A] = None, *, timeout: Timeout = None,
                   wait: Literal[True] = True) -> A: ...

    @overload
    def all_to_all(self, array: A, out: Optional[A] = None, *, timeout: Timeout = None,
                   wait: Literal[False]) -> PendingCall[A]: ...

    def all_to_all(self, array: Array, out: Optional[Array] = None, *, timeout: Timeout = None,
                   wait: bool = True) -> Any:
        """Part r of out along dimension 0 = part `rank` of rank r's array. Not in place. Source:
        MPI_Alltoall."""
        if out is None:
            out = new_like(array)
        return self._call(wait, _ALL_TO_ALL, array, out, NO_OP, 0, -1, timeout)

    @overload
    def gather(self, array: A, root: int, out: Optional[A] = None, *, dim: int = 0,
               timeout: Timeout = None, wait: Literal[True] = True) -> Optional[A]: ...

    @overload
    def gather(self, array: A, root: int, out: Optional[A] = None, *, dim: int = 0,
               timeout: Timeout = None, wait: Literal[False]) -> PendingCall[Optional[A]]: ...

    def gather(self, array: Array, root: int, out: Optional[Array] = None, *, dim: int = 0,
               timeout: Timeout = None, wait: bool = True) -> Any:
        """Like all_gather, at the root; the other ranks get None."""
        is_root = self.rank == root
        if is_root and out is None:
            out = new_like(array, dim, lambda extent: extent * self.size)
        return self._call(wait, _GATHER, array, out if is_root else None, NO_OP, dim, root, timeout)

    @overload
    def scatter(self, array: Optional[A], root: int, out: A, *, dim: int = 0,
                timeout: Timeout = None, wait: Literal[True] = True) -> A: ...

    @overload
    def scatter(self, array: Optional[A], root: int, out: A, *, dim: int = 0,
                timeout: Timeout = None, wait: Literal[False]) -> PendingCall[A]: ...

    def scatter(self, array: Optional[Array], root: int, out: Array, *, dim: int = 0,
                timeout: Timeout = None, wait: bool = True) -> Any:
        """out = part `rank` along `dim` of the root's array; other ranks pass None as `array`."""
        source = array if self.rank == root else None
        return self._call(wait, _SCATTER, source, out, NO_OP, dim, root, timeout)

    @overload
    def barrier(self, *, timeout: Timeout = None, wait: Literal[True] = True) -> None: ...

    @overload
    def barrier(self, *, timeout: Timeout = None, wait: Literal[False]) -> PendingCall[None]: ...

    def barrier(self, *, timeout: Timeout = None, wait: bool = True) -> Any:
        """Blocks until all ranks have called it, in order with the other collectives. Source:
        MPI_Barrier, MPI_Ibarrier."""
        if wait:
            self._core.barrier(timeout)
            return None
        return PendingCall(self._core.start_barrier(timeout), None, 'barrier')
