"""Wrong arguments that torch.distributed finds itself, before it calls the process group.

The other ranks wait for this one in the collective. So it takes its turn there as a call that fails
on all ranks. A send or a recv fails on its two ranks. This rank raises PyTorch's own exception.

Functions for objects take several turns. A rank that leaves one early takes those that are left, also
as calls that fail: so each rank takes as many, wherever it leaves.
"""

import dis
import inspect
import os
import sys
from typing import Any, Optional, Tuple

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import c10d_logger

import cohort
from cohort.torch.call_arguments import on_gpu, refusal_text

# The functions of one turn, which check all arguments before it.
_COLLECTIVES = frozenset((
    'all_gather', 'all_gather_coalesced', 'all_gather_into_tensor', 'all_gather_single',
    'all_reduce', 'all_reduce_coalesced', 'all_to_all', 'all_to_all_single', 'barrier', 'broadcast',
    'gather', 'reduce', 'reduce_scatter', 'reduce_scatter_single', 'reduce_scatter_tensor',
    'scatter'))
# Those that call others.
_OF_OBJECTS = frozenset(('all_gather_object', 'broadcast_object_list', 'gather_object',
                         'scatter_object_list'))
# PyTorch reports no exception of isend and irecv.
_MESSAGES = {'send': 'dst', 'recv': 'src'}
_MESSAGES_OF_OBJECTS = {'send_object_list': 'dst', 'recv_object_list': 'src'}
_FOLDER = os.path.dirname(__file__)


def tell_refusals() -> None:
    """Makes the refusals of torch.distributed known to the other ranks of process groups of Cohort.
    PyTorch asks _get_msg_dict for the facts of each exception that leaves a collective."""
    of_pytorch = c10d_logger._get_msg_dict  # pylint: disable=protected-access
    if getattr(of_pytorch, 'tells_cohort', False):
        return

    def function(func_name: str, *args: Any, **kwargs: Any) -> Any:
        error = sys.exc_info()[1]
        if isinstance(error, Exception):
            for _ in range(_turns_left(func_name, error)):
                if func_name in _COLLECTIVES or func_name in _OF_OBJECTS:
                    _tell(func_name, error, args, kwargs)
                else:
                    _tell_peer(func_name, error, args, kwargs)
        return of_pytorch(func_name, *args, **kwargs)

    function.tells_cohort = True  # type: ignore[attr-defined]
    c10d_logger._get_msg_dict = function  # pylint: disable=protected-access


def _turns_left(name: str, error: Exception) -> int:
    """The turns that a function has not taken when it failed; 0 for functions that take none, and
    if no call can follow in the group."""
    if name in _COLLECTIVES or name in _MESSAGES:
        return 0 if _is_told(error) else 1
    if name not in _OF_OBJECTS and name not in _MESSAGES_OF_OBJECTS:
        return 0
    if isinstance(error, cohort.Error) and not isinstance(error, cohort.InvalidArgument):
        return 0
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name != name:
        trace = trace.tb_next
    return 0 if trace is None else sum(
        instruction.offset > trace.tb_lasti
        for instruction in dis.get_instructions(trace.tb_frame.f_code)
        if instruction.opname == 'LOAD_GLOBAL'
        and (instruction.argval in _COLLECTIVES or instruction.argval in _MESSAGES))


def _is_told(error: Exception) -> bool:
    """Whether the exception comes from a process group of Cohort, which the call has reached."""
    trace = error.__traceback__
    while trace is not None:
        if os.path.dirname(trace.tb_frame.f_code.co_filename) == _FOLDER:
            return True
        trace = trace.tb_next
    return isinstance(error, cohort.Error)


def _tell(name: str, error: Exception, args: Tuple[Any, ...], kwargs: dict) -> None:
    group, given = _call_of(name, args, kwargs)
    if group is None:
        return
    opts = c10d.AllreduceOptions()
    opts.asyncOp = given.get('async_op') is True
    tensors: tuple = (*args, *kwargs.values())
    if name in _OF_OBJECTS or not on_gpu(tensors):
        tensors = ()
    try:
        group._refuse(name, error, (opts, *tensors), {})  # pylint: disable=protected-access
    except (cohort.Error, type(error)):
        pass  # the other ranks have it


def _tell_peer(name: str, error: Exception, args: Tuple[Any, ...], kwargs: dict) -> None:
    """Tells the other rank of a message, if the arguments name one."""
    group, given = _call_of(name, args, kwargs)
    if group is None or (name in _MESSAGES and on_gpu((*args, *kwargs.values()))):
        return
    end = _MESSAGES.get(name) or _MESSAGES_OF_OBJECTS[name]
    peer, in_group = given.get(end), given.get(f'group_{end}')
    tag = given.get('tag', 0)
    if (peer is not None and in_group is not None) or not isinstance(tag, int):
        return
    if peer is not None:
        in_group = {rank: index for index, rank in enumerate(group.global_ranks_in_group)}.get(peer)
    if in_group is None and (peer is not None or end == 'dst'):
        return
    if in_group is not None and (in_group == group.rank() or in_group not in range(group.size())):
        return
    try:
        group._refuse_message(  # pylint: disable=protected-access
            end == 'dst', in_group, tag, refusal_text(name, error))
    except cohort.Error:
        pass  # the group is closed, or broken


def _call_of(name: str, args: Tuple[Any, ...], kwargs: dict) -> Tuple[Optional[Any], dict]:
    """Returns the process group of Cohort that the call uses in host memory, or None, and the
    arguments by name."""
    # pylint: disable-next=import-outside-toplevel,cyclic-import
    from cohort.torch.process_group import ProcessGroup
    try:
        given = inspect.signature(getattr(dist, name)).bind_partial(*args, **kwargs).arguments
    except TypeError:
        given = kwargs
    group = given.get('group')
    if group is None and dist.is_initialized():
        group = dist.group.WORLD
    if not str(given.get('device', 'cpu')).startswith(('cpu', 'None')):
        return None, given
    return (group if isinstance(group, ProcessGroup) else None), given
