"""Dicts of values and tensors between the ranks of a group."""

from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from cohort import arrays
from cohort.timeouts import Timeout

TensorDict = Dict[str, Any]
# The path to a tensor: a key, or the keys and the indices of lists on the way to it.
Path = Union[str, Tuple[Union[str, int], ...]]

_MAKERS = {'numpy': arrays.as_numpy, 'torch': arrays.as_torch}


class TensorMaps:
    """The methods of `cohort.Group` that move tensor maps: dicts that travel as a whole.

    The keys are str. The values are None, bool, int of 64 bits, float, str, bytes, lists, dicts with
    such values, arrays of numpy, tensors of PyTorch, and objects with the buffer protocol or
    __dlpack__. Nothing is pickled. Arrays have any strides and are not copied before they are sent;
    the caller does not write to them until the call returns. C++ ranks of the group send and receive
    the same maps (SendTensorMap, BroadcastTensorMap).

    Receivers get the same keys in the same order and new, contiguous arrays. The message does not
    say which library an array is from, so the receiver chooses: tensors="numpy" or "torch". numpy has
    no bfloat16 and no float8: such arrays arrive as tensors of PyTorch in any case. Scalars of numpy
    arrive as arrays without dimensions, except numpy.float64, which is a float. Arrays on the
    sender's GPU arrive on the receiver's.

    A value that cannot be sent is InvalidArgument on all ranks of the call; its text has the path to
    the value, such as tensor_dict['a'][2]. So is a dict that is nested deeper than 32, or contains
    itself. ResourceExhausted: more than 2**20 values, or 64 MiB without the arrays. The group stays
    usable.
    """

    _core: Any

    def send_map(self, tensor_dict: TensorDict, destination: Optional[int] = None, *,
                 all_gather_group: Optional['TensorMaps'] = None,
                 all_gather_tensors: Optional[Mapping[Path, bool]] = None,
                 timeout: Timeout = None) -> None:
        """Sends a dict to one rank, which calls receive_map; None is the next rank, after the last one
        the first. Returns once a small dict is on its way, or the receiver has a large one. Until it
        is received, the two ranks call nothing else with each other. Maps arrive in the order sent.

        Args:
          all_gather_group: this rank's group whose ranks all send the same tensors at the same time,
            each to its own receiver. Each sends a part of every tensor whose elements divide by the
            group's size, and the receivers gather the parts in a group of the same size. If the
            tensors differ, the receivers mix them up without an error.
          all_gather_tensors: by path, whether a tensor travels in parts; the others follow the rule
            above.

        Source: GroupCoordinator.send_tensor_dict of vLLM.
        """
        self._core.send_map(tensor_dict, destination, _gather(all_gather_group, all_gather_tensors),
                            timeout)

    def receive_map(self, source: Optional[int] = None, *, tensors: str = 'numpy',
                    all_gather_group: Optional['TensorMaps'] = None,
                    timeout: Timeout = None) -> TensorDict:
        """Returns the next dict of one rank; None is the previous rank, before the first the last.

        Args:
          tensors: what arrays become: "numpy" or "torch".
          all_gather_group: this rank's group to gather tensors that were sent in parts. All its ranks
            call receive_map, each for a dict of its own sender.

        Source: GroupCoordinator.recv_tensor_dict of vLLM.
        """
        return self._core.receive_map(source, _gather(all_gather_group, None),
                                      _MAKERS.get(tensors, tensors), timeout)

    def broadcast_map(self, tensor_dict: Optional[TensorDict], root: int, *,
                      tensors: str = 'numpy', timeout: Timeout = None) -> TensorDict:
        """Returns the root's dict on every rank; other ranks' `tensor_dict` is ignored. All ranks call
        it. The root gets its own dict back, not a copy. Source: GroupCoordinator.broadcast_tensor_dict
        of vLLM."""
        received = self._core.broadcast_map(tensor_dict, root, _MAKERS.get(tensors, tensors), timeout)
        return tensor_dict if received is None else received


def _gather(group: Optional[TensorMaps],
            choices: Optional[Mapping[Path, bool]]) -> Optional[Tuple[Any, List]]:
    if group is None:
        return None
    # The extension module refuses other arguments, at both ends.
    core = getattr(group, '_core', group)
    if not isinstance(choices, Mapping):
        return core, choices or []
    return core, [([str(step) for step in path] if isinstance(path, tuple) else [path], in_parts)
                  for path, in_parts in choices.items()]
