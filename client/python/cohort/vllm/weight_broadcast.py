"""Named tensors from rank 0 of a group to all its other ranks, in large parts, with checksums.

    sender = Sender(group, part_bytes=64 << 20)          # on rank 0
    sender.copy(version, model.named_parameters())
    sender.send(group)

    receiver = Receiver(group)                            # on the others
    received = receiver.receive(group, lambda tensors: model.load_weights(tensors))

A part is memory that all ranks of the host map, so that a receiver copies each byte once. It needs
PyTorch, and not vLLM.
"""

import weakref
import zlib
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch

from cohort.errors import DataLoss, FailedPrecondition

# Tensors begin at multiples of this within a part, so that every type may be read in place.
_ALIGNMENT = 64
_ROOT = 0

NamedTensors = List[Tuple[str, torch.Tensor]]


class Received(NamedTuple):
    """A version that a receiver has loaded."""
    version: str
    tensors: int
    bytes: int
    checksums: Dict[str, int]  # by name, CRC-32; empty if the sender made none


class Sender:
    """The weights of one version, as rank 0 keeps them for its receivers.

    Attributes:
      version: of the weights; None before the first `copy`.
      bytes: the bytes of all tensors.
    """

    def __init__(self, group: Any, part_bytes: int, checksums: bool = True):
        """
        Args:
          group: its ranks map the parts. Other groups may be sent to as well, with one more copy.
          part_bytes: a part has at most so many bytes, or else one tensor.
          checksums: receivers verify each tensor by CRC-32.
        """
        self.version: Optional[str] = None
        self.bytes = 0
        self._group = group
        self._part_bytes = part_bytes
        self._checksums = checksums
        self._memory: List[Any] = []
        self._header: Dict[str, Any] = {}

    def copy(self, version: str, tensors: Iterable[Tuple[str, torch.Tensor]]) -> None:
        """Copies the tensors, which may change afterwards. They replace those of before."""
        self.version = None
        names: List[str] = []
        dtypes: List[str] = []
        shapes: List[List[int]] = []
        places: List[List[int]] = []
        checksums: List[int] = []
        used: List[int] = []
        for name, tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            offset = -(-used[-1] // _ALIGNMENT) * _ALIGNMENT if used else 0
            if not used or offset + size > self._part_bytes:
                used.append(0)
                offset = 0
            flat = self._part(len(used) - 1, offset + size)[offset:offset + size]
            torch.from_numpy(flat).view(tensor.dtype).view(tensor.shape).copy_(tensor.detach())
            used[-1] = offset + size
            names.append(name)
            dtypes.append(str(tensor.dtype).rpartition('.')[2])
            shapes.append(list(tensor.shape))
            places.append([len(used) - 1, offset, size])
            if self._checksums:
                checksums.append(zlib.crc32(flat))
        self._header = {'version': version, 'names': names, 'dtypes': dtypes, 'shapes': shapes,
                        'places': places, 'checksums': checksums, 'parts': used}
        self.bytes = sum(size for _, _, size in places)
        self.version = version

    def _part(self, number: int, size: int) -> Any:
        """The memory of a part, of at least `size` bytes."""
        if number == len(self._memory):
            self._memory.append(self._group.empty(max(size, self._part_bytes), 'uint8'))
        elif len(self._memory[number]) < size:  # a larger tensor than in the version before
            self._memory[number] = self._group.empty(size, 'uint8')
        return self._memory[number]

    def send(self, group: Any) -> None:
        """Sends the weights to all other ranks of a group, which call `receive`. Raises
        FailedPrecondition before the first `copy`, and the errors of the group."""
        if self.version is None:
            raise FailedPrecondition('send weights: no version has been copied yet')
        group.broadcast_map(self._header, _ROOT)
        for memory, size in zip(self._memory, self._header['parts']):
            group.broadcast(memory[:size], _ROOT)


class Receiver:
    """A rank that receives weights. A part's memory is used again for a later part, as soon as no
    tensor on it is referenced."""

    def __init__(self, group: Any):
        self._group = group
        self._free: List[Any] = []

    def receive(self, group: Any, load: Callable[[NamedTensors], Any]) -> Received:
        """Receives one version and passes each part's tensors to `load`, which may keep them.

        A tensor whose checksum is wrong is not loaded. The other tensors are, and then DataLoss
        names the wrong ones. If `load` raises, the group is aborted on all ranks.
        """
        header = group.broadcast_map(None, _ROOT)
        places, checksums = header['places'], header['checksums']
        wrong: List[str] = []
        for number, size in enumerate(header['parts']):
            memory = self._take(size, max(header['parts']))
            group.broadcast(memory, _ROOT)
            try:
                load(_tensors(header, number, memory, wrong))
            except BaseException as error:
                group.abort(f'rank {group.rank} could not load weights of version '
                            f'{header["version"]}: {error!r}')
                raise
            del memory
        if wrong:
            raise DataLoss(f'receive weights of version {header["version"]} in group {group.name}, '
                           f'rank {group.rank}: wrong checksums of {len(wrong)} of {len(places)} '
                           f'tensors: {", ".join(wrong[:5])}')
        return Received(header['version'], len(places), sum(place[2] for place in places),
                        dict(zip(header['names'], checksums)))

    def _take(self, size: int, largest: int) -> Any:
        """Returns memory that no tensor is on."""
        fitting = [i for i, memory in enumerate(self._free) if len(memory) >= size]
        memory = self._free.pop(fitting[0]) if fitting else self._group.empty(largest, 'uint8')
        part = memory[:size]
        # Tensors on the part keep this very object, until the last of them is gone.
        weakref.finalize(part, self._free.append, memory).atexit = False
        return part


def _tensors(header: Dict[str, Any], number: int, memory: Any, wrong: List[str]) -> NamedTensors:
    """The tensors on the memory of part `number`. Appends to `wrong` the names of those whose
    checksum is wrong, and leaves them out."""
    whole = torch.from_numpy(memory)
    tensors: NamedTensors = []
    for i, (part, offset, size) in enumerate(header['places']):
        if part != number:
            continue
        name, end, checksums = header['names'][i], offset + size, header['checksums']
        if checksums and zlib.crc32(memory[offset:end]) != checksums[i]:
            wrong.append(name)
            continue
        dtype = getattr(torch, header['dtypes'][i])
        tensors.append((name, whole[offset:end].view(dtype).view(header['shapes'][i])))
    return tensors
