"""A trainer sends new weights to two inference engines after each of its steps.

    python weight_sync.py 0 ADDRESS    # the trainer
    python weight_sync.py 1 ADDRESS    # an engine
    python weight_sync.py 2 ADDRESS    # the other engine
"""

import sys

import cohort
import numpy as np

TRAINER = 0
STEPS = 3
SHAPES = {'embedding': (1000, 64), 'head': (64, 1000)}


def main(rank: int, address: str) -> None:
    with cohort.Group('weights', rank=rank, world_size=3, address=address) as group:
        # The engines copy from the trainer's memory: nothing else is copied.
        weights = {name: group.empty(shape, np.float32) for name, shape in SHAPES.items()}
        for step in range(1, STEPS + 1):
            if rank == TRAINER:
                for array in weights.values():
                    array[:] = step  # here it would train
            for array in weights.values():
                group.broadcast(array, TRAINER)
            if rank != TRAINER:
                mean = np.mean([array.mean() for array in weights.values()])
                print(f'engine {rank} serves the weights of step {mean:g}', flush=True)
        group.all_gather_objects(b'done')  # no rank leaves before all have the last weights


if __name__ == '__main__':
    main(int(sys.argv[1]), sys.argv[2])
