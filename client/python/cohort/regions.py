"""The regions of tensor-parallel and sequence-parallel layers for PyTorch: the places at which
tensors are cut over the ranks of a group, or joined again. The gradient of each is its adjoint.

    from cohort import regions

    x = regions.copy_to_tensor_parallel(x, group)                   # x: the same on all ranks
    hidden = torch.relu(x @ columns)                                # this rank's [H, F/T] weights
    y = regions.reduce_from_tensor_parallel(hidden @ rows, group)   # this rank's [F/T, H] weights
    loss(y).backward()

    function                                    forward                backward               same
    copy_to_tensor_parallel                     identity               all_reduce             input
    reduce_from_tensor_parallel                 all_reduce             identity               result
    scatter_to_tensor_parallel                  slice, last            all_gather, last       input
    gather_from_tensor_parallel                 all_gather, last       slice, last            result
    scatter_to_sequence_parallel                slice, first           all_gather, first      input
    gather_from_sequence_parallel               all_gather, first      reduce_scatter, first
      if not tensor_parallel_output_grad        all_gather, first      slice, first           result
    reduce_scatter_to_sequence_parallel         reduce_scatter, first  all_gather, first
    all_gather_last_dim_from_tensor_parallel    all_gather, last       reduce_scatter, last
    reduce_scatter_last_dim_to_tensor_parallel  reduce_scatter, last   all_gather, last
    all_to_all                                  all_to_all             all_to_all
    sequence_to_hidden, hidden_to_sequence      all_to_all             all_to_all

First and last are the dimensions that are cut or joined. "same": this tensor and its gradient are
the same on all ranks. Otherwise each rank has its own. All sums are over ranks. T is their number.

- The ranks of the group run the same regions in the same order, forward and backward. So an input
  requires grad on all ranks or on none of them, and the loss depends on the result on all ranks.
- A tensor is on the CPU, with any strides. A collective or a slice returns new contiguous memory;
  an identity returns its input. No region writes its input or a gradient.
- A wrong argument of one rank raises InvalidArgument on all ranks, and the group stays usable. A
  slice concerns one rank: only that rank gets its error. Other errors are those of Group.
- Regions save no tensors for backward. Second derivatives of a region raise RuntimeError.
"""

import math
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch.autograd.function import once_differentiable

from cohort.errors import InvalidArgument
from cohort.group import Group

# pylint: disable=abstract-method,arguments-differ

__all__ = [
    'all_gather_last_dim_from_tensor_parallel', 'all_to_all', 'copy_to_tensor_parallel',
    'gather_from_sequence_parallel', 'gather_from_tensor_parallel', 'hidden_to_sequence',
    'reduce_from_tensor_parallel', 'reduce_scatter_last_dim_to_tensor_parallel',
    'reduce_scatter_to_sequence_parallel', 'scatter_to_sequence_parallel',
    'scatter_to_tensor_parallel', 'sequence_to_hidden',
]

Sizes = Optional[Sequence[int]]

# --- Tensor parallel: the last dimension.


def copy_to_tensor_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns the tensor; its gradient is summed. It goes before a layer whose weights are cut by
    columns. Source: Megatron's copy_to_tensor_model_parallel_region."""
    return _Region.apply(tensor, group, _identity, _sum)


def reduce_from_tensor_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns the sum. It goes after a layer whose weights are cut by rows. Source:
    reduce_from_tensor_model_parallel_region."""
    return _Region.apply(tensor, group, _sum, _identity)


def scatter_to_tensor_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns this rank's equal part, [..., H/T], of [..., H], without a reduction. T divides H.
    Source: scatter_to_tensor_model_parallel_region."""
    return _Region.apply(tensor, group, _slice, _join, -1)


def gather_from_tensor_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns the parts of all ranks, [..., H], of [..., H/T]. All ranks have the same gradient,
    and each takes its part. Source: gather_from_tensor_model_parallel_region."""
    return _Region.apply(tensor, group, _join, _slice, -1)


def all_gather_last_dim_from_tensor_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Like gather_from_tensor_parallel, but each rank has its own gradient, and these are summed.
    Source: all_gather_last_dim_from_tensor_parallel_region."""
    return _Region.apply(tensor, group, _join, _sum_slice, -1)


def reduce_scatter_last_dim_to_tensor_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns this rank's equal part, [..., H/T], of the sum, [..., H]. T divides H. Source:
    reduce_scatter_last_dim_to_tensor_parallel_region."""
    return _Region.apply(tensor, group, _sum_slice, _join, -1)


# --- Sequence parallel: the first dimension.


def scatter_to_sequence_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns this rank's equal part, [S/T, ...], of [S, ...], without a reduction. T divides S.
    Source: scatter_to_sequence_parallel_region."""
    return _Region.apply(tensor, group, _slice, _join, 0)


def gather_from_sequence_parallel(tensor: torch.Tensor, group: Group, *,
                                  tensor_parallel_output_grad: bool = True,
                                  sizes: Sizes = None) -> torch.Tensor:
    """Returns the rows of all ranks, by rank. Source: gather_from_sequence_parallel_region.

    Args:
      tensor_parallel_output_grad: if True, each rank has its own gradient, and these are summed. If
        False, all ranks have the same gradient, and each rank takes its rows.
      sizes: by rank, its rows; the same on all ranks. None: all ranks have the same number.
    """
    adjoint = _sum_slice if tensor_parallel_output_grad else _slice
    return _Region.apply(tensor, group, _join, adjoint, 0, _copied(sizes))


def reduce_scatter_to_sequence_parallel(tensor: torch.Tensor, group: Group, *,
                                        sizes: Sizes = None) -> torch.Tensor:
    """Returns this rank's rows of the sum: sizes[rank] rows, or an equal part if sizes is None. All
    ranks pass the same sizes. Source: reduce_scatter_to_sequence_parallel_region."""
    return _Region.apply(tensor, group, _sum_slice, _join, 0, _copied(sizes))


# --- Exchanges.


def all_to_all(tensor: torch.Tensor, group: Group, *, input_sizes: Sizes = None,
               output_sizes: Sizes = None) -> torch.Tensor:
    """Sends each rank its rows of the tensor, and returns the rows from all ranks, by rank. Either
    all ranks give sizes, or no rank does. Source: Megatron's all_to_all.

    Args:
      input_sizes: by rank, the rows that go to it: this rank's own numbers.
      output_sizes: by rank, the rows that come from it. If only one of the two is None, it stands
        for the tensor's rows in T equal parts.
    """
    return _Region.apply(tensor, group, _exchange, _exchange_back,
                         *_both_sizes(tensor, group, _copied(input_sizes), _copied(output_sizes)))


def sequence_to_hidden(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns this rank's columns of all rows, [n, H/T], of this rank's rows, [n/T, H].

    The dimensions before the last are rows, in order. All ranks pass the same shape, and T divides
    H. hidden_to_sequence is the inverse. Source: all_to_all_sp2hp.
    """
    return _Region.apply(tensor, group, _to_hidden, _to_sequence)


def hidden_to_sequence(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns all columns of this rank's rows, [n/T, H], of this rank's columns, [n, H/T].

    The dimensions before the last are rows, in order. All ranks pass the same shape, and T divides
    n. sequence_to_hidden is the inverse. Source: all_to_all_hp2sp.
    """
    return _Region.apply(tensor, group, _to_sequence, _to_hidden)


# --- Arguments. An exception before the collective would leave the other ranks waiting for this
# one, so the collective gets the wrong argument and fails on all ranks.


class _Refused:
    """Stands for a wrong tensor. A collective that gets it fails on all ranks with this message."""

    def __init__(self, message: str):
        self.error = InvalidArgument(message)

    def __dlpack__(self, **_):
        raise self.error


def _checked(tensor: Any, alone: bool = False) -> Any:
    """Returns the tensor, or a copy if PyTorch conjugates or negates it lazily: a collective reads
    the memory, which does not have that change. `alone`: there is no collective, so the error of a
    wrong tensor is raised here."""
    if isinstance(tensor, torch.Tensor):
        return tensor.resolve_conj().resolve_neg()
    refused = _Refused(f'tensor: expected a tensor of PyTorch, got {type(tensor)}')
    if alone:
        raise refused.error
    return refused


def _described(tensor: torch.Tensor) -> str:
    return f'{str(tensor.dtype)[len("torch."):]} {list(tensor.shape)}'


def _copied(sizes: Any) -> Any:
    """Returns a list that the caller does not change before backward. The collective refuses an
    argument that is no sequence."""
    try:
        return list(sizes)
    except TypeError:
        return sizes


def _both_sizes(tensor: Any, group: Group, input_sizes: Any, output_sizes: Any) -> Tuple[Any, Any]:
    """Returns the arguments of all_to_all, with equal parts in place of a single None."""
    if (input_sizes is None) == (output_sizes is None):
        return input_sizes, output_sizes
    ranks, shape = group.size, getattr(tensor, 'shape', ())
    if not shape or shape[0] % ranks != 0:
        return None, None  # the collective fails on all ranks
    equal = [shape[0] // ranks] * ranks
    return (equal, output_sizes) if input_sizes is None else (input_sizes, equal)


# --- The calls that regions consist of.


def _sum(tensor: Any, group: Group) -> torch.Tensor:
    return group.all_reduce(_checked(tensor))


def _slice(tensor: Any, group: Group, dim: int, sizes: Optional[List[int]] = None) -> torch.Tensor:
    """Returns a copy of this rank's part along `dim`: sizes[rank], or one of T equal parts."""
    tensor, rank, ranks = _checked(tensor, alone=True), group.rank, group.size
    if sizes is None:
        extent = tensor.shape[dim] if tensor.dim() > 0 else None
        if extent is None or extent % ranks != 0:
            why = (f'there is no dimension {dim}' if extent is None else f'the extent of dimension '
                   f'{dim % tensor.dim()}, {extent}, is not a multiple of the {ranks} ranks')
            raise InvalidArgument(
                f'group {group.name}, rank {rank}: a slice of {_described(tensor)}: {why}')
        sizes = [extent // ranks] * ranks
    part = tensor.narrow(dim, sum(sizes[:rank]), sizes[rank])
    return part.clone(memory_format=torch.contiguous_format)


def _join(tensor: Any, group: Group, dim: int, sizes: Optional[List[int]] = None) -> torch.Tensor:
    if sizes is None:
        return group.all_gather(_checked(tensor), dim=dim)
    return group.all_gather_v(_checked(tensor), sizes, dim=dim)


def _sum_slice(tensor: Any, group: Group, dim: int,
               sizes: Optional[List[int]] = None) -> torch.Tensor:
    if sizes is None:
        return group.reduce_scatter(_checked(tensor), dim=dim)
    return group.reduce_scatter_v(_checked(tensor), sizes, dim=dim)


def _exchange(tensor: Any, group: Group, input_sizes: Optional[List[int]],
              output_sizes: Optional[List[int]]) -> torch.Tensor:
    if input_sizes is None:
        return group.all_to_all(_checked(tensor))
    return group.all_to_all_v(_checked(tensor), input_sizes, output_sizes)


def _to_hidden(tensor: Any, group: Group) -> torch.Tensor:
    tensor, ranks = _cut(tensor, group, 'sequence_to_hidden', 'columns'), group.size
    if isinstance(tensor, _Refused):
        return group.all_to_all(tensor)
    rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1] // ranks
    # Part r is the block of columns of rank r.
    blocks = tensor.view(*tensor.shape[:-1], ranks, columns).movedim(-2, 0)
    result = tensor.new_empty(ranks * rows, columns)
    group.all_to_all(blocks, out=result.view(blocks.shape))
    return result


def _to_sequence(tensor: Any, group: Group) -> torch.Tensor:
    tensor, ranks = _cut(tensor, group, 'hidden_to_sequence', 'rows'), group.size
    if isinstance(tensor, _Refused):
        return group.all_to_all(tensor)
    rows, columns = math.prod(tensor.shape[:-1]) // ranks, tensor.shape[-1]
    result = tensor.new_empty(rows, ranks * columns)
    # Part r is the block of columns from rank r.
    group.all_to_all(tensor.reshape(ranks, rows, columns),
                     out=result.view(rows, ranks, columns).movedim(1, 0))
    return result


def _cut(tensor: Any, group: Group, name: str, cut: str) -> Any:
    """Returns the tensor if T divides the number of its rows or columns, and else a _Refused."""
    tensor = _checked(tensor)
    if isinstance(tensor, _Refused):
        return tensor
    text = f'{name} of {_described(tensor)}'
    if tensor.dim() == 0:
        return _Refused(f'{text}: it has no dimension')
    number = tensor.shape[-1] if cut == 'columns' else math.prod(tensor.shape[:-1])
    if number % group.size != 0:
        return _Refused(f'{text}: its {number} {cut} are not a multiple of the {group.size} ranks')
    return tensor


def _identity(tensor: Any, group: Group) -> torch.Tensor:  # pylint: disable=unused-argument
    _checked(tensor, alone=True)
    return tensor


def _exchange_back(tensor: Any, group: Group, input_sizes: Optional[List[int]],
                   output_sizes: Optional[List[int]]) -> torch.Tensor:
    return _exchange(tensor, group, output_sizes, input_sizes)


class _Region(torch.autograd.Function):
    """A region: call(tensor, group, *place), and the adjoint with the same arguments. `place` has the
    dimension and the sizes, as far as the two functions take them.

    A gradient that PyTorch does not have arrives as zeros, so that this rank takes part in the
    collective.
    """

    @staticmethod
    def forward(ctx, tensor, group, call, adjoint, *place):
        ctx.shape = getattr(tensor, 'shape', None)
        ctx.group, ctx.adjoint, ctx.place = group, adjoint, place
        return call(tensor, group, *place)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        result = ctx.adjoint(gradient, ctx.group, *ctx.place)
        if result.shape != ctx.shape:  # the rows of several dimensions
            result = result.view(ctx.shape)
        return (result, None, None, None) + (None,) * len(ctx.place)
