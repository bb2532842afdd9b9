"""Three ranks train, and go on after one of them was killed and started again.

    python recovery.py 0 ADDRESS & python recovery.py 2 ADDRESS &
    python recovery.py 1 ADDRESS & sleep 5; kill -9 $!
    python recovery.py 1 ADDRESS    # as Kubernetes does with a pod

A run takes about 20 seconds. The third argument, if there is one, is the seconds of a step.
"""

import sys
import time

import cohort
import numpy as np

STEPS = 2000


def agree(group: cohort.Group, step: int, weights: np.ndarray) -> int:
    """Gives all ranks the weights of the rank that is farthest. Returns that rank's step."""
    steps = group.exchange_sizes(step)
    farthest = steps.index(max(steps))
    group.broadcast(weights, root=farthest)
    return steps[farthest]


def main(rank: int, address: str, step_seconds: float) -> None:
    with cohort.Group('training', rank=rank, world_size=3, address=address) as group:
        weights, update = np.zeros(1000), np.empty(1000)
        step, lost = 0, False
        while True:
            try:
                if lost:
                    group.rejoin(timeout=300)  # waits for the successor of the lost rank
                    lost = False
                step = agree(group, step, weights)
                while step < STEPS:
                    time.sleep(step_seconds)  # here it would compute gradients
                    group.all_reduce(np.full(1000, 1.0), out=update, op='avg')
                    weights += update
                    step += 1
                    if step % 100 == 0:
                        print(f'step {step}', flush=True)
                group.all_gather_objects(b'done')
                print(f'weights {weights.min():g} to {weights.max():g}', flush=True)
                return
            except cohort.Aborted as error:
                print(f'rank {error.culprit} is lost: {error}', flush=True)
                lost = True


if __name__ == '__main__':
    main(int(sys.argv[1]), sys.argv[2], float((sys.argv[3:] or ['0.01'])[0]))
