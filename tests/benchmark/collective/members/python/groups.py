"""The implementations in Python: one rank of each."""

import datetime
import os


def make(options):
    return {'cohort-numpy': CohortNumpy, 'cohort-torch': CohortTorch,
            'torch-gloo': TorchGloo}[options.implementation](options)


class CohortNumpy:
    """cohort.Group on numpy arrays."""

    in_place = False  # whether all_reduce has no other form

    def __init__(self, options):
        import cohort  # pylint: disable=import-outside-toplevel
        self._group = cohort.Group('benchmark', rank=options.rank, world_size=options.members,
                                   address=f'unix:{options.folder}/coordinator')
        self.rank, self.size = options.rank, options.members
        self.barrier = self._group.barrier

    def array(self, count, memory):
        import numpy  # pylint: disable=import-outside-toplevel
        return (numpy.empty(count, 'float32') if memory == 'plain'
                else self._group.empty(count, 'float32'))

    def numpy(self, array):
        return array

    def call(self, work, source, out):
        """Returns a function without arguments that runs the work once."""
        group, rank = self._group, self.rank
        if work.collective == 'sendrecv':
            sends, receives = [(source, (rank + 1) % self.size)], [(out, (rank - 1) % self.size)]
            return lambda: group.exchange(sends, receives)
        if work.collective == 'broadcast':
            array = source if rank == 0 else out
            return lambda: group.broadcast(array, 0)
        method = getattr(group, work.collective)
        return lambda: method(source, out)


class CohortTorch(CohortNumpy):
    """cohort.Group on tensors of PyTorch."""

    def array(self, count, memory):
        import torch  # pylint: disable=import-outside-toplevel
        return (torch.empty(count, dtype=torch.float32) if memory == 'plain'
                else self._group.empty(count, torch.float32))

    def numpy(self, array):
        return array.numpy()


class TorchGloo:
    """torch.distributed over Gloo. Its all_reduce writes its input, which saves it a copy."""

    in_place = True

    def __init__(self, options):
        os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel
        dist.init_process_group(
            'gloo', rank=options.rank, world_size=options.members,
            store=dist.FileStore(f'{options.folder}/store', options.members),
            timeout=datetime.timedelta(minutes=5))
        self.rank, self.size = options.rank, options.members
        self.barrier = dist.barrier

    def array(self, count, memory):
        import torch  # pylint: disable=import-outside-toplevel
        assert memory == 'plain'
        return torch.empty(count, dtype=torch.float32)

    def numpy(self, array):
        return array.numpy()

    def call(self, work, source, out):
        """Returns a function without arguments that runs the work once."""
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel
        array = source if self.rank == 0 else out
        if work.collective == 'sendrecv':
            following, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
            return lambda: _wait(dist.isend(source, following), dist.irecv(out, before))
        return {
            'all_reduce': lambda: dist.all_reduce(out),
            'reduce_scatter': lambda: dist.reduce_scatter_tensor(out, source),
            'broadcast': lambda: dist.broadcast(array, 0),
            'all_gather': lambda: dist.all_gather_into_tensor(out, source),
            'all_to_all': lambda: dist.all_to_all_single(out, source),
        }[work.collective]


def _wait(*pending):
    for each in pending:
        each.wait()
