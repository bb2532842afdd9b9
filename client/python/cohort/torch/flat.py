"""Tensors of PyTorch in the form in which collectives of Cohort take them."""

from typing import List, Sequence, Tuple

import torch

from cohort.arrays import _DTYPES  # pylint: disable=protected-access

_KNOWN_TYPES = frozenset(getattr(torch, name) for name in _DTYPES if hasattr(torch, name))


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of the tensor for a collective that only moves elements: without its gradient,
    and as bytes if Cohort does not know its type."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype in _KNOWN_TYPES:
        return tensor
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor)
    return tensor.view(torch.uint8)


def reducible(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of the tensor for a collective that adds up elements."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.dtype.is_complex else tensor


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
        self.flat = flat_input(self._tensor if self._scratch is None else self._scratch)

    def finish(self) -> None:
        """Copies the written elements to the tensor, unless `flat` is a view of it."""
        if self._scratch is not None:
            self._tensor.copy_(self._scratch)


def join(tensors: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, List[int]]:
    """Returns the elements of all tensors in one dimension, and the number of each."""
    flats = [flat_input(tensor) for tensor in tensors]
    return torch.cat(flats), [flat.numel() for flat in flats]


class JoinedOutput:
    """Several tensors that are written as one, as FlatOutput."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self._outputs = [FlatOutput(tensor) for tensor in tensors]
        self.sizes = [output.flat.numel() for output in self._outputs]
        self.flat = self._outputs[0].flat.new_empty(sum(self.sizes))

    def finish(self) -> None:
        """Copies the written elements to the tensors."""
        for output, part in zip(self._outputs, torch.split(self.flat, self.sizes)):
            output.flat.copy_(part)
            output.finish()
