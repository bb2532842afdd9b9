"""Named tensors from rank 0 of a group to all its other ranks, in large parts, with checksums.

    sender = Sender(group, part_bytes=64 << 20)          # on rank 0
    sender.copy(version, model.named_parameters())
    sender.send(group)

    receiver = Receiver(decisions.decide)                 # on the others
    received = receiver.receive(group, lambda tensors: model.load_weights(tensors))

A part is memory of rank 0 that all ranks of the host map, so that a receiver copies each byte once. It
needs PyTorch, and not vLLM.
"""

import copy
import uuid
import weakref
import zlib
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy
import torch

from cohort.errors import Aborted, DataLoss, Error, FailedPrecondition

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
        """Sends the weights to all other ranks of a group, which call `receive`. Blocks until all have
        received them. Raises FailedPrecondition before the first `copy`, DataLoss if a rank got wrong
        checksums, and the errors of the group."""
        if self.version is None:
            raise FailedPrecondition('send weights: no version has been copied yet')
        group.broadcast_map({**self._header, 'update': uuid.uuid4().hex}, _ROOT)
        for memory, size in zip(self._memory, self._header['parts']):
            group.broadcast(memory[:size], _ROOT)
        wrong_rank = _rank_with_wrong_checksums(group, False)
        if wrong_rank is not None:
            raise DataLoss(f'send weights of version {self.version} in group {group.name}: rank '
                           f'{wrong_rank} got wrong checksums, so no rank loads them')


class Receiver:
    """A rank that receives weights. It holds a whole update in host memory before it loads any part,
    and keeps that memory for the next update. Memory on which a loaded tensor lies is not used again
    while the tensor is referenced.

    All receivers of a group load an update, or none does: see `UpdateDecisions`.
    """

    def __init__(self, decide: Optional[Callable[[str, bool], bool]] = None,
                 staging_bytes: Optional[int] = None):
        """
        Args:
          decide: UpdateDecisions.decide. None: if a rank is lost just when the last part has arrived,
            some receivers may load the update while others do not.
          staging_bytes: the most bytes of an update that are held. A larger update is loaded part by
            part while it arrives, so that an error leaves old and new weights mixed. None: no limit.
        """
        self._decide = decide
        self._staging_bytes = staging_bytes
        self._free: List[Any] = []

    def receive(self, group: Any, load: Callable[[NamedTensors], Any]) -> Received:
        """Receives one version and passes each part's tensors to `load`, which may keep them. Blocks
        until all ranks of the group have received it.

        If `load` raises, the group is aborted on all ranks. Before any other error, nothing is loaded,
        unless the update exceeds `staging_bytes`; the error says so.

        Raises:
          DataLoss: a checksum was wrong, on any rank; on that rank, it names the tensors. The group
            stays usable.
          Aborted and others of the group: rank 0 or another rank was lost.
          Unavailable: the coordinator was away when the ranks decided whether to load.
        """
        header = group.broadcast_map(None, _ROOT)
        sizes = header['parts']
        holds = self._staging_bytes is None or sum(sizes) <= self._staging_bytes
        what = (f'receive weights of version {header["version"]} in group {group.name}, rank '
                f'{group.rank}')
        wrong: List[str] = []
        parts: List[NamedTensors] = []
        loaded = 0
        for number, size in enumerate(sizes):
            memory = self._take(size, size if holds else max(sizes))
            try:
                group.broadcast(memory, _ROOT)
            except Error as error:
                raise _with_context(
                    error, f'{what}: part {number + 1} of {len(sizes)} did not arrive; '
                    f'{_loaded_so_far(loaded)}') from error
            parts.append(_tensors(header, number, memory, wrong))
            del memory
            if not holds:
                _load(load, parts, group, header)
                loaded += 1
        self._agree(group, header, wrong, what, loaded)
        _load(load, parts, group, header)
        places = header['places']
        return Received(header['version'], len(places), sum(place[2] for place in places),
                        dict(zip(header['names'], header['checksums'])))

    def _agree(self, group: Any, header: Dict[str, Any], wrong: List[str], what: str,
               loaded: int) -> None:
        """Returns if all ranks have received the update, and raises on all of them otherwise."""
        decide = self._decide or (lambda _, received: received)
        try:
            wrong_rank = _rank_with_wrong_checksums(group, bool(wrong))
        except Error as error:
            # The same call may have succeeded on another rank.
            if not decide(header['update'], False):
                raise _with_context(
                    error, f'{what}: not all ranks received it; {_loaded_so_far(loaded)}') from error
            return
        if wrong:
            raise DataLoss(f'{what}: wrong checksums of {len(wrong)} of {len(header["places"])} '
                           f'tensors: {", ".join(wrong[:5])}; {_loaded_so_far(loaded)}')
        if wrong_rank is not None:
            raise DataLoss(f'{what}: rank {wrong_rank} got wrong checksums; {_loaded_so_far(loaded)}')
        if not decide(header['update'], True):
            raise Aborted(f'{what}: another rank was lost before it had received the last part; '
                          f'{_loaded_so_far(loaded)}')

    def _take(self, size: int, new_size: int) -> Any:
        """Returns memory of `size` bytes that no tensor is on: the smallest that is free, or else the
        beginning of `new_size` bytes."""
        fitting = [i for i, memory in enumerate(self._free) if len(memory) >= size]
        if fitting:
            memory = self._free.pop(min(fitting, key=lambda i: len(self._free[i])))
        else:
            memory = numpy.empty(new_size, 'uint8')
        part = memory[:size]
        # Tensors on the part keep this very object, until the last of them is gone.
        weakref.finalize(part, self._free.append, memory).atexit = False
        return part


def _rank_with_wrong_checksums(group: Any, is_wrong: bool) -> Optional[int]:
    """Waits for all ranks. Returns the highest rank with wrong checksums, or None without such a
    rank."""
    highest = group.all_reduce(torch.tensor([group.rank if is_wrong else -1]), op='max').item()
    return None if highest < 0 else highest


def _load(load: Callable[[NamedTensors], Any], parts: List[NamedTensors], group: Any,
          header: Dict[str, Any]) -> None:
    """Loads all parts, and takes them off the list one by one, so that their memory becomes free."""
    while parts:
        try:
            load(parts.pop(0))
        except BaseException as error:
            group.abort(f'rank {group.rank} could not load weights of version '
                        f'{header["version"]}: {error!r}')
            raise


def _loaded_so_far(parts: int) -> str:
    return ('this rank has loaded none of it' if parts == 0 else
            f'this rank has loaded {parts} parts, because the update exceeds staging_bytes, and needs '
            'another update before it serves')


def _with_context(error: Error, context: str) -> Error:
    """Returns the error with a text that begins with the context."""
    result = copy.copy(error)
    result.message = f'{context}: {error.message}'
    result.args = (result.message,)
    return result


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
