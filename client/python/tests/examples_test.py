"""The examples, as a user starts them."""

import os
import subprocess
import sys

from testing.coordinator import LONG, coordinator

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'examples')


def run_example(name, ranks, address):
    """Runs an example with so many ranks. Returns their outputs, by rank."""
    processes = [subprocess.Popen([sys.executable, os.path.join(EXAMPLES, name), str(rank), address],
                                  stdout=subprocess.PIPE, text=True) for rank in range(ranks)]
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
