"""The options of a process group."""

import dataclasses
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a process group, as `pg_options` of init_process_group and new_group. A new
    group without options has those of the default group.

    Attributes:
      address: the coordinator: "host:port", "[::1]:port" or "unix:/path". None: see cohort.torch.
        The address of rank 0 is that of all ranks.
      tenant: the namespace of the groups at the coordinator; empty: "default".
      device: the GPU of this rank, as in cohort.Group; "cpu": none. None: the `device_id` of
        init_process_group, also in subgroups, or else the current GPU if the program has used CUDA,
        for example by torch.cuda.set_device. A program that has not gets no CUDA and no NCCL.
      lease: the silence in seconds after which a rank is lost.
      advertised_host: the address to which ranks on other hosts connect, without a port.
      host_folder: as in cohort.Group.
      farewell: how many seconds a rank takes at most to leave, while it waits for the others to
        leave as well. Groups that are left one after the other share them.
    """
    address: Optional[str] = None
    tenant: str = ''
    device: Any = None
    lease: float = 30
    advertised_host: str = ''
    host_folder: str = ''
    farewell: float = 2
