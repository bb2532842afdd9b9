"""How the ranks of a process group agree on a coordinator and on the name of their group."""

import datetime
import json
import os
import uuid
from typing import Any, NamedTuple, Optional

import torch.distributed as dist

from cohort.torch.options import Options

DEFAULT_ADDRESS = '127.0.0.1:7700'


class Agreement(NamedTuple):
    """The facts that all ranks have in common."""
    address: str  # of the coordinator
    tenant: str
    name: str  # of the group of Cohort; no other group has it


def agree(store: Any, rank: int, group: str, options: Options,
          timeout: datetime.timedelta) -> Agreement:
    """Returns what rank 0 has chosen, and written to the store of PyTorch.

    Each rank counts its groups in the store. So a group that is created again has a name of its
    own, also if the store still has the keys of the one before.

    Args:
      store: of this group alone; it may be used several times.
      group: the name that PyTorch has for the group; it becomes a part of the name.
      timeout: how long the other ranks wait for rank 0.
    """
    number = store.add(f'cohort/groups/{rank}', 1)
    key = f'cohort/group/{number}'
    if rank == 0:
        chosen = Agreement(choose_address(store, options), options.tenant,
                           f'torch-{_readable(group)}-{uuid.uuid4().hex[:16]}')
        store.set(key, json.dumps(chosen))
        return chosen
    try:
        store.wait([key], timeout)
    except Exception as error:
        raise dist.DistStoreError(
            f'process group {group}: rank {rank} waited {timeout.total_seconds():g} s for the '
            f'coordinator and the name that rank 0 writes to the store: {error}') from error
    return Agreement(*json.loads(store.get(key)))


def choose_address(store: Any, options: Options) -> str:
    """Returns the coordinator, as the documentation of cohort.torch says."""
    return (options.address or store_address(store) or os.environ.get('COHORT_ADDRESS')
            or DEFAULT_ADDRESS)


def store_address(store: Any) -> Optional[str]:
    """Returns the coordinator of a store of Cohort under any number of prefixes, or None."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    address = getattr(store, 'address', None)
    return address if isinstance(address, str) else None


def _readable(group: str) -> str:
    """At most 32 characters that names of groups may have."""
    return ''.join(c if c.isalnum() else '-' for c in group)[:32]
