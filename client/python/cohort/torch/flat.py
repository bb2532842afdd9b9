"""Tensors of PyTorch in the form in which collectives of Cohort take them."""

from typing import Any, List, Sequence, Tuple

import torch

from cohort.arrays import _DTYPES  # pylint: disable=protected-access
from cohort.reduce_op import ReduceOp

_KNOWN_TYPES = frozenset(getattr(torch, name) for name in _DTYPES if hasattr(torch, name))
# The reductions of complex numbers that are those of their parts, beside PREMUL_SUM.
_OF_COMPLEX = (ReduceOp.SUM, ReduceOp.AVG)


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of the tensor for a collective that only moves elements: without its gradient,
    and as bytes if Cohort does not know its type."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype in _KNOWN_TYPES:
        return tensor
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor)
    if tensor.element_size() > 1:
        tensor = tensor.unsqueeze(-1)  # the dimension of the bytes
    return tensor.view(torch.uint8)


def reducible(tensor: torch.Tensor, reduction: Any) -> torch.Tensor:
    """Returns a view of the tensor for a collective that reduces elements by Cohort's `reduction`.
    Complex elements are reduced as pairs of numbers. Raises ValueError where that is not the
    reduction of complex numbers."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.dtype.is_complex:
        return tensor
    if reduction not in _OF_COMPLEX and not isinstance(reduction, tuple):
        raise ValueError(f'{ReduceOp(reduction).name} of {tensor.dtype} is not supported; expected '
                         f'SUM, AVG or PREMUL_SUM')
    return torch.view_as_real(tensor)


def flat_input(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the elements of a tensor in one dimension, to be read."""
    return movable(tensor).reshape(-1)


class FlatOutput:
    """The elements of a tensor in one dimension, to be written.

        out = FlatOutput(tensor)
        ...                        # writes out.flat
        out.finish()
    """

    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor.detach()
        self._scratch = None if tensor.is_contiguous() else self._tensor.new_empty(tensor.shape)
        if self._scratch is not None and _overlaps_itself(tensor):
            raise ValueError(f'an output of the shape {list(tensor.shape)} and the strides '
                             f'{list(tensor.stride())} has elements that overlap in memory')
        self.flat = flat_input(self._tensor if self._scratch is None else self._scratch)

    def finish(self) -> None:
        """Copies the written elements to the tensor, unless `flat` is a view of it."""
        if self._scratch is not None:
            _write(self._tensor, self._scratch)


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    return torch._debug_has_internal_overlap(tensor) == 1  # pylint: disable=protected-access


def _write(to: torch.Tensor, source: torch.Tensor) -> None:
    # PyTorch lets only code in inference mode write tensors of inference mode.
    with torch.inference_mode(to.is_inference()):
        to.copy_(source)


def join(tensors: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, List[int]]:
    """Returns the elements of all tensors in one dimension, and the number of each."""
    flats = [flat_input(tensor) for tensor in tensors]
    _check_alike(flats)
    return torch.cat(flats), [flat.numel() for flat in flats]


def _check_alike(flats: Sequence[torch.Tensor]) -> None:
    """Raises ValueError if tensors differ in type or device: they are joined to one."""
    first = flats[0]
    for index, flat in enumerate(flats):
        if flat.dtype != first.dtype or flat.device != first.device:
            raise ValueError(f'tensor {index} of the list is of {flat.dtype} on {flat.device}, and '
                             f'tensor 0 is of {first.dtype} on {first.device}')


class JoinedOutput:
    """Several tensors that are written as one, as FlatOutput."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self._outputs = [FlatOutput(tensor) for tensor in tensors]
        _check_alike([output.flat for output in self._outputs])
        self.sizes = [output.flat.numel() for output in self._outputs]
        self.flat = self._outputs[0].flat.new_empty(sum(self.sizes))

    def finish(self) -> None:
        """Copies the written elements to the tensors."""
        for output, part in zip(self._outputs, torch.split(self.flat, self.sizes)):
            _write(output.flat, part)
            output.finish()
