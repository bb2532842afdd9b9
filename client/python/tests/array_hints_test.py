"""Arrays that numpy has and tensors have not: those taken, those refused, and what the error
says."""

import operator
import sys
import types

import numpy as np
import pytest

import cohort
from testing.fixtures import address_fixture, groups_fixture, joined_groups, run

RANKS = 2

_address = address_fixture()
_groups = groups_fixture('hints', RANKS)


def refusals(groups, call):
    """The errors of both ranks, if rank 0 makes the call."""
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument) as caught:
            call(group) if rank == 0 else group.all_reduce(np.ones(2))
        return str(caught.value)
    return run(groups, body)


@pytest.mark.parametrize('dtype', ['>f4', '>i8', '>u2', '>c8'])
def test_big_endian_arrays(groups, dtype):
    array = np.ones(2, dtype)
    for message in refusals(groups, lambda g: g.all_reduce(array, out=array)):
        assert "big-endian; pass array.astype(array.dtype.newbyteorder('='))" in message
    swapped = array.astype(array.dtype.newbyteorder('='))
    assert run(groups, lambda group, rank: group.all_gather(swapped).tolist()) == [[1] * 4] * RANKS
    with pytest.raises(ValueError, match='big-endian'):
        groups[0].send(array, 1)


def test_masked_arrays(groups):
    array = np.ma.array([1.0, 2.0], mask=[False, True])
    for message in refusals(groups, lambda g: g.all_reduce(array)):
        assert 'would lose its mask; pass array.filled(value), or array.data' in message
    for message in refusals(groups, lambda g: g.all_reduce(np.ones(2), out=array)):
        assert 'mask' in message
    filled = run(groups, lambda group, rank: group.all_reduce(array.filled(0)).tolist())
    assert filled == [[2, 0]] * RANKS
    assert run(groups, lambda group, rank: group.all_reduce(array.data).tolist())[0] == [2, 4]


def test_shapes_of_numpy(groups):
    group = groups[0]
    assert group.empty(np.int64(5)).shape == (5,)
    assert group.empty((np.int32(2), np.int64(3))).shape == (2, 3)
    assert group.empty([2, 3]).shape == (2, 3) == group.empty(iter((2, 3))).shape
    for wrong in (2.5, 'x', None):
        with pytest.raises((TypeError, ValueError)):
            group.empty(wrong)


NAMES = {
    'sum': ['sum', 'SUM', 'add', 'MPI_SUM', np.add, np.sum, sum, operator.add],
    'prod': ['prod', 'product', 'multiply', 'MPI_PROD', np.multiply, np.prod],
    'min': ['min', 'minimum', 'amin', np.minimum, np.min, min],
    'max': ['max', 'maximum', 'MPI_MAX', np.maximum, np.max, max],
    'avg': ['avg', 'mean', 'average', np.mean, cohort.ReduceOp.AVG],
    'bit_and': ['bit_and', 'band', 'bitwise_and', 'MPI_BAND', np.bitwise_and],
    'bit_or': ['bor', 'bitwise_or', np.bitwise_or],
    'bit_xor': ['bxor', 'bitwise_xor', np.bitwise_xor, 9],
}


@pytest.mark.parametrize('name', NAMES)
def test_names_of_reductions(groups, name):
    def body(group, rank):
        x = np.array([5, 6, 3 + 8 * rank])
        expected = group.all_reduce(x, op=name).tolist()
        return [op for op in NAMES[name] if group.all_reduce(x, op=op).tolist() != expected]
    assert run(groups, body) == [[]] * RANKS


@pytest.mark.parametrize('op', ['median', 'land', 'MPI_LXOR', np.logical_and, np.subtract, 'MPI_',
                                object(), 10, None, len])
def test_other_reductions_are_refused(groups, op):
    for message in refusals(groups, lambda g: g.all_reduce(np.ones(2), op=op)):
        assert 'op: expected a reduction such as "sum" or "max"' in message


def test_operations_of_mpi4py(groups, monkeypatch):
    """They have no name. mpi4py needs a library of MPI, so its module is imitated if it is
    absent."""
    try:
        from mpi4py import MPI  # pylint: disable=import-outside-toplevel
    except (ImportError, RuntimeError):
        MPI = types.SimpleNamespace(**{name: object() for name in (
            'SUM', 'PROD', 'MIN', 'MAX', 'LAND', 'BAND', 'LOR', 'BOR', 'LXOR', 'BXOR')})
        monkeypatch.setitem(sys.modules, 'mpi4py.MPI', MPI)
    def body(group, rank):
        x = np.array([5, 8 * rank])
        return [group.all_reduce(x, op=op).tolist() for op in (MPI.SUM, MPI.MAX, MPI.BXOR)]
    assert run(groups, body) == [[[10, 8], [5, 8], [0, 8]]] * RANKS
    for message in refusals(groups, lambda g: g.all_reduce(np.ones(2), op=MPI.LAND)):
        assert 'op: expected a reduction' in message


def test_types_of_ml_dtypes(groups):
    ml_dtypes = pytest.importorskip('ml_dtypes', reason='ml_dtypes is not installed')
    def body(group, rank):
        for name in ('bfloat16', 'float8_e4m3fn', 'float8_e5m2'):
            dtype = np.dtype(getattr(ml_dtypes, name))
            for array in (np.full((2, 3), rank + 1, dtype), group.empty((2, 3), dtype)):
                array[:] = rank + 1
                result = group.all_reduce(array)
                assert result.dtype == dtype and result.astype('f4').tolist() == [[3] * 3] * 2
                group.all_reduce(array[:, ::2], out=array[:, ::2])
                assert array.astype('f4').tolist() == [[3, rank + 1, 3]] * 2
            gathered = group.all_gather(np.full(1, rank, dtype))
            assert gathered.dtype == dtype and gathered.astype('f4').tolist() == [0, 1]
            assert group.scan(np.full(1, 1, dtype)).astype('f4').tolist() == [rank + 1]
            assert group.scan(np.full(1, rank, dtype), op='avg').astype('f4')[0] == rank / 2
    run(groups, body)
    for message in refusals(groups, lambda g: g.all_gather(np.ones(2, ml_dtypes.float8_e3m4))):
        assert 'rank 0' in message


def test_a_group_without_a_gpu_has_no_gpu_memory(address):
    torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
    with joined_groups('cpu', 1, address) as groups:
        for dtype in ('float32', torch.float32):
            for device in ('cuda', torch.device('cuda')):
                with pytest.raises(cohort.InvalidArgument, match='rank 0 has no GPU in group cpu; pass '
                                   'device="cuda" to cohort.Group'):
                    groups[0].empty(4, dtype, device=device)
            for device in ('cuda:0', 0, torch.device('cuda', 1)):
                with pytest.raises(cohort.InvalidArgument):
                    groups[0].empty(4, dtype, device=device)
            for device in (None, 'cpu', torch.device('cpu')):
                assert len(groups[0].empty(4, dtype, device=device)) == 4
