"""The examples, as a user starts them."""

import os
import subprocess
import sys

from testing.coordinator import LONG, coordinator

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'examples')


def start(name, rank, address):
    """Starts a rank of an example."""
    return subprocess.Popen([sys.executable, os.path.join(EXAMPLES, name), str(rank), address],
                            stdout=subprocess.PIPE, text=True)


def run_example(name, ranks, address):
    """Runs an example with so many ranks. Returns their outputs, by rank."""
    processes = [start(name, rank, address) for rank in range(ranks)]
    outputs = [process.communicate(timeout=LONG)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks
    return outputs


def test_weight_sync():
    with coordinator() as address:
        trainer, *engines = run_example('weight_sync.py', 3, address)
    assert trainer == ''
    for number, output in enumerate(engines, 1):
        assert output.splitlines() == [f'engine {number} serves the weights of step {step}'
                                       for step in (1, 2, 3)]


def test_recovery():
    with coordinator() as address:
        processes = [start('recovery.py', rank, address) for rank in range(3)]
        assert processes[1].stdout.readline() == 'step 100\n'
        processes[1].kill()
        processes[1].communicate()
        processes[1] = start('recovery.py', 1, address)
        outputs = [process.communicate(timeout=LONG)[0].splitlines() for process in processes]
    for rank, lines in enumerate(outputs):
        assert lines[-1] == 'weights 2000 to 2000'
        lost = [line for line in lines if line.startswith('rank 1 is lost: ')]
        assert len(lost) == (0 if rank == 1 else 1)


def test_barrier():
    with coordinator() as address:
        outputs = [output.splitlines() for output in run_example('barrier.py', 3, address)]
    for lines in outputs:
        assert lines[-1] == 'all ranks are here'
    # Rank 2 comes last: the others wait for it, and not for each other, in the end.
    assert outputs[0][-2].endswith('waits for ranks [2]')
    assert outputs[1][-2].endswith('waits for ranks [2]')
