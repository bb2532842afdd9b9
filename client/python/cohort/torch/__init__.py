"""PyTorch over a coordinator: `cohort.torch.Store` in place of TCPStore, the URL scheme `cohort://`
of `init_process_group`, and the rendezvous backend `cohort` of torchrun.

    import cohort.torch                                     # registers cohort://
    dist.init_process_group("gloo", init_method="cohort://coordinator:7700/job", rank=0,
                            world_size=2)
"""

from cohort.torch import rendezvous as _rendezvous  # registers cohort://
from cohort.torch.store import Store

__all__ = ['Store']
