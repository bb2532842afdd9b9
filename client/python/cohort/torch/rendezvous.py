"""The URL scheme cohort:// of torch.distributed.init_process_group.

    dist.init_process_group("gloo", init_method="cohort://coordinator:7700/job-17", rank=rank,
                            world_size=world_size)
    dist.init_process_group("gloo", init_method="cohort://")          # under torchrun

    cohort://HOST:PORT/NAME[?rank=R][&world_size=N][&tenant=T]
    cohort:///run/cohort/socket:NAME         the coordinator listens on a Unix socket

The processes join the group torch-init/NAME of the coordinator, so all of them have started when it
returns, and each rank is one process. Without a rank, the coordinator assigns one. The group's
generation names the keys of the store, so a job that is started again under its name sees no key of
the run before.
"""

import contextlib
import datetime
import os
import re
import time
import urllib.parse
import uuid
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch.distributed as dist
from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

import cohort
from cohort.torch.job_keys import escape
from cohort.torch.store import Store

SCHEME = 'cohort'
# The URL for the workers of a torchrun agent: see elastic.py.
WORKERS_URL = 'COHORT_TORCH_WORKERS'

_DEFAULT_TIMEOUT = datetime.timedelta(minutes=30)
# The ranks of a job that was just killed are free when the coordinator has seen it: half a second
# later, or a lease later if the hosts are gone.
_LEASE_SECONDS = 5
_SECONDS_TO_FREE_A_RANK = 15
_SECONDS_TO_NOTICE_A_LOSS = 2


class Target(NamedTuple):
    """The parts of a URL."""
    address: str
    name: str
    rank: Optional[int]  # None: the coordinator assigns it
    world_size: int
    tenant: str


# The jobs that this process has joined.
_joined: List[Tuple[Target, Store, cohort.ProcessGroup]] = []


def parse_url(url: str, rank: int = -1, world_size: int = -1) -> Target:
    """Returns the parts of a URL. Raises ValueError, which names the wrong part."""
    parts = urllib.parse.urlsplit(url)
    options = _read_options(url, parts.query)
    if not parts.netloc and not parts.path:
        workers = os.environ.get(WORKERS_URL)
        if not workers:
            raise _wrong(url, 'it names no coordinator, and this process is no worker of '
                              '"torchrun --rdzv-backend=cohort"; expected cohort://HOST:PORT/NAME')
        of_agent = parse_url(workers, int(os.environ['RANK']), int(os.environ['WORLD_SIZE']))
        return of_agent._replace(rank=options.get('rank', of_agent.rank),
                                 world_size=options.get('world_size', of_agent.world_size))
    if parts.netloc:
        address, name = parts.netloc, parts.path[1:]
        try:
            if parts.port is None:
                raise _wrong(url, 'the port of the coordinator is missing')
        except ValueError as error:
            raise _wrong(url, f'the port of the coordinator: {error}') from None
    else:
        path, _, name = parts.path.rpartition(':')
        address = f'unix:{path}'
        if not path:
            raise _wrong(url, 'expected cohort://HOST:PORT/NAME or cohort:///SOCKET:NAME')
    name = urllib.parse.unquote(name)
    if not name:
        raise _wrong(url, 'the name of the job is missing; expected cohort://HOST:PORT/NAME')
    rank = options.get('rank', rank)
    world_size = options.get('world_size', world_size)
    if world_size < 1:
        raise _wrong(url, f'world_size is {world_size if world_size >= 0 else "missing"}; pass '
                          'world_size= or ?world_size=, at least 1')
    if rank >= world_size or rank < -1:
        raise _wrong(url, f'the rank is {rank}, expected 0 to {world_size - 1}')
    return Target(address, name, None if rank < 0 else rank, world_size, options.get('tenant', ''))


def _read_options(url: str, query: str) -> Dict:
    options: Dict = {}
    try:
        pairs = urllib.parse.parse_qsl(query, strict_parsing=True) if query else []
    except ValueError as error:
        raise _wrong(url, str(error)) from None
    for key, value in pairs:
        if key == 'tenant':
            options[key] = value
        elif key in ('rank', 'world_size'):
            try:
                options[key] = int(value)
            except ValueError:
                raise _wrong(url, f'{key} is {value!r}, expected a number') from None
        else:
            raise _wrong(url, f'there is no option {key!r}; expected rank, world_size, tenant')
    # init_process_group passes -1 for an argument that it was not given.
    return {key: value for key, value in options.items() if value != -1}


def _wrong(url: str, reason: str) -> ValueError:
    # As the user wrote it: PyTorch drops an empty host, and adds options.
    url = re.sub('^cohort:/(?!/)', 'cohort:///', url.partition('?')[0])
    return ValueError(f'init_method {url!r}: {reason}')


def join(target: Target, timeout: datetime.timedelta) -> cohort.ProcessGroup:
    """Joins the group of the job. Blocks until all ranks have joined.

    Errors: DistStoreError (ranks are missing after `timeout`, which it names; a live process has
    the rank; another world size), DistNetworkError (the coordinator is away).
    """
    describe = f'init_method: job "{target.name}" at {target.address}'
    end = time.monotonic() + timeout.total_seconds()
    # A new name never takes the place of a live process. A second attempt takes the place of the
    # first one, which the coordinator keeps for half a second.
    member = uuid.uuid4().hex
    free_by = min(end, time.monotonic() + _SECONDS_TO_FREE_A_RANK)
    while True:
        # The coordinator lets a process without a rank wait while all ranks are taken.
        until = free_by if target.rank is None and time.monotonic() < free_by else end
        left = max(0.1, until - time.monotonic())
        try:
            return cohort.ProcessGroup(
                f'torch-init/{escape(target.name)}', rank=target.rank,
                world_size=target.world_size, address=target.address, tenant=target.tenant,
                timeout=timeout.total_seconds(), join_timeout=left, lease=_LEASE_SECONDS,
                member=member)
        except (cohort.AlreadyExists, cohort.ResourceExhausted) as error:
            if time.monotonic() > free_by:
                raise dist.DistStoreError(
                    f'{describe}, {_name_of(target)}: other processes have the ranks, so a job '
                    f'with this name is running: {error}') from error
            _await_event(target, min(1.0, free_by - time.monotonic()))
        except cohort.DeadlineExceeded as error:
            if target.rank is None and not error.missing:
                raise dist.DistStoreError(
                    f'{describe}, {_name_of(target)}: other processes have all ranks, so a job '
                    f'with this name is running: {error}') from error
            if until >= end:
                raise dist.DistStoreError(f'{describe}, {_name_of(target)}: {error}') from error
        except cohort.Unavailable as error:
            raise dist.DistNetworkError(f'{describe}: {error}') from error
        except cohort.InvalidArgument:
            raise
        except cohort.Error as error:
            raise dist.DistStoreError(f'{describe}, {_name_of(target)}: {error}') from error


def _await_event(target: Target, seconds: float) -> None:
    """Waits until the job's group changes, such as by the loss of a member, for at most `seconds`.
    An event before this call is missed, so a caller passes a short time and tries again."""
    try:
        with cohort.watch_group(f'torch-init/{escape(target.name)}', address=target.address,
                                tenant=target.tenant, timeout=max(0.1, seconds)) as events:
            next(events, None)
    except cohort.NotFound:
        pass  # the group was closed meanwhile


def _name_of(target: Target) -> str:
    rank = 'a process without a rank' if target.rank is None else f'rank {target.rank}'
    return f'{rank}, world size {target.world_size}'


def _leave_earlier(target: Target) -> None:
    """Leaves the job if this process has joined it before, so that it does not hold the rank
    against itself. Without a rank, it leaves only a job that has lost a rank, because other threads
    may be ranks of the same job."""
    for joined in _joined[:]:
        earlier, store, group = joined
        if target._replace(world_size=0) == earlier._replace(world_size=0) and (
                target.rank is not None or _has_lost_a_rank(target, group)):
            with contextlib.suppress(ValueError):  # another thread was faster
                _joined.remove(joined)
            store.close()


def _has_lost_a_rank(target: Target, group: cohort.ProcessGroup) -> bool:
    """Whether the generation that this process has joined is over. The coordinator may hear of a
    loss later than the other ranks, so it gets some seconds."""
    for seconds in (_SECONDS_TO_NOTICE_A_LOSS, 0):
        try:
            info = group.describe()
            if info.generation != group.generation or info.state in ('broken', 'closed'):
                return True
        except cohort.Error:  # it was closed, or this rank was lost as well
            return True
        if seconds > 0:
            _await_event(target, seconds)
    return False


def rendezvous(url: str, timeout: datetime.timedelta = _DEFAULT_TIMEOUT,
               **_: object) -> Iterator[Tuple[Store, int, int]]:
    """PyTorch's handler: yields the store, the rank and the world size, once."""
    target = parse_url(url)
    _leave_earlier(target)
    group = join(target, timeout)
    # A name of a store may have characters that a group's may not, so it is no other store's.
    store = Store(f'{target.name}#{group.generation}', target.address, timeout=timeout,
                  tenant=target.tenant)
    store.hold(group)
    _joined.append((target, store, group))
    yield store, group.rank, target.world_size
    raise RuntimeError(f'init_method {url!r}: a second rendezvous of one process group is not '
                       'supported')


if SCHEME not in _rendezvous_handlers:
    register_rendezvous_handler(SCHEME, rendezvous)
