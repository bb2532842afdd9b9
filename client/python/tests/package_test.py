"""What `import cohort` gives: submodules, names, codes of errors, and the logger."""

import logging
import pickle
import subprocess
import sys

import pytest

import cohort
from testing.coordinator import LONG


def run_program(program):
    return subprocess.run([sys.executable, '-c', program], check=True, timeout=LONG, text=True,
                          stdout=subprocess.PIPE).stdout.split()


def test_import_is_light():
    loaded = run_program('import sys, cohort; print(*sys.modules)')
    assert 'cohort.store' in loaded
    for name in ('asyncio', 'torch', 'numpy', 'cohort.aio', 'cohort.torch', 'logging', 'threading'):
        assert name not in loaded, name


def test_submodules_without_an_import():
    assert run_program('''
import cohort
print(cohort.values.decode(cohort.values.encode("text")), cohort.aio.Store.__name__,
      cohort.aio.Group.__name__, cohort.moe.__name__)
''') == ['text', 'Store', 'Group', 'cohort.moe']


def test_submodules_of_torch():
    pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
    assert run_program('''
import cohort
print(cohort.regions.__name__, cohort.torch.ProcessGroup.__name__, cohort.vllm.__name__)
''') == ['cohort.regions', 'ProcessGroup', 'cohort.vllm']


def test_a_submodule_that_cannot_be_imported_says_why():
    assert ' '.join(run_program('''
import sys
sys.modules['torch'] = None   # as if it were not installed
import cohort
assert not hasattr(cohort, 'regions')
try:
    cohort.regions
except AttributeError as error:
    print(error)
''')).startswith('cohort.regions cannot be imported: it needs PyTorch (')
    with pytest.raises(AttributeError, match="module 'cohort' has no attribute 'nonsense'"):
        cohort.nonsense  # pylint: disable=no-member,pointless-statement


def test_all_names():
    for name in cohort.__all__:
        assert getattr(cohort, name) is not None
    assert sorted(cohort.__all__, key=str.lower) == sorted(set(cohort.__all__), key=str.lower)


# The codes of gRPC, https://grpc.io/docs/guides/status-codes.
CODES = {
    1: ('CANCELLED', cohort.Cancelled), 2: ('UNKNOWN', cohort.Unknown),
    3: ('INVALID_ARGUMENT', cohort.InvalidArgument),
    4: ('DEADLINE_EXCEEDED', cohort.DeadlineExceeded), 5: ('NOT_FOUND', cohort.NotFound),
    6: ('ALREADY_EXISTS', cohort.AlreadyExists), 7: ('PERMISSION_DENIED', cohort.PermissionDenied),
    8: ('RESOURCE_EXHAUSTED', cohort.ResourceExhausted),
    9: ('FAILED_PRECONDITION', cohort.FailedPrecondition), 10: ('ABORTED', cohort.Aborted),
    11: ('OUT_OF_RANGE', cohort.OutOfRange), 12: ('UNIMPLEMENTED', cohort.Unimplemented),
    13: ('INTERNAL', cohort.Internal), 14: ('UNAVAILABLE', cohort.Unavailable),
    15: ('DATA_LOSS', cohort.DataLoss), 16: ('UNAUTHENTICATED', cohort.Unauthenticated),
}


def test_codes_of_errors():
    assert len(CODES) == len(cohort.StatusCode) == len(cohort.Error.__subclasses__())
    for number, (name, kind) in CODES.items():
        error = kind('text', missing=(1,))
        assert (error.code.name, error.code.value) == (name, number) == (kind.code.name, kind.code)
        copy = pickle.loads(pickle.dumps(error))
        assert copy.code is error.code is cohort.StatusCode[name]
    with pytest.raises(cohort.InvalidArgument) as caught:
        cohort.Store(address='')
    assert caught.value.code == cohort.StatusCode.INVALID_ARGUMENT == 3


def test_errors_are_printed_unless_the_program_says_otherwise():
    from cohort._callbacks import logger  # pylint: disable=import-outside-toplevel
    assert logger is logging.getLogger('cohort')
    assert not logger.handlers and logger.propagate
