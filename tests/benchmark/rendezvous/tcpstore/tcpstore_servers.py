"""The coordinator as a TCPStore, and PyTorch's own server.

    tests/benchmark/run.sh tcpstore [--json] [--clients 1 8 64] [--processes 2 16 64] [--rounds N]

Both servers run all the time, and take turns. The load is one program with many connections, each
with one request on its way: so the server is the limit, and not the clients. `init` is the time
in which N processes, which have imported PyTorch, connect and end init_process_group("gloo").
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

METHODS = ['set', 'get', 'add', 'wait']

SERVER = '''
import datetime, sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=60), wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
'''

RANK = '''
import datetime, os, sys, time
import torch.distributed as dist
print("ready", flush=True)
for line in sys.stdin:
    port, key = line.split()
    store = dist.TCPStore("127.0.0.1", int(port), None, False, datetime.timedelta(seconds=120))
    dist.init_process_group("gloo", store=dist.PrefixStore(key, store), rank=int(sys.argv[1]),
                            world_size=int(sys.argv[2]))
    print(time.monotonic(), flush=True)
    sys.stdin.readline()
    dist.destroy_process_group()
    del store
    print("left", flush=True)
'''


def python_process(program, *arguments):
    environment = {**os.environ, 'GLOO_SOCKET_IFNAME': 'lo', 'OMP_NUM_THREADS': '1'}
    return subprocess.Popen([sys.executable, '-W', 'ignore', '-c', program, *map(str, arguments)],
                            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)


def start_coordinator(path, folder):
    """Starts it, and returns the process and its port."""
    with open(os.path.join(folder, 'coordinator.log'), 'w', encoding='utf-8') as log:
        process = subprocess.Popen([path, '--listen', '127.0.0.1:0', '--metrics-listen', '',
                                    '--port-file', os.path.join(folder, 'port'),
                                    '--until-stdin-closes'],
                                   stdin=subprocess.PIPE, stdout=log, stderr=subprocess.PIPE,
                                   text=True)
    for line in process.stderr:
        if ' serving ' in line:
            break
    with open(os.path.join(folder, 'port'), encoding='utf-8') as file:
        return process, int(file.read().rsplit(':', 1)[1])


def turns(ports, number):
    """Another server begins each round."""
    names = list(ports)
    return names[number % len(names):] + names[:number % len(names)]


def measure_load(program, ports, method, clients, rounds, seconds):
    rates = {name: [] for name in ports}
    for number in range(rounds):
        for name in turns(ports, number):
            rates[name].append(float(subprocess.run(
                [program, str(ports[name]), str(clients), method, str(seconds)],
                check=True, stdout=subprocess.PIPE, text=True).stdout))
    base = statistics.median(rates['torch'])
    for name, values in rates.items():
        yield {'section': 'tcpstore', 'operation': method, 'clients': clients, 'server': name,
               'median': round(statistics.median(values)), 'min': round(min(values)),
               'max': round(max(values)), 'unit': '/s',
               'x_torch': round(statistics.median(values) / base, 2), 'rounds': rounds}


def measure_init(ports, size, rounds):
    import time  # pylint: disable=import-outside-toplevel
    ranks = [python_process(RANK, rank, size) for rank in range(size)]
    for rank in ranks:
        rank.stdout.readline()
    times = {name: [] for name in ports}
    for number in range(rounds):
        for name in turns(ports, number):
            begin = time.monotonic()
            for rank in ranks:
                rank.stdin.write(f'{ports[name]} init-{size}-{number}\n')
                rank.stdin.flush()
            times[name].append(max(float(rank.stdout.readline()) for rank in ranks) - begin)
            for rank in ranks:
                rank.stdin.write('\n')
                rank.stdin.flush()
            for rank in ranks:
                rank.stdout.readline()
    for rank in ranks:
        rank.stdin.close()
        rank.wait()
    base = statistics.median(times['torch'])
    for name, values in times.items():
        yield {'section': 'tcpstore', 'operation': 'init', 'clients': size, 'server': name,
               'median': round(statistics.median(values) * 1e3, 1),
               'min': round(min(values) * 1e3, 1), 'max': round(max(values) * 1e3, 1), 'unit': 'ms',
               'x_torch': round(statistics.median(values) / base, 2), 'rounds': rounds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--coordinator', required=True)
    parser.add_argument('--load', required=True, help='the program tcpstore_load')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--clients', type=int, nargs='+', default=[1, 8, 64])
    parser.add_argument('--processes', type=int, nargs='*', default=[2, 16, 64])
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--seconds', type=float, default=0.5)
    options = parser.parse_args()

    def show(row):
        print(json.dumps(row) if options.json else
              '{operation:6}{clients:4} {server:7}{median:10} {unit:3}{min:10}{max:10} '
              '{x_torch:6} x torch'.format(**row), flush=True)

    with tempfile.TemporaryDirectory(prefix='cohort') as folder:
        torch_server = python_process(SERVER)
        coordinator, port = start_coordinator(options.coordinator, folder)
        ports = {'torch': int(torch_server.stdout.readline()), 'cohort': port}
        for method in METHODS:
            for clients in options.clients:
                for row in measure_load(options.load, ports, method, clients, options.rounds,
                                        options.seconds):
                    show(row)
        for size in options.processes:
            for row in measure_init(ports, size, max(3, options.rounds // 2)):
                show(row)
        for process in (torch_server, coordinator):
            process.stdin.close()
            process.wait()


if __name__ == '__main__':
    main()
