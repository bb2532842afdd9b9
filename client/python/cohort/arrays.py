"""Arrays of numpy and tensors of PyTorch, as collectives take and return them."""

import sys
from typing import Any, Callable, Optional

# numpy.ndarray, torch.Tensor, or anything with the buffer protocol or __dlpack__.
Array = Any

# The numbers of the C++ library.
_DTYPES = {
    'bool': 1, 'int8': 2, 'uint8': 3, 'int16': 4, 'uint16': 5, 'int32': 6, 'uint32': 7, 'int64': 8,
    'uint64': 9, 'float16': 10, 'bfloat16': 11, 'float32': 12, 'float64': 13, 'float8_e4m3fn': 14,
    'float8_e5m2': 15, 'complex64': 16, 'complex128': 17,
}
_TORCH_ALONE = frozenset(_DTYPES[name] for name in ('bfloat16', 'float8_e4m3fn', 'float8_e5m2'))


def empty(allocate: Callable, shape: Any, dtype: Any) -> Array:
    """Returns memory of allocate(number of the type, shape) as a tensor, if `dtype` is one of
    PyTorch's, or else as a numpy array. Raises ValueError for a type that tensors do not have."""
    name = str(dtype)
    if name.startswith('torch.'):
        import torch  # pylint: disable=import-outside-toplevel
        return torch.from_dlpack(allocate(_number(name[len('torch.'):]), shape))
    import numpy  # pylint: disable=import-outside-toplevel
    return numpy.asarray(allocate(_number(numpy.dtype(dtype).name), shape))


def of_library(like: Array, memory: Any) -> Array:
    """Returns memory of the extension module as an array of the library of `like`, without a copy:
    as a tensor if `like` is one, or else as a numpy array."""
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.from_dlpack(memory)
    import numpy  # pylint: disable=import-outside-toplevel
    return numpy.asarray(memory)


def _number(name: str) -> int:
    if name not in _DTYPES:
        raise ValueError(f'dtype: {name} is not supported; expected one of {", ".join(_DTYPES)}')
    return _DTYPES[name]


def new_like(array: Array, dim: Optional[int] = None,
             extent: Optional[Callable[[int], int]] = None) -> Optional[Array]:
    """Returns a new array of the same library and type, for a result: with the same shape, or with
    extent(n) in place of the extent n along `dim`.

    Returns None if that is not possible. The collective then fails on all ranks, with the name of the
    wrong argument. An exception here would leave the other ranks waiting for this one.
    """
    try:
        torch = sys.modules.get('torch')
        is_tensor = torch is not None and isinstance(array, torch.Tensor)
        if not is_tensor:
            import numpy  # pylint: disable=import-outside-toplevel
            array = numpy.asarray(array)
        shape = list(array.shape)
        if dim is not None:
            shape[dim] = extent(shape[dim])
        return array.new_empty(shape) if is_tensor else numpy.empty(shape, array.dtype)
    except Exception:  # pylint: disable=broad-exception-caught
        return None


def as_numpy(memory: Any, number: int) -> Array:
    """Returns memory of the library with elements of the type `number` as a numpy array, or as a
    tensor of PyTorch if numpy has no such type."""
    if number in _TORCH_ALONE:
        return as_torch(memory, number)
    import numpy  # pylint: disable=import-outside-toplevel
    return numpy.asarray(memory)


def as_torch(memory: Any, _: int) -> Array:
    """Returns memory of the library as a tensor of PyTorch."""
    import torch  # pylint: disable=import-outside-toplevel
    return torch.from_dlpack(memory)
