"""Objects between the ranks of `cohort.Group`, through the coordinator."""

from typing import Any, List

from cohort._objects import check_root, check_round, pack, pack_or_refuse, unpack, unpack_all
from cohort.facts import Facts
from cohort.timeouts import Timeout


class GroupObjects(Facts):
    """The methods of `cohort.Group` that move objects. They are not ordered with collectives.

    An object is any value that `cohort.values` takes: None, bool, int, float, str, lists, tuples,
    sets, dicts, arrays of numpy, tensors of PyTorch, and bytes, which travel as they are.
    bytearray, memoryview and other buffers arrive as bytes. With pickle=True on both sides any
    object travels; a receiver that takes a pickle runs code that its sender chooses.

    An object that cannot be sent is InvalidArgument on all ranks of broadcast_object and
    all_gather_objects, with the rank that it names. So is a pickled object where pickle is false.
    """

    def send_object(self, obj: Any, destination: int, *, pickle: bool = False,
                    timeout: Timeout = None) -> None:
        """Sends an object to one rank; does not wait for it. Raises TypeError if it cannot be sent.
        Source: comm.send of mpi4py."""
        self._core.send_object(pack(obj, pickle), destination, timeout)

    def receive_object(self, source: int, *, pickle: bool = False, timeout: Timeout = None) -> Any:
        """Returns the next object of one rank."""
        data = self._core.receive_object(source, timeout)
        return unpack(self, 'receive_object', data, source, pickle)

    def broadcast_object(self, obj: Any, root: int, *, pickle: bool = False,
                         timeout: Timeout = None) -> Any:
        """Returns the root's object on every rank; other ranks' `obj` is ignored."""
        root, timeout, turn = check_root(self, 'broadcast_object', root, timeout)
        data = pack_or_refuse(obj, pickle) if self.rank == root else b''
        with turn:
            data = self._core.broadcast_object(turn.refusal or data, root, timeout)
        return unpack(self, 'broadcast_object', data, root, pickle)

    def all_gather_objects(self, obj: Any, *, pickle: bool = False,
                           timeout: Timeout = None) -> List[Any]:
        """Returns the objects of all ranks, by rank. All ranks call it. Source: all_gather_object
        of torch.distributed."""
        timeout, turn = check_round(self, 'all_gather_objects', timeout)
        data = pack_or_refuse(obj, pickle)
        with turn:
            objects = self._core.all_gather_objects(turn.refusal or data, timeout)
        return unpack_all(self, 'all_gather_objects', objects, pickle)
