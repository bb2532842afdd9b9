"""A rank that is killed while the others wait for it."""

import os
import signal
import time

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, coordinator, rank_process, run_ranks

VICTIM = '''
import sys
import numpy
import cohort
group = cohort.Group("killed", rank=2, world_size=3, address=sys.argv[1])
print("ready", flush=True)
while True:
    group.all_reduce(numpy.ones(1000, numpy.float32))
'''

REPLACEMENT = '''
import sys
import numpy
import cohort
with cohort.Group("killed", rank=2, world_size=3, address=sys.argv[1]) as group:
    assert group.generation == 2
    group.all_reduce(numpy.ones(1000, numpy.float32))
    group.all_gather_objects(b"")
'''


def test_others_name_the_killed_rank_within_a_second_and_go_on():
    with coordinator() as address, rank_process(VICTIM, address) as victim:
        groups = run_ranks(2, lambda rank: cohort.Group(
            'killed', rank=rank, world_size=3, address=address, timeout=LONG))
        assert victim.stdout.readline() == 'ready\n'
        killed_at = []

        def body(rank):
            group = groups[rank]
            count = 0
            with pytest.raises(cohort.Aborted) as caught:
                while True:
                    group.all_reduce(np.ones(1000, np.float32))
                    count += 1
                    if rank == 0 and count == 100:
                        killed_at.append(time.monotonic())
                        os.kill(victim.pid, signal.SIGKILL)
            return caught.value, time.monotonic()

        for error, end in run_ranks(2, body):
            assert 'rank 2' in str(error) and error.culprit == 2
            assert end - killed_at[0] < LONG / 2  # figures are in tests/benchmark
        with rank_process(REPLACEMENT, address) as replacement:
            def go_on(rank):
                groups[rank].rejoin(LONG)
                result = groups[rank].all_reduce(np.ones(1000, np.float32))
                groups[rank].all_gather_objects(b'')
                groups[rank].close()
                return result[0]
            assert run_ranks(2, go_on) == [3, 3]
            assert replacement.wait(LONG) == 0
