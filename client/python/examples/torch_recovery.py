"""Data-parallel training with PyTorch that goes on after a process was killed and started again.

    JOB=cohort://coordinator:7700/job
    python torch_recovery.py 0 $JOB & python torch_recovery.py 2 $JOB &
    python torch_recovery.py 1 $JOB & sleep 20; kill -9 $!; python torch_recovery.py 1 $JOB

The last command stands for Kubernetes. A run takes about 40 seconds. The third argument, if there
is one, is the seconds of a step.
"""

import sys
import time

import cohort.torch  # pylint: disable=unused-import
import torch
import torch.distributed as dist

STEPS = 300
WORLD_SIZE = 3


def share_state(state: dict, rank: int) -> dict:
    """Returns the state of the rank that has completed the most steps."""
    steps = [None] * WORLD_SIZE
    dist.all_gather_object(steps, state['step'])
    source = steps.index(max(steps))
    shared = [state if rank == source else None]
    dist.broadcast_object_list(shared, src=source)
    return shared[0]


def train(rank: int, state: dict, step_seconds: float) -> None:
    """Trains to the last step. `state` has the last completed step, also after an error."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    state.setdefault('model', model.state_dict())
    state.setdefault('optimizer', optimizer.state_dict())
    state.update(share_state(state, rank))
    model.load_state_dict(state['model'])
    optimizer.load_state_dict(state['optimizer'])
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    while state['step'] < STEPS:
        time.sleep(step_seconds)  # here it would take longer to train
        batch = torch.Generator().manual_seed(state['step'] * WORLD_SIZE + rank)
        inputs = torch.randn(16, 8, generator=batch)
        loss = (parallel(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()  # with the all-reduce of the gradients
        optimizer.step()
        state.update(step=state['step'] + 1, model=model.state_dict(),
                     optimizer=optimizer.state_dict())
        if state['step'] % 100 == 0:
            print(f'step {state["step"]}: loss {loss.item():.6f}', flush=True)
    dist.barrier()


def main(rank: int, url: str, step_seconds: float) -> None:
    torch.manual_seed(0)
    state = {'step': 0}
    while True:
        dist.init_process_group('cohort', init_method=url, rank=rank, world_size=WORLD_SIZE)
        try:
            return train(rank, state, step_seconds)
        except RuntimeError:
            lost = dist.group.WORLD.failure()
            if lost is None:  # an error of the program
                raise
            print(f'rank {lost.culprit} is lost: {lost}', flush=True)
        finally:
            dist.destroy_process_group()


if __name__ == '__main__':
    main(int(sys.argv[1]), sys.argv[2], float((sys.argv[3:] or ['0.1'])[0]))
