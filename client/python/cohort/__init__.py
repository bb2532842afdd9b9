"""Groups of processes: objects, barriers and membership through a coordinator, and collectives on
tensors between the processes.

    import cohort
    import numpy as np

    with cohort.Group("trainer", rank=0, world_size=2, address="coordinator:7700") as group:
        gradients = group.empty((1024,), np.float32)
        gradients[:] = ...
        group.all_reduce(gradients, out=gradients)

`Group` moves tensors; `ProcessGroup` moves bytes and needs no worker; `Store` has keys, counters
and queues; `watch_group` has the events of a group; `MessageQueue` sends values of one process to
many. `create_layout` and `create_groups` create groups of some ranks of a group, `moe` dispatches
tokens to experts, and `Pipeline` joins the stages of a pipeline. `cohort.aio` has the classes for
asyncio, and `cohort.values` the codec of objects. All errors are subclasses of `Error`. Errors that
a thread of the library meets go to logging.getLogger("cohort").
"""

from typing import Any

from cohort import _core, moe
from cohort.errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, Error,
                           FailedPrecondition, Internal, InvalidArgument, NotFound, OutOfRange,
                           PermissionDenied, ResourceExhausted, StatusCode, Unauthenticated,
                           Unavailable, Unimplemented, Unknown)
from cohort.group import Group, PeerStats
from cohort.group_info import GroupInfo, Member, OpenWait, View, ViewProposal
from cohort.layout import (Layout, ParallelGroups, colossalai_layout, create_groups, create_layout,
                           make_layout, megatron_layout, split_layers, vllm_layout)
from cohort.message_queue import MessageQueue, QueueDeparture, QueueReader
from cohort.pending_call import PendingCall, wait_all, wait_any
from cohort.pipeline import Pipeline, ring_shift
from cohort.process_group import ProcessGroup, VoteOp, VoteResult
from cohort.reduce_op import ReduceOp
from cohort.store import KeyValue, PutResult, RangePage, Store
from cohort.watch import GroupEvent, GroupWatch, KeyEvent, Watch, watch_group

__version__ = _core.version

__all__ = [
    'Aborted', 'AlreadyExists', 'Cancelled', 'DataLoss', 'DeadlineExceeded', 'Error',
    'FailedPrecondition', 'Group', 'GroupEvent', 'GroupInfo', 'GroupWatch', 'Internal',
    'InvalidArgument', 'KeyEvent', 'KeyValue', 'Layout', 'Member', 'MessageQueue', 'NotFound',
    'OpenWait', 'OutOfRange', 'ParallelGroups', 'PeerStats', 'PendingCall', 'PermissionDenied',
    'Pipeline', 'ProcessGroup', 'PutResult', 'QueueDeparture', 'QueueReader', 'RangePage',
    'ReduceOp', 'ResourceExhausted', 'StatusCode', 'Store', 'Unauthenticated', 'Unavailable',
    'Unimplemented', 'Unknown', 'View', 'ViewProposal', 'VoteOp', 'VoteResult', 'Watch',
    'colossalai_layout', 'create_groups', 'create_layout', 'make_layout', 'megatron_layout', 'moe',
    'ring_shift', 'split_layers', 'vllm_layout', 'wait_all', 'wait_any', 'watch_group',
]

# Submodules that are imported when they are first used, and the modules that they load.
_LAZY = {'aio': 'asyncio', 'values': 'json', 'regions': 'PyTorch', 'torch': 'PyTorch',
         'vllm': 'the parts of it that are in use'}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import importlib  # pylint: disable=import-outside-toplevel
    try:
        return importlib.import_module(f'{__name__}.{name}')
    except ImportError as error:
        # hasattr() catches nothing else.
        raise AttributeError(f'cohort.{name} cannot be imported: it needs {_LAZY[name]} ({error})'
                             ) from error
