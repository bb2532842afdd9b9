"""Arrays of numpy, read in place: types, layouts, and arrays that only buffers describe."""

import numpy as np
import pytest

import cohort
from testing.fixtures import address_fixture, groups_fixture, run

_address = address_fixture()
_groups = groups_fixture('numpy', 2)

TYPES = ['?', 'b', 'B', 'h', 'H', 'i', 'I', 'l', 'L', 'q', 'Q', 'e', 'f', 'd', 'F', 'D']


@pytest.mark.parametrize('code', TYPES)
def test_each_type(groups, code):
    def body(group, rank):
        out = group.all_gather(np.array([rank, 1]).astype(code))
        assert out.dtype == np.dtype(code)
        return out.tolist()
    assert run(groups, body) == [np.array([0, 1, 1, 1]).astype(code).tolist()] * 2


@pytest.mark.parametrize('layout', [
    lambda x: x[::2], lambda x: x[::-1], lambda x: x.reshape(2, 4).T, lambda x: x[3:],
    lambda x: np.broadcast_to(x[:1], (3, 5)), lambda x: x[:0], lambda x: x.reshape(2, 2, 2)[:, 1],
    lambda x: x[5:6].reshape(())])
def test_each_layout(groups, layout):
    def body(group, rank):
        x = layout(np.arange(8.0) * (rank + 1))
        out = np.zeros(x.shape)
        group.all_reduce(x, out=out)
        return out
    for out in run(groups, body):
        assert np.array_equal(out, layout(np.arange(8.0) * 3))


def test_arrays_of_other_classes(groups, tmp_path):
    class Subclass(np.ndarray):
        pass
    def body(group, rank):
        mapped = np.memmap(tmp_path / str(rank), np.float32, 'w+', shape=4)
        mapped[:] = rank + 1
        group.all_reduce(mapped, out=mapped)
        seen = np.full(4, rank + 1, np.float32).view(Subclass)
        group.all_reduce(seen, out=seen)
        return mapped.tolist() + seen.tolist()
    assert run(groups, body) == [[3.0] * 8] * 2


@pytest.mark.parametrize('array, text', [
    (np.zeros(4, '>f4'), 'not supported'),
    (np.zeros(4, np.longdouble), 'not supported'),
    (np.zeros(4, 'M8[s]'), 'only supports'),
    (np.zeros(4, [('a', 'f4'), ('b', 'i1')]), 'not supported'),
    (np.zeros(4, [('a', 'f4'), ('b', 'i1')])['a'], 'no multiple'),
    (np.zeros(4, object), 'not supported|only supports')])
def test_arrays_that_tensors_cannot_describe(groups, array, text):
    def body(group, _):
        with pytest.raises(cohort.InvalidArgument, match=text):
            group.all_reduce(array, out=np.zeros(4, np.float32))
        return group.all_reduce(np.ones(2)).tolist()
    assert run(groups, body) == [[2.0, 2.0]] * 2


def test_read_only_outputs(groups):
    def body(group, rank):
        frozen = np.zeros(4)
        frozen.flags.writeable = False
        with pytest.raises(cohort.InvalidArgument, match='output: the array is read-only'):
            group.all_reduce(np.ones(4), out=frozen)
        return group.all_reduce(frozen + rank).tolist()
    assert run(groups, body) == [[1.0] * 4] * 2
