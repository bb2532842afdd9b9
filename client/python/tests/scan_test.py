"""Prefix reductions: scan and exscan, for each reduction and type."""

import numpy as np
import pytest

import cohort
from testing.fixtures import address_fixture, groups_fixture, run

RANKS = 4

_address = address_fixture()
_groups = groups_fixture('scan', RANKS)

INTEGERS = ['int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'uint64']
FLOATS = ['float16', 'float32', 'float64']
# By reduction: the types, what changes no other, and the reduction of two arrays.
OPS = {
    'sum': (INTEGERS + FLOATS, lambda t: 0, np.add),
    'prod': (INTEGERS + FLOATS, lambda t: 1, np.multiply),
    'min': (INTEGERS + FLOATS, lambda t: np.iinfo(t).max if t in INTEGERS else np.inf, np.minimum),
    'max': (INTEGERS + FLOATS, lambda t: np.iinfo(t).min if t in INTEGERS else -np.inf, np.maximum),
    'bit_and': (INTEGERS, lambda t: np.array(-1).astype(t), np.bitwise_and),
    'bit_or': (INTEGERS, lambda t: 0, np.bitwise_or),
    'bit_xor': (INTEGERS, lambda t: 0, np.bitwise_xor),
}
CASES = [(op, dtype) for op, (types, _, _) in OPS.items() for dtype in types]


def inputs_of(dtype):
    random = np.random.default_rng(7)
    low = 0 if dtype.startswith('u') else -5
    return [random.integers(low, 6, (3, 2)).astype(dtype) for _ in range(RANKS)]


@pytest.mark.parametrize('op, dtype', CASES)
def test_each_reduction(groups, op, dtype):
    _, neutral, function = OPS[op]
    inputs = inputs_of(dtype)
    def body(group, rank):
        return group.scan(inputs[rank], op=op), group.exscan(inputs[rank], op=op)
    expected = np.full((3, 2), neutral(dtype), dtype)
    for (inclusive, exclusive), own in zip(run(groups, body), inputs):
        np.testing.assert_array_equal(exclusive, expected)
        expected = function(expected, own).astype(dtype)
        np.testing.assert_array_equal(inclusive, expected)
        assert inclusive.dtype == exclusive.dtype == dtype


@pytest.mark.parametrize('dtype', INTEGERS + FLOATS)
def test_mean(groups, dtype):
    """The last rank's is that of all_reduce."""
    inputs = inputs_of(dtype)
    def body(group, rank):
        return (group.scan(inputs[rank], op='avg'), group.exscan(inputs[rank], op='avg'),
                group.all_reduce(inputs[rank], op='avg'))
    results = run(groups, body)
    for rank, (inclusive, exclusive, of_all) in enumerate(results):
        for result, count in ((inclusive, rank + 1), (exclusive, rank)):
            total = np.sum([each.astype('f8') for each in inputs[:count]], axis=0)
            mean = total / max(count, 1)
            expected = np.trunc(mean) if dtype in INTEGERS else mean
            np.testing.assert_allclose(result.astype('f8'), np.broadcast_to(expected, (3, 2)),
                                       rtol=1e-3 if dtype == 'float16' else 1e-6)
        if rank == RANKS - 1:
            np.testing.assert_array_equal(inclusive, of_all)


def test_bool(groups):
    own = [[True, False], [True, True], [False, True], [False, False]]
    def body(group, rank):
        return {op: group.scan(np.array(own[rank]), op=op).tolist()
                for op in ('sum', 'prod', 'min', 'max', 'bit_and', 'bit_or', 'bit_xor')}
    results = run(groups, body)
    for rank, result in enumerate(results):
        upto = np.array(own[:rank + 1])
        assert result['sum'] == result['max'] == result['bit_or'] == upto.any(0).tolist()
        assert result['prod'] == result['min'] == result['bit_and'] == upto.all(0).tolist()
        assert result['bit_xor'] == (upto.sum(0) % 2 == 1).tolist()


def test_floats_of_16_bits_are_rounded_once(groups):
    """2048 + 1 is 2048 in float16, and 2048 + 1 + 1 is 2050."""
    own = [2048, 1, 1, 0]
    def body(group, rank):
        return float(group.scan(np.float16([own[rank]]))[0])
    assert run(groups, body) == [2048, 2048, 2050, 2050]


def test_signs_and_nans(groups):
    def body(group, rank):
        zeros = group.scan(np.float32([-0.0]))
        nan = group.scan(np.float32([np.nan if rank == 1 else 3]), op='min')
        empty = group.exscan(np.float32([-0.0]))
        return bool(np.signbit(zeros[0])), bool(np.isnan(nan[0])), bool(np.signbit(empty[0]))
    assert run(groups, body) == [(True, False, False), (True, True, True), (True, True, True),
                                 (True, True, True)]


def test_scale(groups):
    def body(group, rank):
        return group.scan(np.float32([rank + 1]), op=cohort.ReduceOp.pre_mul_sum(0.5))[0]
    assert run(groups, body) == [0.5, 1.5, 3, 5]


def test_in_place_and_strided_outputs(groups):
    def body(group, rank):
        x = np.full(3, rank + 1)
        assert group.scan(x, out=x) is x
        wide = np.zeros((3, 2))
        group.exscan(np.full(3, 1.0), out=wide[:, 1])
        mean = np.zeros((3, 2), np.float16)
        group.scan(np.full(3, rank, np.float16), out=mean[:, 0], op='avg')
        return x.tolist(), wide.tolist(), mean[:, 0].tolist(), group.scan(np.empty((0, 2))).shape
    for rank, (x, wide, mean, empty) in enumerate(run(groups, body)):
        assert x == [sum(range(rank + 2))] * 3 and wide == [[0, rank]] * 3
        assert mean == [rank / 2] * 3 and empty == (0, 2)


def test_scalars_and_one_rank(groups):
    assert [float(x) for x in run(groups, lambda g, rank: g.scan(np.array(2.0)))] == [2, 4, 6, 8]
    alone = run(groups, lambda group, rank: group.split(rank))[0]
    assert alone.scan(np.ones(2)).tolist() == [1, 1] and alone.exscan(np.ones(2)).tolist() == [0, 0]


def test_tensors(groups):
    torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
    def body(group, rank):
        results = []
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint16, torch.bool,
                      torch.float8_e4m3fn):
            x = torch.ones(2).to(dtype)
            results += [group.scan(x, op='max'), group.exscan(x, op='sum' if dtype != torch.bool
                                                              else 'max')]
            assert all(each.dtype == dtype for each in results[-2:])
        results.append(group.scan(torch.full((1,), rank, dtype=torch.bfloat16), op='avg'))
        results.append(group.exscan(torch.ones(1).to(torch.float8_e4m3fn), op='min'))
        results.append(group.scan(torch.full((1,), 5 * rank, dtype=torch.uint16), op='avg'))
        return [each.to(torch.float32).tolist() for each in results]
    for rank, results in enumerate(run(groups, body)):
        for inclusive, exclusive in zip(results[:12:2], results[1:12:2]):
            assert inclusive == [1, 1] and exclusive in ([rank, rank], [min(rank, 1)] * 2)
        assert results[12:] == [[rank / 2], [448 if rank == 0 else 1], [5 * rank // 2]]


def test_wrong_arguments_are_errors_of_all_ranks(groups):
    wrong = [lambda g: g.scan('text'), lambda g: g.scan(np.ones(2), op='median'),
             lambda g: g.scan(np.ones(3)), lambda g: g.exscan(np.ones(2), out=np.ones(3)),
             lambda g: g.scan(np.ones(2), op='avg', out=5),
             lambda g: g.scan(np.ones(2), op='avg', out=np.ones(3)),
             lambda g: g.scan(np.ones(2), op='avg', out=np.ones(2, 'f4')), lambda g: g.scan(np.ones(2) * 1j),
             lambda g: g.exscan(np.ones(2, bool), op='avg')]
    for call in wrong:
        def body(group, rank):
            with pytest.raises(cohort.InvalidArgument, match='rank 0|complex|c128|bool') as caught:
                if rank == 0:
                    call(group)
                else:
                    group.scan(np.ones(2))
            return str(caught.value)
        assert len(set(run(groups, body))) == 1
        assert run(groups, lambda group, rank: group.exchange_sizes(rank))[0] == [0, 1, 2, 3]
