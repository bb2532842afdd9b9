"""Cohort's weight transfer backend with gloo's broadcast in the place of Cohort's, to compare."""

import dataclasses
import json
from typing import ClassVar

import numpy
import torch
from torch.distributed import AllreduceOptions, BroadcastOptions, ReduceOp
from vllm.distributed.utils import stateless_init_torch_distributed_process_group
from vllm.distributed.weight_transfer import factory

from cohort.vllm.weight_transfer import TrainerOptions, WeightReceiver, WeightSender


class GlooGroup:
    """The methods of cohort.Group that a weight transfer calls."""

    def __init__(self, name, address, rank, world_size):
        host, port = address.rsplit(':', 1)
        self.name, self.rank = name, rank
        self._group = stateless_init_torch_distributed_process_group(
            host, int(port), rank, world_size, 'gloo')

    @staticmethod
    def empty(size, dtype):
        """New memory."""
        return numpy.empty(size, dtype)

    def broadcast(self, array, root):
        """Every rank's array gets the elements of the root's."""
        options = BroadcastOptions()
        options.rootRank = root
        self._group.broadcast([torch.from_numpy(array)], options).wait()

    def broadcast_map(self, values, root):
        """Returns the root's dict."""
        text = json.dumps(values).encode() if self.rank == root else b''
        size = numpy.array([len(text)])
        self.broadcast(size, root)
        data = numpy.frombuffer(bytearray(text or size[0]), 'uint8')
        self.broadcast(data, root)
        return json.loads(data.tobytes())

    def all_reduce(self, tensor, op):
        """Returns the largest elements of all ranks."""
        assert op == 'max'
        options = AllreduceOptions()
        options.reduceOp = ReduceOp.MAX
        self._group.allreduce([tensor], options).wait()
        return tensor

    def abort(self, reason):
        """Gloo has no way to end the calls of other ranks."""

    def close(self):
        """Frees the group."""
        self._group = None


class GlooReceiver(WeightReceiver):
    """Receives by gloo."""

    def _join(self, options):
        return GlooGroup(options.name, options.address, self._rank + 1, options.world_size)

    def _connect(self, options):
        return None  # the address is not a coordinator's


@dataclasses.dataclass
class GlooTrainerOptions(TrainerOptions):
    """`address` is a free port of this host."""
    backend: ClassVar[str] = 'gloo'


class GlooSender(WeightSender):
    """Sends by gloo. No engine may be late."""

    def _join(self):
        super()._join()
        self.late_engines.close()

    def _join_group(self):
        options = self._options
        return GlooGroup(options.name, options.address, 0, options.engine_ranks + 1)


def register():
    """For vllm.general_plugins."""
    for registry, cls in ((factory.WeightTransferEngineFactory, GlooReceiver),
                          (factory.WeightTransferTrainerFactory, GlooSender)):
        try:
            registry.register_engine('gloo', cls)
        except ValueError:
            pass  # it is registered already
