"""cohort.vllm.StatelessProcessGroup and the same group over TCPStore: hand-offs and barriers.

    tests/benchmark/run.sh stateless [--json] [--members 2 64] [--rounds N]

peer_systems/tcpstore_stateless.py says how a round is measured. All groups exist for the whole run, in
processes of their own, and sleep while another one is measured. The groups alternate in each round. If vLLM
is installed, its own class is measured, too. `barrier` is one barrier after a pause; `barriers` is one of many
in a row.
"""

import argparse
import importlib.util
import json
import os
import socket
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'peer_systems'))
import tcpstore_stateless as members  # pylint: disable=wrong-import-position

BYTES = 1024
# Rounds before the measured ones.
WARM_UP = 3


class ObjectGroup:
    """A StatelessProcessGroup with the names of tcpstore_stateless.StatelessGroup."""

    def __init__(self, group):
        self.rank, self.world_size = group.rank, group.world_size
        self.send, self.receive = group.send_obj, group.recv_obj
        self.all_gather, self.barrier = group.all_gather_obj, group.barrier


def create(group_class, rank, world_size, port, announce):
    if rank == 0:
        with socket.socket() as unused:
            unused.bind(('127.0.0.1', 0))
            port = unused.getsockname()[1]
    announce(port)
    return ObjectGroup(group_class.create('127.0.0.1', port, rank, world_size))


def make_cohort(*arguments):
    # A process of Cohort must not be forked after this import.
    from cohort.vllm import StatelessProcessGroup  # pylint: disable=import-outside-toplevel
    return create(StatelessProcessGroup, *arguments)


def make_vllm(*arguments):
    from vllm.distributed.utils import StatelessProcessGroup  # pylint: disable=import-outside-toplevel
    return create(StatelessProcessGroup, *arguments)


def measure(groups, operation, world_size, rounds):
    """Yields a row for each group."""
    times = {name: [] for name in groups}
    for number in range(WARM_UP + rounds):
        # Another one begins each round.
        names = list(groups)[number % len(groups):] + list(groups)[:number % len(groups)]
        for name in names:
            time = groups[name].measure(members.OPERATIONS[operation], BYTES)
            if number >= WARM_UP:
                times[name].append(time)
    base = statistics.median(times['tcpstore'])
    for name, values in times.items():
        median = statistics.median(values)
        yield {
            'section': 'stateless',
            'operation': operation,
            'members': world_size, 'implementation': name, 'median_us': round(median, 1),
            'min_us': round(min(values), 1), 'max_us': round(max(values), 1),
            'x_tcpstore': round(median / base, 3), 'rounds': rounds,
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--package', required=True, help='the folder that holds the package cohort')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--members', type=int, nargs='+', default=[2, 64])
    parser.add_argument('--rounds', type=int, default=200)
    options = parser.parse_args()
    sys.path.insert(0, options.package)

    makers = {'cohort': make_cohort, 'tcpstore': members.make_group}
    if importlib.util.find_spec('vllm') is not None:
        makers['vllm'] = make_vllm
    for world_size in options.members:
        groups = {name: members.Members(world_size, make) for name, make in makers.items()}
        operations = ['barrier', 'barriers', 'all_gather']
        if world_size == 2:
            operations += ['handoff', 'ping_pong']
        for operation in operations:
            rounds = max(5, options.rounds * 2 // world_size)
            for row in measure(groups, operation, world_size, rounds):
                print(json.dumps(row) if options.json else
                      '{operation:11}{members:4} {implementation:10}{median_us:10} us  '
                      '{min_us:10} us {max_us:10} us {x_tcpstore:7} x tcpstore'.format(**row),
                      flush=True)
        for group in groups.values():
            group.stop()


if __name__ == '__main__':
    main()
