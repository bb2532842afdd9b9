"""cohort.values: round trips, refused types, and bytes that are no value."""

import math
import random

import numpy as np
import pytest

from cohort import values


@pytest.mark.parametrize('value', [
    None, True, 0, -1, 1 << 100, 1.5, math.inf, 'text \u00e4', '', b'', b'\0\xff', [], (), {}, set(),
    [1, (2, [3, {'a': b'x', 4: None, (5, 6): 'tuple'}])], {'s': {1, 2}}, {'d': [['a', 'b']]},
    {'b': 5}, [{'t': []}], {frozenset({1}), frozenset()}, {np.int64(1): 2}, np.float32(1.5),
])
def test_round_trip(value):
    result = values.decode(values.encode(value))
    assert result == value and type(result) is type(value)


def test_other_bytes_like_objects():
    for value in (b'\0bytes', [1, b'x']):
        data = values.encode(value)
        assert values.decode(bytearray(data)) == values.decode(memoryview(data)) == value


def test_not_a_number():
    assert math.isnan(values.decode(values.encode(math.nan)))


@pytest.mark.parametrize('dtype', ['bool', 'int8', 'uint64', 'float16', 'float64', 'complex64',
                                   '>i4'])
@pytest.mark.parametrize('shape', [(), (0, 3), (2, 3)])
def test_arrays(dtype, shape):
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    first, second = values.decode(values.encode([array, {'again': array.T}])), None
    first, second = first[0], first[1]['again']
    np.testing.assert_array_equal(first, array)
    np.testing.assert_array_equal(second, array.T)
    assert first.dtype == array.dtype and first.flags.writeable


@pytest.mark.parametrize('dtype', ['bool', 'int64', 'bfloat16', 'complex64'])
@pytest.mark.parametrize('shape', [(), (0,), (0, 3), (2, 3)])
def test_tensors(dtype, shape):
    torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(getattr(torch, dtype))
    for each in (tensor, tensor.t() if len(shape) == 2 else tensor):
        result = values.decode(values.encode(each))
        assert result.dtype == each.dtype and torch.equal(result, each)


def test_other_types_are_refused():
    class Other:  # pylint: disable=too-few-public-methods
        """No plain value."""
    for value in (Other(), object, lambda: 0, np.array([None]), [Other()]):
        with pytest.raises(TypeError, match='cannot send'):
            values.encode(value)
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match='nested'):
        values.encode(nested)


def test_pickles_are_refused_unless_both_sides_allow_them():
    data = values.encode(complex(1, 2), allow_pickle=True)
    assert values.decode(data, allow_pickle=True) == complex(1, 2)
    with pytest.raises(ValueError, match='pickled'):
        values.decode(data)


def test_damaged_bytes_are_no_value():
    value = {'a': [np.arange(4), b'xyz', (1, 'two')], 'b': None}
    data = values.encode(value)
    seed = random.randrange(1 << 32)
    print('seed', seed)
    rng = random.Random(seed)
    damaged = [data[:end] for end in range(len(data))]
    for _ in range(2000):
        copy = bytearray(data)
        copy[rng.randrange(len(copy))] = rng.randrange(256)
        damaged.append(bytes(copy))
    for candidate in damaged:
        try:
            values.decode(candidate)
        except ValueError:
            pass
    for header in (b'{"a":["O",[1]]}', b'{"a":["<f8",[1000000000000]]}', b'{"T":["Tensor",[1]]}',
                   b'{"x":1}', b'{"a":1,"b":2}', b'{"b":-1}', b'{"t":5}', b'[' * 100_000):
        with pytest.raises(ValueError):
            values.decode(len(header).to_bytes(4, 'little') + header)
