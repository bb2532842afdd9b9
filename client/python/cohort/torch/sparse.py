"""The sum of sparse tensors of PyTorch."""

from typing import Any, Callable, Iterator

import torch

import cohort

_ALL_GATHER, _ALL_GATHER_V = 4, 9
_NO_OP = 1


class _Sum:
    """Writes the sum when all parts are there: see the outputs of a call in collectives.py."""

    def __init__(self, tensor: torch.Tensor, indices: torch.Tensor, values: torch.Tensor):
        self._tensor, self._indices, self._values = tensor, indices, values

    def finish(self) -> None:
        """tensor = the sum."""
        total = torch.sparse_coo_tensor(self._indices.t(), self._values, self._tensor.shape)
        with torch.no_grad():
            self._tensor.copy_(total.coalesce())


def all_reduce(core: Any, size: int, tensor: torch.Tensor, seconds: float, outputs: list
               ) -> Iterator[Callable[[], Any]]:
    """tensor = the sum of all ranks' sparse tensors, of the same shape, in the COO layout.

    Each rank gathers the indices and the values of all ranks. Yields the steps. Source: allreduce of
    sparse tensors in ProcessGroupGloo.
    """
    own = tensor.detach().coalesce()
    facts = torch.tensor([own._nnz(), own.sparse_dim(), *own.shape])
    counts = yield lambda: _exchange(core, size, facts, seconds)
    indices = own.indices().t().contiguous()
    values = own.values().contiguous()
    all_indices = indices.new_empty((sum(counts), indices.size(1)))
    all_values = values.new_empty((sum(counts), *values.shape[1:]))
    outputs.append(_Sum(tensor, all_indices, all_values))
    for part, whole in ((indices, all_indices), (values, all_values)):
        yield lambda part=part, whole=whole: core.run_ragged(
            _ALL_GATHER_V, part, whole, _NO_OP, 0, -1, (counts,), seconds)


def _exchange(core: Any, size: int, own: torch.Tensor, seconds: float) -> list:
    """Returns the number of elements of each rank. Raises InvalidArgument on all ranks if the shapes
    differ."""
    facts = own.new_empty((size, own.numel()))
    core.run(_ALL_GATHER, own.unsqueeze(0), facts, _NO_OP, 0, -1, seconds)
    rows = facts.tolist()
    for rank, (_, *shape) in enumerate(rows):
        if shape != rows[0][1:]:
            raise cohort.InvalidArgument(
                f'all_reduce of sparse tensors: rank {rank} has the shape {shape[1:]} with '
                f'{shape[0]} sparse dimensions, and rank 0 has {rows[0][2:]} with {rows[0][1]}')
    return [count for count, *_ in rows]
