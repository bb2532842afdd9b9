"""Ray actors are the ranks of a group. One of them is killed, a new actor takes its rank, and the
others go on with their weights.

    python ray_actors.py ADDRESS    # of the coordinator
"""

import sys

import cohort
import numpy as np
import ray

RANKS = 3
LOST = 1


@ray.remote(num_cpus=1)
class Trainer:
    """A rank, which keeps the weights and the group in its process."""

    def __init__(self, rank: int, address: str):
        self.group = cohort.Group('actors', rank=rank, world_size=RANKS, address=address)
        self.weights = np.zeros(1000)

    def train(self, steps: int) -> float:
        """Adds the average of all ranks' updates to the weights, so many times."""
        for _ in range(steps):
            update = np.full(1000, 1.0)  # here: gradients
            self.weights += self.group.all_reduce(update, op='avg')
        return float(self.weights.mean())

    def rejoin(self) -> None:
        """Waits for the actor that takes the lost rank."""
        self.group.rejoin(timeout=120)

    def receive_weights(self, root: int) -> None:
        """Gives all ranks the weights of one."""
        self.group.broadcast(self.weights, root=root)


def main(address: str) -> None:
    ray.init(num_cpus=RANKS, include_dashboard=False)
    actors = [Trainer.remote(rank, address) for rank in range(RANKS)]
    print('weights', ray.get([actor.train.remote(10) for actor in actors]), flush=True)

    survivors = [actor for rank, actor in enumerate(actors) if rank != LOST]
    calls = [actor.train.remote(1) for actor in survivors]  # they wait for the rank that is killed
    ray.kill(actors[LOST])
    for call in calls:
        try:
            ray.get(call)
        except cohort.Aborted as error:
            # Ray's exception has the actor's one as its cause.
            print(f'rank {error.cause.culprit} is lost: {error.cause}', flush=True)

    actors[LOST] = Trainer.remote(LOST, address)
    ray.get([actor.rejoin.remote() for actor in survivors])
    ray.get([actor.receive_weights.remote(root=0) for actor in actors])
    print('weights', ray.get([actor.train.remote(10) for actor in actors]), flush=True)


if __name__ == '__main__':
    main(sys.argv[1])
