"""The arguments of collectives, in the forms that PyTorch allows."""

from typing import Any, List, Sequence

import torch
import torch.distributed as dist


def in_list(tensors: Any) -> List[torch.Tensor]:
    """Returns a list of tensors for a tensor or a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def options(kind: type, given: Any, timeout: Any, **attributes: Any) -> Any:
    """Options of a call whose arguments come one by one. `given` is a reduction, a timeout, or
    None."""
    opts = kind()
    if isinstance(given, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        opts.reduceOp = given
    elif given is not None:
        timeout = given
    if timeout is not None:
        opts.timeout = timeout
    for name, value in attributes.items():
        if value is not None:
            setattr(opts, name, value)
    return opts


def check_count(call: str, what: str, tensors: Sequence[Any], count: int) -> None:
    """Raises ValueError unless there is one of them for each rank."""
    if len(tensors) != count:
        raise ValueError(f'{call}: expected {count} {what}, one for each rank, got {len(tensors)}')


def check_sizes(call: str, tensors: Sequence[torch.Tensor], like: torch.Tensor) -> None:
    """Raises ValueError unless all tensors have the type and the number of elements of `like`."""
    for index, tensor in enumerate(tensors):
        if tensor.numel() != like.numel() or tensor.dtype != like.dtype:
            raise ValueError(
                f'{call}: tensor {index} of the list has {tensor.numel()} elements of '
                f'{tensor.dtype}, expected {like.numel()} elements of {like.dtype}')
