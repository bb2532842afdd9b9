"""torchrun --rdzv-backend=cohort: agents and workers as processes, which are killed."""

import contextlib
import os
import subprocess
import sys

import pytest

from testing.coordinator import restartable_coordinator

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

# Longer than all restarts of a test take.
SECONDS = 120

# As in the wheel: see deploy/wheel.sh.
ENTRY_POINTS = '[torchrun.handlers]\ncohort = cohort.torch.elastic:entry_point\n'
METADATA = 'Metadata-Version: 2.1\nName: cohort\nVersion: 0\n'

BEGIN = '''
import ctypes, datetime, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it dies with its agent
import torch, torch.distributed as dist
import cohort.torch

dist.init_process_group("gloo", init_method="cohort://", timeout=datetime.timedelta(seconds=60))

def count():
    ones = torch.ones(1)
    dist.all_reduce(ones)
    return int(ones)

restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"restart {restart} with {count()} workers", flush=True)
'''

# Each agent counts the restarts of its own workers, so the workers add them up.
KILLED_WORKER = BEGIN + '''
restarts = torch.tensor([int(restart)])
dist.all_reduce(restarts)
if restarts.item() == 0:
    if dist.get_rank() == 1:
        open(sys.argv[1]).read()  # until the test says so
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
count()
dist.destroy_process_group()
print("finished", flush=True)
'''

# It goes on until the world has another size than the first argument.
UNTIL_THE_SIZE_CHANGES = BEGIN + '''
print("rank", dist.get_rank(), flush=True)
while dist.get_world_size() == int(sys.argv[1]):
    count()
dist.destroy_process_group()
print("finished", flush=True)
'''


@pytest.fixture(name='folder')
def _folder(tmp_path, monkeypatch):
    """A folder with the metadata of an installed wheel, which Python finds."""
    info = tmp_path / 'cohort-0.dist-info'
    info.mkdir()
    (info / 'entry_points.txt').write_text(ENTRY_POINTS)
    (info / 'METADATA').write_text(METADATA)
    monkeypatch.setenv('PYTHONPATH', f'{tmp_path}{os.pathsep}{os.environ["PYTHONPATH"]}')
    return tmp_path


@contextlib.contextmanager
def agents(count, address, nodes, folder, script, *arguments):
    """Runs agents of torchrun with one worker each, and yields them."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(agent(address, nodes, folder, script, *arguments))
               for _ in range(count)]


# torchrun on a host whose clock is wrong by the first argument, in seconds.
SKEWED = '''
import datetime, sys
from torch.distributed import run
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

skew = datetime.timedelta(seconds=float(sys.argv.pop(1)))

class Skewed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.now(tz) + skew

dynamic_rendezvous.datetime = Skewed
run.main()
'''


@contextlib.contextmanager
def agent(address, nodes, folder, script, *arguments, run_id=('--rdzv-id=job',), errors=None,
          skew=0):
    """Runs an agent, and yields it. Its clock is wrong by `skew` seconds."""
    (folder / 'script.py').write_text(script)
    command = [sys.executable, '-c', SKEWED, str(skew), '--rdzv-backend=cohort',
               f'--rdzv-endpoint={address}', *run_id, f'--nnodes={nodes}',
               '--nproc-per-node=1', '--max-restarts=3', '--monitor-interval=0.1',
               '--rdzv-conf=join_timeout=100,last_call_timeout=2,keep_alive_interval=1,'
               'keep_alive_max_attempt=3',
               str(folder / 'script.py'), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process):
    """Waits for the end of an agent. Returns the lines that its workers have printed since."""
    output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0
    return output.splitlines()


def test_a_killed_worker_and_a_killed_coordinator(folder):
    signal_file = folder / 'fifo'
    os.mkfifo(signal_file)
    with restartable_coordinator() as running, \
            agents(2, running.address, '2', folder, KILLED_WORKER, signal_file) as nodes:
        for node in nodes:
            assert node.stdout.readline() == 'restart 0 with 2 workers\n'
        running.kill()
        running.start()
        signal_file.write_text('now')
        # The agent of the worker counts a restart; the other one only joins the next round.
        restarts = sorted(tuple(finish(node)) for node in nodes)
        assert restarts[1] == ('restart 1 with 2 workers', 'finished')
        assert restarts[0][1] == 'finished' and restarts[0][0].endswith('with 2 workers')


def test_the_other_agent_goes_on_when_that_of_rank_zero_is_killed(folder):
    with restartable_coordinator() as running, \
            agents(2, running.address, '1:2', folder, UNTIL_THE_SIZE_CHANGES, 2) as nodes:
        ranks = {}
        for node in nodes:
            assert node.stdout.readline() == 'restart 0 with 2 workers\n'
            ranks[node.stdout.readline()] = node
        ranks['rank 0\n'].kill()  # and so its worker
        running.kill()
        running.start()
        assert finish(ranks['rank 1\n'])[-3:] == ['restart 1 with 1 workers', 'rank 0', 'finished']


def test_a_late_agent_joins(folder):
    with restartable_coordinator() as running, \
            agent(running.address, '1:2', folder, UNTIL_THE_SIZE_CHANGES, 1) as early:
        assert early.stdout.readline() == 'restart 0 with 1 workers\n'
        with agent(running.address, '1:2', folder, UNTIL_THE_SIZE_CHANGES, 1) as late:
            for node in (early, late):
                lines = finish(node)
                assert 'restart 0 with 2 workers' in lines and lines[-1] == 'finished'


@pytest.mark.parametrize('skew', [-60, 60])
def test_agents_with_wrong_clocks_form_a_round_and_stay(folder, skew):
    signal_file = folder / 'fifo'
    os.mkfifo(signal_file)
    with restartable_coordinator() as running, \
            agent(running.address, '2', folder, KILLED_WORKER, signal_file) as right, \
            agent(running.address, '2', folder, KILLED_WORKER, signal_file, skew=skew) as wrong:
        nodes = (right, wrong)
        for node in nodes:
            assert node.stdout.readline() == 'restart 0 with 2 workers\n'
        signal_file.write_text('now')
        for node in nodes:
            lines = finish(node)
            assert lines[-2].endswith('with 2 workers') and lines[-1] == 'finished'


@pytest.mark.parametrize('skew', [-60, 60])
def test_an_agent_with_a_wrong_clock_joins_a_job_that_runs(folder, skew):
    with restartable_coordinator() as running, \
            agent(running.address, '1:2', folder, UNTIL_THE_SIZE_CHANGES, 1) as early:
        assert early.stdout.readline() == 'restart 0 with 1 workers\n'
        with agent(running.address, '1:2', folder, UNTIL_THE_SIZE_CHANGES, 1, skew=skew) as late:
            for node in (early, late):
                lines = finish(node)
                assert 'restart 0 with 2 workers' in lines and lines[-1] == 'finished'


COUNTING = BEGIN + '''
dist.destroy_process_group()
print("finished", flush=True)
'''


NAMING = BEGIN + '''
print("id", os.environ["TORCHELASTIC_RUN_ID"], flush=True)
'''


@pytest.mark.parametrize('run_id', [(), ('--rdzv-id=none',), ('--rdzv-id=job',)])
def test_jobs_of_one_node_are_each_alone(folder, run_id):
    with restartable_coordinator() as running, \
            agent(running.address, '1', folder, NAMING + 'import signal\nsignal.pause()\n',
                  run_id=run_id) as killed:
        assert killed.stdout.readline() == 'restart 0 with 1 workers\n'
        with agent(running.address, '1', folder, NAMING, run_id=run_id) as beside:
            assert finish(beside)[0] == 'restart 0 with 1 workers'
        killed.kill()
        with agent(running.address, '1', folder, NAMING, run_id=run_id) as after:
            name = 'job' if run_id == ('--rdzv-id=job',) else 'none'
            assert finish(after) == ['restart 0 with 1 workers', f'id {name}']


@pytest.mark.parametrize('nodes', ['2', '1:3'])
def test_a_job_of_several_nodes_needs_a_run_id(folder, monkeypatch, nodes):
    # As Kubeflow's PyTorchJob starts it.
    monkeypatch.setenv('PET_NNODES', nodes)
    with restartable_coordinator() as running, \
            agent(running.address, nodes, folder, COUNTING, run_id=(),
                  errors=subprocess.PIPE) as node:
        errors = node.communicate(timeout=SECONDS)[1]
        assert node.returncode != 0
        assert '--rdzv-id' in errors and 'PET_RDZV_ID' in errors
