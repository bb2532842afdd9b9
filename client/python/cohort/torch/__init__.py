"""torch.distributed over Cohort: the backend "cohort".

    import cohort.torch
    import torch.distributed as dist

    dist.init_process_group("cohort", init_method="cohort://coordinator:7700/job",
                            rank=rank, world_size=8)
    dist.all_reduce(x)

The import registers the backend. Then all of torch.distributed runs over groups of Cohort, on
tensors in host memory and, with `Options(device=...)`, on a GPU: collectives, messages, subgroups,
DDP, FSDP2, DTensor and torch.distributed.checkpoint.

Any store of PyTorch may be used, by `store=`, `env://` or `file://`. The ranks use it to agree on
the coordinator and on the name of their group. The coordinator is the first of these that rank 0
finds:

- `Options(address=...)` as `pg_options`,
- the coordinator of a store of Cohort, as `cohort://` makes it,
- the environment variable COHORT_ADDRESS,
- 127.0.0.1:7700.
"""

from cohort.torch.backend import register_backend
from cohort.torch.monitored_barrier import offer_monitored_barrier
from cohort.torch.options import Options
from cohort.torch.process_group import ProcessGroup

register_backend()
offer_monitored_barrier()

__all__ = ['Options', 'ProcessGroup']

# --- The store and the rendezvous "cohort://" register themselves here.
try:
    from cohort.torch import rendezvous as _rendezvous  # noqa: F401  # registers "cohort://"
    from cohort.torch.store import Store
    __all__ += ['Store']
except ImportError:
    pass
# --- The end of their place.
