"""The arguments of collectives, in the forms that PyTorch allows."""

from typing import Any, List, Sequence

import torch
import torch.distributed as dist

import cohort


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


def check_pairs(call: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Raises ValueError unless there is an output for each input, and at least one."""
    if len(outputs) != len(inputs) or not inputs:
        raise ValueError(f'{call}: expected an output for each input, and at least one, got '
                         f'{len(outputs)} outputs and {len(inputs)} inputs')


def check_parts(call: str, what: str, parts: Sequence[torch.Tensor], own: torch.Tensor,
                rank: int) -> None:
    """Raises ValueError unless all parts have the type of `own`, and that of `rank` has its number
    of elements."""
    for index, part in enumerate(parts):
        if part.dtype != own.dtype:
            raise ValueError(f'{call}: {what} {index} of the list is of {part.dtype}, expected '
                             f'{own.dtype}')
    if parts[rank].numel() != own.numel():
        raise ValueError(f'{call}: {what} {rank} of the list has {parts[rank].numel()} elements, '
                         f'expected {own.numel()}, as this rank\'s tensor has')


def check_own_sizes(call: str, what: str, own: Sequence[int], sizes: Sequence[int]) -> None:
    """Raises ValueError unless the root's list has the sizes of all ranks' tensors."""
    for rank, (here, there) in enumerate(zip(own, sizes)):
        if here != there:
            raise ValueError(f'{call}: {what} {rank} of the list has {here} elements, and the '
                             f'tensor of rank {rank} has {there}')


def on_gpu(arguments: Any) -> bool:
    """Whether there is a tensor on a GPU among the arguments and in their lists."""
    if isinstance(arguments, torch.Tensor):
        return arguments.is_cuda
    return isinstance(arguments, (list, tuple)) and any(map(on_gpu, arguments))

def refusal_text(name: str, error: Exception) -> str:
    """The text about an exception of this rank that the other ranks get."""
    text = str(error).strip() or type(error).__name__
    if 'to unpack' in text:
        text = f'expected a list of one: {text}'
    if not isinstance(error, (ValueError, cohort.Error)):
        text = f'{type(error).__name__}: {text}'
    if not text.startswith(name):
        text = f'{name}: {text}'
    return text[:2000].encode('utf-8', 'replace').decode()
