"""Types whose elements Cohort moves and does not reduce: scales, packed and foreign floats."""

import numpy as np
import pytest

import cohort
from testing.fixtures import address_fixture, groups_fixture, run

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
ml_dtypes = pytest.importorskip('ml_dtypes', reason='ml_dtypes is not installed for this Python')

RANKS = 2

_address = address_fixture()
_groups = groups_fixture('moved', RANKS)

TORCH = ('float8_e8m0fnu', 'float8_e4m3fnuz', 'float8_e5m2fnuz', 'float4_e2m1fn_x2')
NUMPY = ('float8_e8m0fnu', 'float8_e4m3fnuz', 'float8_e5m2fnuz', 'float4_e2m1fn', 'float6_e2m3fn',
         'float6_e3m2fn')


def of_torch(name, numbers):
    return torch.tensor(numbers, dtype=torch.uint8).view(getattr(torch, name))


def of_numpy(name, numbers):
    return np.array(numbers, np.uint8).view(getattr(ml_dtypes, name))


def bytes_of(array):
    if isinstance(array, torch.Tensor):
        return array.contiguous().view(torch.uint8).tolist()
    return np.ascontiguousarray(array).view(np.uint8).tolist()


EACH = pytest.mark.parametrize('name,make', [(name, of_torch) for name in TORCH] +
                               [(name, of_numpy) for name in NUMPY])


@EACH
def test_bytes_arrive_as_they_are(groups, name, make):
    def body(group, rank):
        other = 1 - rank
        own = make(name, [[16 * rank + 1, 255], [3, 4]])
        def check(array, expected):
            assert array.dtype == own.dtype
            assert bytes_of(array) == expected
        check(group.all_gather(own), [[1, 255], [3, 4], [17, 255], [3, 4]])
        check(group.all_gather(own, dim=1), [[1, 255, 17, 255], [3, 4, 3, 4]])
        check(group.all_gather(own.T[:1], dim=1), [[1, 3, 17, 3]])
        check(group.all_gather_v(own[:rank + 1], [1, 2]), [[1, 255], [17, 255], [3, 4]])
        check(group.all_to_all(own), [[1, 255], [17, 255]] if rank == 0 else [[3, 4], [3, 4]])
        check(group.broadcast(make(name, [9 * other]), 0), [9])
        out = make(name, [[0, 0]])
        check(group.scatter(own if rank == 1 else None, 1, out), [[17, 255]] if rank == 0 else
              [[3, 4]])
        gathered = group.gather(own, 0)
        if rank == 0:
            check(gathered, [[1, 255], [3, 4], [17, 255], [3, 4]])
        out = make(name, [[0, 0], [0, 0]])
        group.exchange([(own, other)], [(out, other)])
        check(out, [[16 * other + 1, 255], [3, 4]])
        shared = group.empty((2, 2), own.dtype)
        shared[...] = own
        check(group.all_gather(shared, out=make(name, [[0, 0]] * 4)),
              [[1, 255], [3, 4], [17, 255], [3, 4]])
    run(groups, body)


@EACH
def test_reductions_are_refused_on_all_ranks(groups, name, make):
    def body(group, rank):
        array = make(name, [1, 2])
        for call in (group.all_reduce, group.reduce_scatter, group.scan, group.exscan,
                     lambda a: group.reduce(a, 0), lambda a: group.reduce_scatter_v(a, [2, 0]),
                     lambda a: group.all_reduce(a, op='max'), lambda a: group.scan(a, op='avg'),
                     lambda a: group.all_reduce_coalesced([a])):
            with pytest.raises(cohort.InvalidArgument, match='cannot be reduced by'):
                call(array)
            # On one rank alone.
            with pytest.raises(cohort.InvalidArgument, match='rank 1'):
                call(array if rank == 1 else np.ones(2, np.float32))
            assert group.all_reduce(np.ones(1)).tolist() == [RANKS]
    run(groups, body)


def test_another_type_of_the_same_size_is_refused(groups):
    def body(group, rank):
        for one, other in zip(NUMPY, NUMPY[1:] + ('uint8',)):
            array = np.zeros(2, np.uint8).view(getattr(ml_dtypes, one if rank else other, np.uint8))
            with pytest.raises(cohort.InvalidArgument):
                group.all_gather(array)
        assert group.all_reduce(np.ones(1)).tolist() == [RANKS]
    run(groups, body)


def test_maps(groups):
    sent = {name: of_torch(name, [[1, 254], [2, 3]]).T for name in TORCH}
    sent['numpy'] = {name: of_numpy(name, [[1, 254], [2, 3]])[:, 0] for name in NUMPY}
    def body(group, rank):
        received = group.broadcast_map(sent if rank == 0 else None, 0)
        if rank == 0:
            return
        for name in TORCH:
            assert received[name].dtype == getattr(torch, name)
            assert bytes_of(received[name]) == [[1, 2], [254, 3]]
        for name in NUMPY:
            # PyTorch has the first ones, and numpy itself none.
            library = torch if name in TORCH else ml_dtypes
            assert received['numpy'][name].dtype == getattr(library, name)
            assert bytes_of(received['numpy'][name]) == [1, 2]
    run(groups, body)


def test_objects(groups):
    def body(group, rank):
        for make, names in ((of_torch, TORCH), (of_numpy, NUMPY + ('bfloat16', 'float8_e3m4'))):
            for name in names:
                array = make(name, [[1, 254], [2, 3]]).T
                received = group.broadcast_object(array if rank == 0 else None, 0)
                assert received.dtype == array.dtype and bytes_of(received) == bytes_of(array)
    run(groups, body)
