"""Collectives of torch.distributed with right arguments, and with each wrong argument.

    work, check = Ranks(group, rank, size).start('all_gather', 'size', is_async=True)
"""

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

# Enough elements that the root of a broadcast waits for the others.
_MANY = 1 << 16

# By call: its wrong arguments.
WRONG = {
    'all_reduce': ['size', 'type', 'device', 'list', 'no tensor', 'reduction', 'layout',
                   'conjugate', 'complex product'],
    'all_reduce_sparse': ['reduction', 'shape', 'type', 'dense', 'no tensor'],
    'all_reduce_coalesced': ['size', 'type', 'device', 'list', 'empty', 'more types', 'no tensor',
                             'reduction', 'complex product'],
    'reduce': ['size', 'type', 'device', 'list', 'root', 'no root', 'reduction', 'conjugate',
               'complex product'],
    'reduce_scatter': ['list', 'lists', 'size', 'type', 'device', 'output', 'no tensor',
                       'reduction', 'overlap', 'complex product'],
    'reduce_scatter_single': ['size', 'type', 'device', 'output', 'no tensor', 'reduction',
                              'overlap', 'complex product'],
    'reduce_scatter_single_coalesced': ['list', 'lists', 'empty', 'type', 'device', 'reduction',
                                        'complex product'],
    'broadcast': ['size', 'type', 'device', 'list', 'no tensor', 'root', 'no root'],
    'gather': ['list', 'lists', 'size', 'type', 'device', 'output', 'no tensor', 'root', 'no root'],
    'scatter': ['list', 'lists', 'size', 'type', 'device', 'output', 'no tensor', 'root', 'no root'],
    'all_gather': ['list', 'lists', 'size', 'type', 'device', 'output', 'no tensor', 'overlap'],
    'all_gather_coalesced': ['list', 'lists', 'size', 'type', 'empty', 'no tensor'],
    'all_gather_single': ['size', 'type', 'device', 'output', 'no tensor', 'overlap'],
    'all_gather_single_coalesced': ['list', 'lists', 'empty', 'type', 'device'],
    'all_to_all_single': ['size', 'type', 'device', 'splits', 'sum', 'negative', 'no number',
                          'other splits', 'no tensor', 'overlap'],
    'all_to_all': ['list', 'lists', 'size', 'type', 'types', 'device', 'no tensor', 'overlap'],
    'barrier': ['options'],
}
# A wrong argument of one rank that only the root has.
AT_THE_ROOT = {('gather', 'list'), ('gather', 'lists'), ('gather', 'output'), ('scatter', 'list'),
               ('scatter', 'lists')}


def _changed(x, wrong):
    """The tensor with the wrong property, if it is one of a tensor."""
    return {'size': lambda: torch.ones(x.numel() + 1), 'type': x.double,
            'device': lambda: x.to('meta'), 'no tensor': lambda: 'no tensor',
            'layout': lambda: x.to_sparse_csr() if x.dim() == 2 else x.view(1, -1).to_sparse_csr(),
            'conjugate': lambda: torch.complex(x, x).conj(),
            'complex product': lambda: torch.complex(x, x),
            'overlap': lambda: torch.zeros(1).expand(x.numel())}.get(wrong, lambda: x)()


def _listed(tensors, wrong):
    return {'list': tensors[:-1], 'lists': tensors + [torch.ones(2)], 'empty': []}.get(wrong,
                                                                                       tensors)


class Ranks:
    """Makes the calls of one rank. Each has rank 0 as its root."""

    def __init__(self, group, rank, size):
        self.group, self.rank, self.size = group, rank, size

    def start(self, name, wrong=None, is_async=False):
        """Makes the call on the group. Returns its work, and a function that checks its result."""
        method, args, kind, check = getattr(self, '_' + name)(wrong)
        opts = kind()
        opts.asyncOp = is_async
        if wrong == 'reduction':
            opts.reduceOp = dist._make_nccl_premul_sum(torch.ones(1))  # only numbers are supported
        if wrong == 'complex product':
            opts.reduceOp = dist.ReduceOp.PRODUCT
        if wrong == 'root':
            opts.rootRank = self.size
        if wrong == 'no root':
            opts.rootRank = -1
        if wrong == 'options':
            opts = 'no options'
        return getattr(self.group, method)(*args, opts), check

    def _own(self, count=2):
        return torch.full((count,), self.rank + 1.)

    def _all(self, count=2):
        return [torch.full((count,), rank + 1.) for rank in range(self.size)]

    @property
    def _sum(self):
        return self.size * (self.size + 1) / 2

    def _all_reduce(self, wrong):
        x = _changed(self._own(), wrong)
        return 'allreduce', [_list_of_one(x, wrong)], c10d.AllreduceOptions, lambda: (
            x.tolist() == [self._sum] * 2)

    def _all_reduce_sparse(self, wrong):
        x = torch.sparse_coo_tensor([[self.rank, 2]], [1., 2.], (5 if wrong == 'shape' else 4,))
        x = x.to_dense() if wrong == 'dense' else _changed(x, wrong)
        expected = [1.] * self.size + [0.] * (4 - self.size)
        expected[2] += 2. * self.size
        return 'allreduce_sparse', [[x]], c10d.AllreduceOptions, lambda: (
            x.to_dense().tolist() == expected)

    def _all_reduce_coalesced(self, wrong):
        tensors = [_changed(self._own(), wrong), torch.full((3,), self.rank + 1)]
        if wrong == 'more types':
            tensors.append(torch.ones(1).double())
        tensors = _listed(tensors, wrong if wrong != 'lists' else None)
        return 'allreduce_coalesced', [tensors], c10d.AllreduceCoalescedOptions, lambda: (
            [each.tolist() for each in tensors] == [[self._sum] * 2, [self._sum] * 3])

    def _reduce(self, wrong):
        x = _changed(self._own(), wrong)
        return 'reduce', [_list_of_one(x, wrong)], c10d.ReduceOptions, lambda: (
            self.rank != 0 or x.tolist() == [self._sum] * 2)

    def _reduce_scatter(self, wrong):
        out = _changed(torch.zeros(2), 'overlap' if wrong == 'overlap' else None)
        if wrong == 'output':
            out = torch.zeros(3)
        if wrong == 'complex product':
            out = torch.zeros(2, dtype=torch.complex64)
        change = None if wrong == 'overlap' else wrong
        inputs = [_changed(self._own(), change) for _ in range(self.size)]
        return 'reduce_scatter', [[out], [_listed(inputs, wrong)]], c10d.ReduceScatterOptions, \
            lambda: out.tolist() == [self._sum] * 2

    def _reduce_scatter_single(self, wrong):
        out, change = torch.zeros(2), wrong
        if wrong == 'output':
            out = torch.zeros(3)
        if wrong == 'overlap':
            out, change = torch.zeros(1).expand(2), None
        if wrong == 'complex product':
            out = torch.zeros(2, dtype=torch.complex64)
        return 'reduce_scatter_single', [out, _changed(self._own(2 * self.size), change)], \
            c10d.ReduceScatterOptions, lambda: out.tolist() == [self._sum] * 2

    def _reduce_scatter_single_coalesced(self, wrong):
        outs = [torch.zeros(2), torch.zeros(1)]
        inputs = [self._own(2 * self.size), self._own(self.size)]
        if wrong == 'list':                  # a right list, but shorter than those of the others
            return 'reduce_scatter_single_coalesced', [outs[:1], inputs[:1]], \
                c10d.ReduceScatterOptions, lambda: False
        if wrong == 'complex product':
            outs = [torch.complex(each, each) for each in outs]
        inputs[1] = _changed(inputs[1], wrong)
        return 'reduce_scatter_single_coalesced', [_listed(outs, wrong), inputs], \
            c10d.ReduceScatterOptions, lambda: (
                [each.tolist() for each in outs] == [[self._sum] * 2, [self._sum]])

    def _broadcast(self, wrong):
        x = _changed(self._own(_MANY), wrong)
        return 'broadcast', [_list_of_one(x, wrong)], c10d.BroadcastOptions, lambda: (
            torch.equal(x, torch.ones(_MANY)))

    def _gather(self, wrong):
        outs = [torch.zeros(2) for _ in range(self.size)]
        if wrong == 'output':
            outs[-1] = torch.zeros(3)
        return 'gather', [[_listed(outs, wrong)] if self.rank == 0 else [],
                          [_changed(self._own(), wrong)]], c10d.GatherOptions, lambda: (
            self.rank != 0 or [x.tolist() for x in outs] == [x.tolist() for x in self._all()])

    def _scatter(self, wrong):
        out = torch.zeros(3 if wrong == 'output' else 2)
        if wrong != 'output':
            out = _changed(out, wrong)
        return 'scatter', [[out], [_listed(self._all(), wrong)] if self.rank == 0 else []], \
            c10d.ScatterOptions, lambda: out.tolist() == self._own().tolist()

    def _all_gather(self, wrong):
        outs = [torch.zeros(2) for _ in range(self.size)]
        change = wrong
        if wrong == 'output':
            outs[self.rank - 1] = torch.zeros(3)
        if wrong == 'overlap':
            outs[0], change = torch.zeros(1).expand(2), None
        return 'allgather', [[_listed(outs, wrong)], [_changed(self._own(), change)]], \
            c10d.AllgatherOptions, lambda: (
                [x.tolist() for x in outs] == [x.tolist() for x in self._all()])

    def _all_gather_coalesced(self, wrong):
        lists = [[torch.zeros(2), torch.zeros(1)] for _ in range(self.size)]
        inputs = [_changed(self._own(), wrong), self._own(1)]
        if wrong == 'list':                  # a right list, but shorter than those of the others
            lists, inputs = [each[:1] for each in lists], inputs[:1]
        given = [_listed(each, 'lists') for each in lists] if wrong == 'lists' else lists
        return 'allgather_coalesced', [given, [] if wrong == 'empty' else inputs], \
            c10d.AllgatherOptions, lambda: (
                [[x[0].item() for x in each] for each in lists]
                == [[rank + 1.] * 2 for rank in range(self.size)])

    def _all_gather_single(self, wrong):
        out, change = torch.zeros(2 * self.size), wrong
        if wrong == 'output':
            out = torch.zeros(3 * self.size)
        if wrong == 'overlap':
            out, change = torch.zeros(1).expand(2 * self.size), None
        return 'all_gather_single', [out, _changed(self._own(), change)], c10d.AllgatherOptions, \
            lambda: torch.equal(out, torch.cat(self._all()))

    def _all_gather_single_coalesced(self, wrong):
        outs = [torch.zeros(2 * self.size), torch.zeros(self.size)]
        inputs = [self._own(), self._own(1)]
        if wrong == 'list':
            return 'all_gather_single_coalesced', [outs[:1], inputs[:1]], c10d.AllgatherOptions, \
                lambda: False
        inputs[1] = _changed(inputs[1], wrong)
        return 'all_gather_single_coalesced', [_listed(outs, wrong), inputs], \
            c10d.AllgatherOptions, lambda: (
                torch.equal(outs[0], torch.cat(self._all()))
                and torch.equal(outs[1], torch.cat(self._all(1))))

    def _all_to_all_single(self, wrong):
        out, change, splits = torch.zeros(self.size), wrong, []
        if wrong == 'overlap':
            out, change = torch.zeros(1).expand(self.size), None
        splits = {'splits': [1] * (self.size + 1), 'sum': [2] * self.size,
                  'negative': [-1, 3] + [1] * (self.size - 2), 'no number': ['a'] * self.size,
                  'other splits': [2, 0] + [1] * (self.size - 2)}.get(wrong, [])
        return 'all_to_all_single', [out, _changed(self._own(self.size), change), [], splits], \
            c10d.AllToAllOptions, lambda: torch.equal(out, torch.cat(self._all(1)))

    def _all_to_all(self, wrong):
        outs = [torch.zeros(2) for _ in range(self.size)]
        if wrong == 'overlap':
            outs[0] = torch.zeros(1).expand(2)
        change = None if wrong == 'overlap' else wrong
        inputs = [_changed(self._own(), change) for _ in range(self.size)]
        if wrong == 'types':
            inputs[0] = inputs[0].double()
        return 'alltoall', [outs, _listed(inputs, wrong)], c10d.AllToAllOptions, lambda: (
            [x.tolist() for x in outs] == [x.tolist() for x in self._all()])

    def _barrier(self, wrong):
        return 'barrier', [], c10d.BarrierOptions, lambda: True


def _list_of_one(x, wrong):
    return [x, x] if wrong == 'list' else [x]
