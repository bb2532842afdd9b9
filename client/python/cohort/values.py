"""Plain values as bytes, without pickle: what another process sends can only become data.

None, bool, int, float, str, bytes, list, tuple, set, frozenset and dict, nested as one likes, arrays
and scalars of numpy, and tensors of PyTorch. A tensor arrives on the CPU.

    data = values.encode({"step": 3, "weights": tensor})
    value = values.decode(data)

The bytes are a header in JSON, of which the first four bytes are the length, and then the contents
of all bytes and arrays, in the order of the header. In the header, an object with one key stands for
a value that JSON does not have. Without a header, the rest is one bytes object.
"""

import json
import math
import pickle
import re
import sys
from typing import Any, List

_LENGTH_BYTES = 4
_NO_HEADER = bytes(_LENGTH_BYTES)
_TO_JSON = json.JSONEncoder(allow_nan=False, separators=(',', ':')).encode
_FROM_JSON = json.JSONDecoder().decode
_NUMPY_TYPE = re.compile(r'[<>|][biufc][0-9]{1,2}')
_TORCH_TYPES = frozenset((
    'bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'uint16', 'uint32', 'uint64', 'float16',
    'bfloat16', 'float32', 'float64', 'complex32', 'complex64', 'complex128', 'float8_e4m3fn',
    'float8_e5m2', 'float8_e4m3fnuz', 'float8_e5m2fnuz', 'float8_e8m0fnu', 'float4_e2m1fn_x2'))
# Types that ml_dtypes adds to numpy, whose elements are whole bytes.
_ML_DTYPES = re.compile(r'(bfloat16|(float|int|uint)[248](_[a-z0-9]+)?|float6_[a-z0-9]+)')
# The keys in the header.
_SEQUENCES = {tuple: 't', set: 's', frozenset: 'z'}


def encode(value: Any, *, allow_pickle: bool = False) -> bytes:
    """Returns the value as bytes. Raises TypeError for a value of another type, unless
    `allow_pickle` says that it may be pickled."""
    if type(value) is bytes:
        return _NO_HEADER + value
    parts: List[bytes] = []
    try:
        header = _TO_JSON(_encode(value, parts, allow_pickle)).encode()
    except RecursionError:
        raise ValueError('the value is nested too deeply') from None
    return b''.join([len(header).to_bytes(_LENGTH_BYTES, 'little'), header, *parts])


def decode(data: bytes, *, allow_pickle: bool = False) -> Any:
    """Returns the value of the bytes. Raises ValueError if they are no value, or hold a pickle and
    `allow_pickle` is false."""
    data = bytes(data)  # no copy of bytes
    if data.startswith(_NO_HEADER):
        return data[_LENGTH_BYTES:]
    view = memoryview(data)
    begin = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], 'little')
    try:
        header = _FROM_JSON(data[_LENGTH_BYTES:begin].decode())
        reader = _Reader(view[begin:], allow_pickle)
        value = reader.read(header)
    except (KeyError, IndexError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f'the bytes are no value: {error!r}') from None
    if reader.rest:
        raise ValueError(f'the value is followed by {reader.rest.nbytes} bytes')
    return value


def _encode(value: Any, parts: List[bytes], allow_pickle: bool) -> Any:
    """Returns the value for the header, and appends its contents."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {'f': repr(value)}
    if kind is list:
        return [_encode(item, parts, allow_pickle) for item in value]
    if kind in _SEQUENCES:
        return {_SEQUENCES[kind]: [_encode(item, parts, allow_pickle) for item in value]}
    if kind is dict:
        return {'d': [[_encode(key, parts, allow_pickle), _encode(item, parts, allow_pickle)]
                      for key, item in value.items()]}
    if kind in (bytes, bytearray, memoryview):
        parts.append(bytes(value))
        return {'b': len(parts[-1])}
    numpy, torch = sys.modules.get('numpy'), sys.modules.get('torch')
    if torch is not None and isinstance(value, torch.Tensor) and _torch_name(value) in _TORCH_TYPES:
        contiguous = value.detach().cpu().contiguous()
        parts.append(contiguous.reshape(-1).view(torch.uint8).numpy().tobytes())
        return {'T': [_torch_name(value), list(value.shape)]}
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)) and not isinstance(
            value, numpy.ma.MaskedArray):  # it would lose its mask
        array = numpy.asarray(value)
        if array.dtype.kind in 'biufc':
            parts.append(array.tobytes())
            if isinstance(value, numpy.generic):
                return {'n': array.dtype.str}
            return {'a': [array.dtype.str, list(array.shape)]}
        if array.dtype.type.__module__ == 'ml_dtypes':
            parts.append(array.tobytes())
            return {'m': [array.dtype.name, list(array.shape)]}
    if allow_pickle:
        parts.append(pickle.dumps(value))
        return {'p': len(parts[-1])}
    of = f' of {value.dtype}' if hasattr(value, 'dtype') else ''
    raise TypeError(f'cannot send a {kind.__module__}.{kind.__qualname__}{of}: only plain values, '
                    'bytes, '
                    'arrays of numpy and tensors of PyTorch; allow_pickle sends others')


def _torch_name(tensor: Any) -> str:
    return str(tensor.dtype)[len('torch.'):]


class _Reader:
    """Reads the contents in order."""

    def __init__(self, rest: memoryview, allow_pickle: bool):
        self.rest = rest
        self._allow_pickle = allow_pickle

    def _take(self, size: int) -> memoryview:
        if not 0 <= size <= self.rest.nbytes:
            raise ValueError(f'the value ends after {self.rest.nbytes} of {size} bytes')
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def read(self, header: Any) -> Any:
        """Returns the value of a part of the header."""
        if isinstance(header, list):
            return [self.read(item) for item in header]
        if not isinstance(header, dict):
            return header
        (name, content), = header.items()
        if name == 'd':
            return {self.read(key): self.read(item) for key, item in content}
        if name == 't':
            return tuple(self.read(content))
        if name == 's':
            return set(self.read(content))
        if name == 'z':
            return frozenset(self.read(content))
        if name == 'f':
            return float(content)
        if name == 'b':
            return bytes(self._take(content))
        if name == 'a':
            return self._array(*content)
        if name == 'm':
            return self._array_of_ml_dtypes(*content)
        if name == 'n':
            return self._array(content, [])[()]
        if name == 'T':
            return self._tensor(*content)
        if name == 'p' and self._allow_pickle:
            return pickle.loads(self._take(content))
        if name == 'p':
            raise ValueError('the value is pickled; allow_pickle is off')
        raise ValueError(f'the bytes are no value: unknown kind {name!r}')

    def _array(self, type_name: str, shape: List[int]) -> Any:
        import numpy  # pylint: disable=import-outside-toplevel
        if not _NUMPY_TYPE.fullmatch(type_name):
            raise ValueError(f'the bytes are no value: an array of {type_name!r}')
        dtype = numpy.dtype(type_name)
        size = math.prod(shape) * dtype.itemsize
        return numpy.frombuffer(bytearray(self._take(size)), dtype).reshape(shape)

    def _array_of_ml_dtypes(self, type_name: str, shape: List[int]) -> Any:
        import numpy  # pylint: disable=import-outside-toplevel
        if not _ML_DTYPES.fullmatch(type_name):
            raise ValueError(f'the bytes are no value: an array of {type_name!r}')
        try:
            import ml_dtypes  # pylint: disable=import-outside-toplevel
            dtype = numpy.dtype(getattr(ml_dtypes, type_name))
        except (ImportError, AttributeError):
            raise ValueError(f'an array of {type_name}, which ml_dtypes has, and which is not '
                             'installed here') from None
        size = math.prod(shape) * dtype.itemsize
        return numpy.frombuffer(bytearray(self._take(size)), dtype).reshape(shape)

    def _tensor(self, type_name: str, shape: List[int]) -> Any:
        if type_name not in _TORCH_TYPES:
            raise ValueError(f'the bytes are no value: a tensor of {type_name!r}')
        import torch  # pylint: disable=import-outside-toplevel
        empty = torch.empty(0, dtype=getattr(torch, type_name))
        contents = bytearray(self._take(math.prod(shape) * empty.element_size()))
        if not contents:
            return empty.reshape(shape)
        return torch.frombuffer(contents, dtype=torch.uint8).view(empty.dtype).reshape(shape)
