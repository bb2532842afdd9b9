"""The extension module on a machine with four fake GPUs, for the ranks of one process."""

import ctypes
import importlib.machinery
import importlib.util
import os
import sys

_PATH = os.path.join(os.path.dirname(__file__), 'fake_gpu', '_core.so')
_NAME = 'cohort._core'


def use_fake_gpus():
    """Loads that module in place of the real one. Call it before the first import of cohort."""
    assert 'cohort' not in sys.modules
    loader = importlib.machinery.ExtensionFileLoader(_NAME, _PATH)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(_NAME, loader))
    sys.modules[_NAME] = module
    loader.exec_module(module)


def elements(memory, ctype, count):
    """The elements of memory on a fake GPU, which this process can read and write."""
    capsule = memory.__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    # A DLManagedTensor begins with the address of the elements.
    data = ctypes.cast(pointer_of(capsule, b'dltensor'), ctypes.POINTER(ctypes.c_void_p))[0]
    array = (ctype * count).from_address(data)
    array.memory = memory  # lives as long as the array
    return array
