"""Registers the backend "cohort" with torch.distributed."""

import datetime
import sys
from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist

import cohort
from cohort.torch.agreement import agree
from cohort.torch.options import Options
from cohort.torch.process_group import ProcessGroup

NAME = 'cohort'


def register_backend() -> None:
    """Makes init_process_group("cohort") and new_group(backend="cohort") work."""
    if NAME.upper() not in dist.Backend._plugins:  # pylint: disable=protected-access
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=['cpu', 'cuda'])


def create(given: Any, options: Optional[Options]) -> ProcessGroup:
    """Joins the group of Cohort for a process group of PyTorch. All its ranks call it.

    Args:
      given: the _DistributedBackendOptions of PyTorch.
      options: `pg_options`, or None.
    """
    # PyTorch has the device_id of init_process_group, but does not pass it to a backend.
    bound = sys._getframe(1).f_locals.get('device_id')  # pylint: disable=protected-access
    return connected(
        given.store, given.group_rank, given.group_size, given.timeout, given.group_id,
        list(given.global_ranks_in_group), options, bound)


def connected(store: Any, rank: int, size: int, timeout: datetime.timedelta, group: str,
              global_ranks: Sequence[int], options: Optional[Options],
              bound: Optional[torch.device] = None) -> ProcessGroup:
    """A process group that has joined; the arguments are those of `connect`."""
    if bound is None:
        bound = _bound_device_of_default_group()
    made = ProcessGroup(*connect(store, rank, size, timeout, group, global_ranks, options, bound))
    if bound is not None and made.cohort_group.device != 'cpu':
        made.bound_device_id = bound
    return made


def connect(store: Any, rank: int, size: int, timeout: datetime.timedelta, group: str,
            global_ranks: Sequence[int], options: Optional[Options],
            bound: Optional[torch.device] = None) -> tuple:
    """Joins the group of Cohort for the process group `group`, and blocks until all ranks have
    come. Returns the arguments of ProcessGroup.

    Args:
      store: a store of PyTorch, for this group alone.
      global_ranks: the global ranks of the group's ranks; empty for the default group.
      bound: the device_id of init_process_group.

    Raises:
      TypeError: `options` is of another backend.
      The errors of cohort.Group.
    """
    if options is None:
        options = _options_of_default_group()
    if not isinstance(options, Options):
        raise TypeError(f'process group {group}: expected cohort.torch.Options as pg_options, got '
                        f'{type(options).__name__}')
    common = agree(store, rank, group, options, timeout)
    seconds = timeout.total_seconds()
    member = f'rank-{global_ranks[rank] if global_ranks else rank}'
    joined = cohort.Group(
        common.name, rank=rank, world_size=size, address=common.address, tenant=common.tenant,
        member=member, timeout=seconds, join_timeout=seconds, lease=options.lease,
        device=device_of(options, bound), advertised_host=options.advertised_host,
        host_folder=options.host_folder)
    return joined, store, common, options, timeout, global_ranks


def device_of(options: Options, bound: Optional[torch.device]) -> Any:
    """The GPU of a group, or None. It is the first of these: `device` of the options, the bound
    device, the current device of a program that has used its GPU. A program that has not touched
    its GPU does not get it touched."""
    if options.device is not None:
        return options.device
    if bound is not None:
        return bound.index
    if torch.cuda.is_initialized():  # is_available opens the GPU
        return torch.cuda.current_device()
    return None


def _bound_device_of_default_group() -> Optional[torch.device]:
    if not dist.is_initialized():
        return None
    return getattr(dist.group.WORLD, 'bound_device_id', None)


def _options_of_default_group() -> Options:
    if dist.is_initialized():
        options = getattr(dist.group.WORLD, 'cohort_options', None)
        if options is not None:
            return options
    return Options()
