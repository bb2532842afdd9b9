"""The examples, as a user starts them."""

import os
import subprocess
import sys

import pytest

from testing.coordinator import LONG, coordinator

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'examples')


def start(name, rank, *arguments):
    """Starts a rank of an example."""
    return subprocess.Popen([sys.executable, os.path.join(EXAMPLES, name), str(rank), *arguments],
                            env={**os.environ, 'OMP_NUM_THREADS': '1'}, stdout=subprocess.PIPE,
                            text=True)


def run_example(name, ranks, *arguments):
    """Runs an example with so many ranks. Returns their outputs, by rank."""
    return end_example([start(name, rank, *arguments) for rank in range(ranks)])


def end_example(processes):
    """Waits until all have succeeded. Returns their outputs, by rank."""
    outputs = [process.communicate(timeout=LONG)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


def test_weight_sync():
    with coordinator() as address:
        trainer, *engines = run_example('weight_sync.py', 3, address)
    assert trainer == ''
    for number, output in enumerate(engines, 1):
        assert output.splitlines() == [f'engine {number} serves the weights of step {step}'
                                       for step in (1, 2, 3)]


def run_with_a_kill(name, address):
    """Runs an example with three ranks, and kills and restarts rank 1. Returns the lines of their
    outputs, by rank; those of the killed process are not among them."""
    arguments = address, '0.001'  # a kill needs no time to be typed
    processes = [start(name, rank, *arguments) for rank in range(3)]
    assert processes[1].stdout.readline().startswith('step 100')
    processes[1].kill()
    processes[1].communicate()
    processes[1] = start(name, 1, *arguments)
    outputs = [output.splitlines() for output in end_example(processes)]
    for rank, lines in enumerate(outputs):
        lost = [line for line in lines if line.startswith('rank 1 is lost: ')]
        assert len(lost) == (0 if rank == 1 else 1)
    return outputs


def test_recovery():
    with coordinator() as address:
        for lines in run_with_a_kill('recovery.py', address):
            assert lines[-1] == 'weights 2000 to 2000'


def test_torch_recovery():
    pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
    with coordinator() as address:
        url = f'cohort://{address[len("unix:"):]}:'
        undisturbed = run_example('torch_recovery.py', 3, f'{url}undisturbed', '0')
        recovered = run_with_a_kill('torch_recovery.py', f'{url}recovered')
    for expected, lines in zip(undisturbed, recovered):
        assert lines[-1].startswith('step 300: loss ')
        assert lines[-1] == expected.splitlines()[-1]


def test_barrier():
    with coordinator() as address:
        outputs = [output.splitlines() for output in run_example('barrier.py', 3, address)]
    for lines in outputs:
        assert lines[-1] == 'all ranks are here'
    # Rank 2 comes last: the others wait for it, and not for each other, in the end.
    assert outputs[0][-2].endswith('waits for ranks [2]')
    assert outputs[1][-2].endswith('waits for ranks [2]')
