"""The facts that a launcher tells its processes: the coordinator, their rank and their number.

Arguments of the program come first. Then these variables count, in this order:

    COHORT_ADDRESS                                   the coordinator
    RANK, WORLD_SIZE                                 torchrun, and most schedulers
    OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE       mpirun of Open MPI
    SLURM_PROCID, SLURM_NTASKS                       srun

A rank and a size come from one launcher, both or none.
"""

import os
from typing import Optional, Tuple

from cohort.errors import InvalidArgument

DEFAULT_ADDRESS = '127.0.0.1:7700'
_ADDRESS = 'COHORT_ADDRESS'
_LAUNCHERS = (('RANK', 'WORLD_SIZE'), ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'),
              ('SLURM_PROCID', 'SLURM_NTASKS'))


def coordinator_address(address: Optional[str]) -> str:
    """Returns `address`, or the environment's if it is None, or else the port of this host at which
    a coordinator serves by default."""
    return address if address is not None else os.environ.get(_ADDRESS) or DEFAULT_ADDRESS


def rank_and_size(rank: Optional[int], world_size: Optional[int]) -> Tuple[Optional[int], int]:
    """Returns the rank and the size of a group. If `world_size` is None, it comes from the
    environment, and so does the rank if it is None, too. With a world size, a rank of None stays:
    the coordinator assigns one.

    Raises:
      InvalidArgument: `world_size` is None, and no launcher has set the variables; names them.
    """
    if world_size is not None:
        return rank, world_size
    for rank_name, size_name in _LAUNCHERS:
        if size_name in os.environ and (rank is not None or rank_name in os.environ):
            return (_number(rank_name) if rank is None else rank), _number(size_name)
    looked_at = ', '.join(f'{rank_name} and {size_name}' if rank is None else size_name
                          for rank_name, size_name in _LAUNCHERS)
    missing = 'rank and world_size' if rank is None else 'world_size'
    raise InvalidArgument(
        f'{missing}: neither an argument nor in the environment, where {looked_at} are looked at; '
        f'pass {"them" if rank is None else "it"}, or start the ranks by torchrun, mpirun or srun')


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise InvalidArgument(
            f'the environment variable {name}: expected a number, got '
            f'{os.environ[name]!r}') from None
