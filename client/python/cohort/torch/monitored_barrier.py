"""A barrier that names the ranks that do not come."""

import datetime
from typing import Any, Optional

import torch.distributed as dist

import cohort


# The objects of a rank that leaves and of one in a monitored barrier: all_gather_objects of the
# group takes both in the same round.
FAREWELL, _ARRIVAL = b'farewell', b''


def monitored_barrier(group: cohort.Group, name: str, seconds: float, wait_all_ranks: bool) -> None:
    """Blocks until all ranks have called it. It goes through the coordinator and needs no other
    call to be over.

    Args:
      name: the process group's name.
      wait_all_ranks: the error names all ranks that did not come, and not only the first.

    Raises:
      RuntimeError: on all ranks that called it. The texts are those of PyTorch's.
    """
    try:
        objects = group.all_gather_objects(_ARRIVAL, timeout=seconds)
        left = tuple(rank for rank, each in enumerate(objects) if each == FAREWELL)
        if left:
            raise cohort.Aborted(
                f'rank {", ".join(map(str, left))} left the process group and does not call it',
                missing=left, culprit=left[0])
    except cohort.Error as error:
        missing = error.missing or (() if error.culprit is None else (error.culprit,))
        if group.rank == 0 and seconds <= 0:
            text = f'Rank 0 timed out in monitoredBarrier after {seconds * 1000:g} ms'
        elif group.rank == 0:
            which = missing if wait_all_ranks else missing[:1]
            text = f'{"Ranks" if wait_all_ranks else "Rank"} {", ".join(map(str, which))} failed ' \
                   f'to pass monitoredBarrier in {seconds * 1000:g} ms'
        else:
            text = f'Rank {group.rank} successfully reached monitoredBarrier, but received ' \
                   'errors while waiting for send/recv from rank 0'
        raise RuntimeError(f'monitored_barrier of process group {name}: {text}: {error}') from error


def offer_monitored_barrier() -> None:
    """Makes torch.distributed.monitored_barrier take process groups of Cohort. PyTorch's function
    refuses all backends but gloo; it still serves those."""
    from cohort.torch.process_group import ProcessGroup  # pylint: disable=import-outside-toplevel
    of_pytorch = dist.monitored_barrier
    if getattr(of_pytorch, 'takes_cohort', False):
        return

    def function(group: Optional[Any] = dist.GroupMember.WORLD, timeout: Any = None,
                 wait_all_ranks: bool = False) -> None:
        chosen = dist.group.WORLD if group is None else group
        if not isinstance(chosen, ProcessGroup):
            of_pytorch(group, timeout, wait_all_ranks)
            return
        if isinstance(timeout, (int, float)):
            timeout = datetime.timedelta(seconds=timeout)
        chosen.monitored_barrier(timeout, wait_all_ranks)

    function.__doc__ = of_pytorch.__doc__
    function.takes_cohort = True
    dist.monitored_barrier = function
    dist.distributed_c10d.monitored_barrier = function


def offer_batches() -> None:
    """Makes torch.distributed.batch_isend_irecv issue messages on the GPU as one call. PyTorch's
    function does so for its own class alone; it still serves other groups."""
    from cohort.torch.process_group import ProcessGroup  # pylint: disable=import-outside-toplevel
    of_pytorch = dist.batch_isend_irecv
    if getattr(of_pytorch, 'takes_cohort', False):
        return

    def function(p2p_op_list: Any) -> Any:
        if p2p_op_list and isinstance(p2p_op_list[0], dist.P2POp) and any(
                each.tensor.is_cuda for each in p2p_op_list):
            # pylint: disable-next=protected-access
            dist.distributed_c10d._check_p2p_op_list(p2p_op_list)
            group = p2p_op_list[0].group or dist.group.WORLD
            if isinstance(group, ProcessGroup):
                return group.batch_isend_irecv(p2p_op_list)
        return of_pytorch(p2p_op_list)

    function.__doc__ = of_pytorch.__doc__
    function.takes_cohort = True
    dist.batch_isend_irecv = function
    dist.distributed_c10d.batch_isend_irecv = function
