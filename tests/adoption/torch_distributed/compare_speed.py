#!/usr/bin/python3
"""Compares the speed of torch.distributed on gloo and on Cohort: all_reduce, and steps of DDP.

    compare_speed.py [--ranks 2] [--seconds 40]

All ranks are processes of this machine, and each has a process group of both backends. The backends
take turns, many times; a figure is the median of the turns. Needs cohort-coordinator on the path,
PyTorch, and this tree's client/python.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist

import cohort.torch  # noqa: F401

SIZES = [8, 64 << 10, 1 << 20, 16 << 20]


def time_all(calls, budget):
    """Returns by name the median of the seconds of one call, in turns."""
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        begin = time.perf_counter()
        call()
        counts[name] = time.perf_counter() - begin
    # All ranks make the same number of calls.
    agreed = torch.tensor([max(counts.values())], dtype=torch.float64)
    dist.all_reduce(agreed, dist.ReduceOp.MAX)
    per_turn = max(1, min(1000, int(.02 / agreed.item())))
    turns = max(5, int(budget / (2 * per_turn * agreed.item())))
    turns = min(turns, 200)
    found = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(per_turn):
                call()
            found[name].append((time.perf_counter() - begin) / per_turn)
    return {name: statistics.median(values) for name, values in found.items()}


def steps(group):
    """Returns a function that makes a step of DDP."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 10))
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    batch = torch.randn(16, 256)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return step


def rank_main(rank, ranks, folder, address, seconds):
    """The main function of a rank."""
    torch.set_num_threads(1)
    os.environ['COHORT_ADDRESS'] = address
    dist.init_process_group('gloo', init_method=f'file://{folder}/store', rank=rank,
                            world_size=ranks)
    groups = {'gloo': dist.new_group(backend='gloo'), 'cohort': dist.new_group(backend='cohort')}
    share = seconds / (2 * len(SIZES) + 1)

    def show(what, found):
        if rank == 0:
            print(f'{what:28} gloo {found["gloo"] * 1e6:10.1f} us   cohort '
                  f'{found["cohort"] * 1e6:10.1f} us   {found["gloo"] / found["cohort"]:6.2f} x',
                  flush=True)
    for size in SIZES:
        x = torch.ones(size // 4)
        show(f'all_reduce {size} B', time_all(
            {name: lambda group=group: dist.all_reduce(x, group=group)
             for name, group in groups.items()}, share))
        show(f'all_reduce {size} B, async', time_all(
            {name: lambda group=group: dist.all_reduce(x, group=group, async_op=True).wait()
             for name, group in groups.items()}, share))
    show('step of DDP', time_all({name: steps(group) for name, group in groups.items()}, share))
    dist.barrier()
    dist.destroy_process_group()


def main():
    """Starts a coordinator and the ranks."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--ranks', type=int, default=2)
    parser.add_argument('--seconds', type=float, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        address = f'unix:{folder}/coordinator'
        with subprocess.Popen(['cohort-coordinator', '--listen', address, '--metrics-listen', ''],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as coordinator:
            context = multiprocessing.get_context('fork')
            processes = [context.Process(target=rank_main, args=(
                rank, arguments.ranks, folder, address, arguments.seconds))
                for rank in range(arguments.ranks)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            coordinator.terminate()


if __name__ == '__main__':
    main()
