"""Ranks of torch.distributed, each a process of its own, for a test.

    def body(rank, size):
        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    assert run_torch_ranks(2, body, address) == [2, 2]

The processes are forked from one that has imported PyTorch, which takes seconds. So `body` travels
as source text: its names are those of this file, its own imports, and its arguments. It is a
function of a module.
"""

import contextlib
import datetime
import inspect
import multiprocessing
import os
import tempfile
import traceback

from testing.coordinator import LONG
from testing.threads import await_sleep


def _import_names():
    """The names that a body may use."""
    # pylint: disable=import-outside-toplevel
    import signal
    import time
    import numpy
    import torch
    import torch.distributed as dist
    import cohort
    import cohort.torch as cohort_torch
    return {'await_sleep': await_sleep, 'cohort': cohort, 'cohort_torch': cohort_torch,
            'datetime': datetime, 'dist': dist, 'np': numpy, 'os': os,
            'seconds': lambda count: datetime.timedelta(seconds=count),
            'signal': signal, 'time': time, 'torch': torch}


def _run(connection, source, name, rank, size, init, arguments):
    """The main function of a rank."""
    try:
        names = _import_names()
        names['torch'].set_num_threads(1)
        exec(source, names)  # pylint: disable=exec-used
        os.environ['COHORT_ADDRESS'] = init['address']
        # Ranks may share a GPU, which NCCL permits on different hosts only.
        os.environ['NCCL_HOSTID'] = f'host-of-rank-{rank}'
        device = init['device'] and names['torch'].device(init['device'])
        names['dist'].init_process_group(
            'cohort', init_method=init['method'], rank=rank, world_size=size,
            timeout=datetime.timedelta(seconds=init['timeout']), device_id=device,
            pg_options=names['cohort_torch'].Options(farewell=init['farewell']))
        value = names[name](rank, size, *arguments)
        if names['dist'].is_initialized():
            names['dist'].destroy_process_group()
        connection.send((True, value))
    except BaseException:  # pylint: disable=broad-exception-caught
        connection.send((False, traceback.format_exc()))


def run_torch_ranks(size, body, address, *arguments, timeout=LONG, killed=(), farewell=2,
                    init_method=None, device=None):
    """Runs body(rank, size, *arguments) in `size` processes that have joined the default process
    group. Returns the results by rank.

    Args:
      address: the coordinator.
      timeout: of the process group, in seconds.
      killed: the ranks that end without a result, which is then None.
      farewell: as in cohort.torch.Options.
      init_method: None: a file.
      device: the device_id of init_process_group, such as 'cuda:0'; None: no GPU.

    Raises:
      AssertionError: a rank raised an exception, whose traceback it has, or ended otherwise.
    """
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['testing.torch_preload'])
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix='cohort'))
        init = {'address': address, 'timeout': timeout, 'farewell': farewell, 'device': device,
                'method': init_method or f'file://{folder}/store'}
        connections, processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(
                theirs, inspect.getsource(body), body.__name__, rank, size, init, arguments))
            process.start()
            theirs.close()
            stack.callback(process.kill)
            connections.append(ours)
            processes.append(process)
        values, failures = [], []
        for rank, connection in enumerate(connections):
            value, failure = _result(rank, connection, processes[rank], rank in killed)
            values.append(value)
            failures += [failure] if failure else []
        # All of them, because the failure of one rank is an error of the others.
        assert not failures, '\n'.join(failures)
        return values


def _result(rank, connection, process, is_killed):
    """Returns the value of a rank, and what went wrong or None."""
    if not connection.poll(2 * LONG):
        return None, f'rank {rank} has no result after {2 * LONG} s'
    try:
        succeeded, value = connection.recv()
    except EOFError:
        process.join(LONG)
        return None, None if is_killed else f'rank {rank} ended with the code {process.exitcode}'
    return (value, None) if succeeded else (None, f'rank {rank} raised: {value}')
