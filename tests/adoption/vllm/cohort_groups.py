"""A plugin of pytest that puts groups of Cohort in the place of gloo's and of TCPStore's.

    pytest -p cohort_groups test_shm_broadcast.py      # a file of vLLM's source, unchanged

init_process_group("gloo") then makes a group of the backend "cohort", and
vllm.distributed.utils.StatelessProcessGroup is that of Cohort. COHORT_ADDRESS is the coordinator.
"""

import functools
import logging

import pytest
import torch.distributed as dist
import vllm.distributed.utils

import cohort.torch  # noqa: F401
from cohort.vllm import StatelessProcessGroup

_init = dist.init_process_group


def _init_process_group(backend=None, **options):
    return _init('cohort' if backend == 'gloo' else backend, **options)


class PicklingGroup(StatelessProcessGroup):
    """vLLM's queue hands its readers an object of a class, which has to be pickled."""
    create = staticmethod(functools.partial(StatelessProcessGroup.create, allow_pickle=True))


dist.init_process_group = _init_process_group
vllm.distributed.utils.StatelessProcessGroup = PicklingGroup


@pytest.fixture
def caplog_vllm(caplog):
    """The records of vLLM's loggers, as in vLLM's own conftest.py."""
    logger = logging.getLogger('vllm')
    propagates, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.INFO):
        yield caplog
    logger.propagate = propagates
