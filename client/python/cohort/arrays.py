"""Arrays of numpy and tensors of PyTorch, as collectives take and return them."""

import importlib.util
import os
import sys
from typing import Any, Callable, Optional

# numpy.ndarray, torch.Tensor, or anything with the buffer protocol or __dlpack__.
Array = Any

# The numbers of the C++ library.
_DTYPES = {
    'bool': 1, 'int8': 2, 'uint8': 3, 'int16': 4, 'uint16': 5, 'int32': 6, 'uint32': 7, 'int64': 8,
    'uint64': 9, 'float16': 10, 'bfloat16': 11, 'float32': 12, 'float64': 13, 'float8_e4m3fn': 14,
    'float8_e5m2': 15, 'complex64': 16, 'complex128': 17, 'float8_e8m0fnu': 18,
    'float8_e4m3fnuz': 19, 'float8_e5m2fnuz': 20, 'float4_e2m1fn_x2': 21, 'float4_e2m1fn': 22,
    'float6_e2m3fn': 23, 'float6_e3m2fn': 24,
}
# Collectives move their elements, and do not reduce them.
MOVED_ONLY = frozenset(name for name, number in _DTYPES.items() if number >= 16)
# As __dlpack_device__ says it.
_CPU = (1, 0)
# Buffers cannot describe them. PyTorch has them, and arrays of numpy have those of ml_dtypes.
_WITHOUT_BUFFER = frozenset(number for name, number in _DTYPES.items()
                            if name.startswith(('bfloat', 'float8_', 'float6_', 'float4_')))
# PyTorch has none of them.
_ML_DTYPES_ALONE = {_DTYPES[name]: name
                    for name in ('float4_e2m1fn', 'float6_e2m3fn', 'float6_e3m2fn')}


def device_number(device: Any) -> Optional[int]:
    """Returns the number of a GPU in CUDA, or None for the host. `device` is such a number, None,
    "cpu", "cuda:1" or a torch.device. Raises ValueError for others."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool) and device >= 0):
        return device
    name, _, number = str(device).partition(':')
    if name == 'cpu':
        return None
    if name == 'cuda' and number.isdigit():
        return int(number)
    if name == 'cuda' and not number:
        torch = sys.modules.get('torch')
        return torch.cuda.current_device() if torch and torch.cuda.is_available() else 0
    raise ValueError(f'device: expected a number from 0, "cpu" or "cuda:N", got {device!r}')


def nccl_library() -> str:
    """Returns the path of NCCL in the wheel nvidia-nccl, if it is installed. Empty: the loader finds
    it, or PyTorch has loaded it, or $COHORT_NCCL_LIBRARY is its path."""
    if 'torch' in sys.modules or 'COHORT_NCCL_LIBRARY' in os.environ:
        return ''
    nvidia = importlib.util.find_spec('nvidia')
    for folder in (nvidia.submodule_search_locations or []) if nvidia is not None else []:
        path = os.path.join(folder, 'nccl', 'lib', 'libnccl.so.2')
        if os.path.exists(path):
            return path
    return ''


def empty(allocate: Callable, shape: Any, dtype: Any, device: Optional[int] = None) -> Array:
    """Returns memory of allocate(number of the type, shape, device) as a tensor, if `dtype` is one of
    PyTorch's, or else as a numpy array; on a GPU, as an object with __dlpack__. Raises ValueError for
    a type that tensors do not have."""
    name = str(dtype)
    if name.startswith('torch.'):
        import torch  # pylint: disable=import-outside-toplevel
        return torch.from_dlpack(allocate(_number(name[len('torch.'):]), shape, device))
    import numpy  # pylint: disable=import-outside-toplevel
    dtype = numpy.dtype(dtype)
    number = _number(dtype.name)
    if number in _WITHOUT_BUFFER and device is None:  # of ml_dtypes, which buffers cannot describe
        plain = _DTYPES[f'uint{8 * dtype.itemsize}']
        return _in_numpy(allocate(plain, shape, device)).view(dtype)
    return _in_numpy(allocate(number, shape, device))


def _in_numpy(memory: Any) -> Array:
    """On a GPU, the memory itself."""
    if memory.__dlpack_device__() != _CPU:
        return memory
    import numpy  # pylint: disable=import-outside-toplevel
    array = numpy.asarray(memory)
    if array.dtype == object:  # numpy makes an array of one object
        raise ValueError('shape: numpy has no arrays of so many dimensions')
    return array


def of_library(like: Array, memory: Any) -> Array:
    """Returns memory of the extension module as an array of the library of `like`, without a copy:
    as a tensor if `like` is one, or else as a numpy array; on a GPU as an object with __dlpack__."""
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.from_dlpack(memory)
    return _in_numpy(memory)


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
    tensor of PyTorch if numpy has no such type; on a GPU as an object with __dlpack__."""
    if number not in _WITHOUT_BUFFER:
        return _in_numpy(memory)
    return _of_ml_dtypes(memory, number) if number in _ML_DTYPES_ALONE else as_torch(memory, number)


def _of_ml_dtypes(memory: Any, number: int) -> Array:
    """Without ml_dtypes, an array of bytes."""
    array = _in_numpy(memory)
    try:
        import ml_dtypes  # pylint: disable=import-outside-toplevel
    except ImportError:
        return array
    return array.view(getattr(ml_dtypes, _ML_DTYPES_ALONE[number]))


def as_torch(memory: Any, number: int) -> Array:
    """Returns memory of the library as a tensor of PyTorch, or as a numpy array if PyTorch has no
    such type."""
    if number in _ML_DTYPES_ALONE:
        return _of_ml_dtypes(memory, number)
    import torch  # pylint: disable=import-outside-toplevel
    return torch.from_dlpack(memory)
