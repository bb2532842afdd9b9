"""PyTorch's tests of torch.distributed, from the PyTorch that is installed, on a backend.

The environment says which: BACKEND (gloo or cohort), WORLD_SIZE, TEMP_DIR, and IN_PLACE_OF_GLOO=1:
the tests then ask for gloo and get the process group of Cohort, because many of them skip
themselves under any other name. The ranks are forked, which takes less time than
that each imports PyTorch.
Source: test/distributed/test_distributed_spawn.py of PyTorch.

    rank_cases.py list                 prints the names of all tests
    rank_cases.py SECONDS TEST...      runs tests for a while; prints the results as lines of JSON
"""

import json
import os
import sys
import time
import types
import unittest

import torch

import torch.distributed as dist
from torch.testing._internal import common_distributed

import cohort.torch
from cohort.torch.backend import connect

common_distributed.TIMEOUT_DEFAULT = 60  # seconds for one test
common_distributed.TIMEOUT_OVERRIDE.clear()

# Which features the tests assume of a backend.
for _backends in common_distributed.DistTestCases.backend_feature.values():
    if 'gloo' in _backends:
        _backends.add('cohort')

if os.environ.get('IN_PLACE_OF_GLOO') == '1':
    class _InPlaceOfGloo(cohort.torch.ProcessGroup):
        """Has the constructor and the options of ProcessGroupGloo."""

        def __init__(self, store, rank, size, timeout):
            super().__init__(*connect(store, rank, size, timeout, 'gloo', [], None))
            self._of_gloo = types.SimpleNamespace(_timeout=timeout)

        @property
        def options(self):
            return self._of_gloo

    dist.distributed_c10d.ProcessGroupGloo = _InPlaceOfGloo
    dist.ProcessGroupGloo = _InPlaceOfGloo

from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest, TestDistBackend)

if os.environ.get('IN_PLACE_OF_GLOO') == '1':
    # Events of the profiler such as "gloo:all_reduce", with shapes, come from a constructor of Work
    # that Python cannot call. The tests check the results without them, as for other backends.
    for _profiled in (distributed_test.PROFILING_SUPPORTED_BACKENDS,
                      distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        _profiled.remove(dist.Backend.GLOO)


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    """All tests; each starts its ranks by itself."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context('fork').Process)


def run(test):
    """Runs one test. Returns its status, its seconds, and its output."""
    begin = time.monotonic()
    result = unittest.TestResult()
    TestDistBackendWithSpawn(test).run(result)
    texts = [text for _, text in result.failures + result.errors + result.skipped]
    status = 'skipped' if result.skipped else 'passed' if result.wasSuccessful() else 'failed'
    return {'test': test, 'status': status, 'seconds': round(time.monotonic() - begin, 1),
            'output': '\n'.join(texts)[-6000:]}


if __name__ == '__main__':
    if sys.argv[1] == 'list':
        print('\n'.join(unittest.TestLoader().getTestCaseNames(TestDistBackendWithSpawn)))
    else:
        end = time.monotonic() + float(sys.argv[1])
        for name in sys.argv[2:]:
            if time.monotonic() < end:
                print('RESULT ' + json.dumps(run(name)), flush=True)
