"""The example with Ray: real actors, one of which is killed."""

import importlib.util
import os
import subprocess
import sys
import tempfile

import pytest

from testing.coordinator import coordinator

# Only the example's processes import it: pytest may have loaded other versions of its packages.
if importlib.util.find_spec('ray') is None:
    pytest.skip('Ray is not installed for this Python', allow_module_level=True)

EXAMPLE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'examples',
                       'ray_actors.py')
# Ray starts in ten seconds, and much later on a busy machine.
SECONDS = 240


def test_a_new_actor_takes_the_rank_of_a_killed_one():
    # Ray's files and sockets go there. Its sockets need a short path.
    with tempfile.TemporaryDirectory(prefix='ray', dir='/tmp') as folder, coordinator() as address:
        environment = {**os.environ, 'HOME': folder, 'RAY_TMPDIR': folder,
                       'RAY_USAGE_STATS_ENABLED': '0'}
        done = subprocess.run([sys.executable, EXAMPLE, address], env=environment, text=True,
                              stdout=subprocess.PIPE, timeout=SECONDS, check=True)
    first, *lost, last = done.stdout.splitlines()
    assert first == 'weights [10.0, 10.0, 10.0]'
    assert len(lost) == 2, 'each survivor reports the lost rank'
    for line in lost:
        assert line.startswith('rank 1 is lost: rank 1 is gone: its process ')
    assert last == 'weights [20.0, 20.0, 20.0]'
