"""torch.distributed over Cohort: the backend "cohort", a store, `cohort://` and torchrun's backend.

    import cohort.torch
    import torch.distributed as dist

    dist.init_process_group("cohort", init_method="cohort://coordinator:7700/job",
                            rank=rank, world_size=8)
    dist.all_reduce(x)

The import registers the backend and the URL scheme. Then all of torch.distributed runs over groups
of Cohort, on tensors in host memory and, with `Options(device=...)`, on a GPU: collectives,
messages, subgroups, DDP, FSDP2, DTensor and torch.distributed.checkpoint.

Any store of PyTorch may be used, by `store=`, `env://` or `file://`. The ranks use it to agree on
the coordinator and on the name of their group. The coordinator is the first of these that rank 0
finds:

- `Options(address=...)` as `pg_options`,
- the coordinator of a store of Cohort, as `cohort://` makes it,
- the environment variable COHORT_ADDRESS,
- 127.0.0.1:7700.

`cohort.torch.Store` replaces TCPStore with any backend, and `torchrun --rdzv-backend=cohort` uses
the coordinator for its rendezvous.
"""

from cohort.torch import rendezvous as _rendezvous  # registers cohort://
from cohort.torch.backend import register_backend
from cohort.torch.monitored_barrier import offer_batches, offer_monitored_barrier
from cohort.torch.options import Options
from cohort.torch.process_group import ProcessGroup
from cohort.torch.refusals import tell_refusals
from cohort.torch.store import Store
from cohort.torch.untraced import leave_untraced

register_backend()
offer_monitored_barrier()
tell_refusals()
offer_batches()
leave_untraced()

__all__ = ['Options', 'ProcessGroup', 'Store']
