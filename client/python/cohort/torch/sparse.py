"""The sum of sparse tensors of PyTorch."""

from typing import Any

import torch

_ALL_GATHER_V = 9
_NO_OP = 1


def all_reduce(core: Any, size: int, tensor: torch.Tensor, seconds: float) -> None:
    """tensor = the sum of all ranks' sparse tensors, of the same shape, in the COO layout.

    Each rank gathers the indices and the values of all ranks. Source: allreduce of sparse tensors
    in ProcessGroupGloo.
    """
    own = tensor.detach().coalesce()
    counts = core.exchange_sizes(own._nnz(), seconds)
    indices = own.indices().t().contiguous()
    values = own.values().contiguous()
    all_indices = indices.new_empty((sum(counts), indices.size(1)))
    all_values = values.new_empty((sum(counts), *values.shape[1:]))
    core.run_ragged(_ALL_GATHER_V, indices, all_indices, _NO_OP, 0, -1, (counts,), seconds)
    core.run_ragged(_ALL_GATHER_V, values, all_values, _NO_OP, 0, -1, (counts,), seconds)
    total = torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(total)
