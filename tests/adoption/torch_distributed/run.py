#!/usr/bin/python3
"""Runs PyTorch's tests of torch.distributed, unchanged, on gloo and on Cohort, and compares.

    run.py run RESULTS --backend gloo|cohort|cohort-as-gloo [--world-size 2] [--seconds 100]
    run.py compare RESULTS [--details]

`run` runs the tests of which RESULTS, a folder, has no result, for at most so many seconds. Call it
until it prints "all done". It starts a coordinator.
`compare` prints, for each backend, how many tests passed, failed and were skipped, and each test
that passes with gloo and not with Cohort.

Needs: cohort-coordinator on the path, PyTorch and the package expecttest in PYTHONPATH, and this
tree's client/python. PyTorch's file is that of the installed PyTorch.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CASES = [sys.executable, str(HERE / 'rank_cases.py')]


def environment(backend, world_size, temporary, address):
    """The environment of the tests."""
    return dict(
        os.environ, BACKEND='gloo' if backend == 'cohort-as-gloo' else backend,
        IN_PLACE_OF_GLOO='1' if backend == 'cohort-as-gloo' else '0', WORLD_SIZE=str(world_size),
        TEMP_DIR=temporary, COHORT_ADDRESS=address, MASTER_ADDR='127.0.0.1', OMP_NUM_THREADS='1',
        PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get('PYTHONPATH', '')]))


def run(arguments):
    """Runs tests for a while."""
    folder = pathlib.Path(arguments.results) / f'{arguments.backend}-{arguments.world_size}'
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='cohort-adoption') as temporary:
        for name in ('barrier', 'test_dir', 'init_dir'):
            os.makedirs(os.path.join(temporary, name), exist_ok=True)
        address = f'unix:{temporary}/coordinator'
        settings = environment(arguments.backend, arguments.world_size, temporary, address)
        listed = folder.parent / 'tests.txt'
        if not listed.exists():
            listed.write_text(subprocess.run([*CASES, 'list'], env=settings, check=True,
                                             stdout=subprocess.PIPE, text=True).stdout)
        tests = [test for test in listed.read_text().split()
                 if re.search(arguments.k, test)
                 and (arguments.again or not (folder / f'{test}.json').exists())]
        with subprocess.Popen(['cohort-coordinator', '--listen', address, '--metrics-listen', ''],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as coordinator:
            try:
                run_tests(tests, arguments.seconds, settings, folder)
            finally:
                coordinator.terminate()


def run_tests(tests, seconds, settings, folder):
    """Runs tests until the time is over. Writes a file for each result."""
    count = 0
    with open(folder / 'log.txt', 'a', encoding='utf-8') as log, subprocess.Popen(
            [*CASES, str(seconds), *tests], env=settings, text=True, stdout=subprocess.PIPE,
            stderr=log) as process:
        for line in process.stdout:
            if line.startswith('RESULT '):
                found = json.loads(line[len('RESULT '):])
                (folder / f'{found["test"]}.json').write_text(json.dumps(found, indent=1))
                print(f'{found["status"]:8} {found["seconds"]:5} s  {found["test"]}', flush=True)
                count += 1
    print('all done' if count == len(tests) else f'{len(tests) - count} tests are left')


def read(results):
    """The results, by backend and world size, and by test."""
    found = collections.defaultdict(dict)
    for path in pathlib.Path(results).glob('*/*.json'):
        found[path.parent.name][path.stem] = json.loads(path.read_text())
    return found


def compare(arguments):
    """Prints counts and differences."""
    found = read(arguments.results)
    for key, tests in sorted(found.items()):
        counts = collections.Counter(result['status'] for result in tests.values())
        print(f'{key:18} passed {counts["passed"]:4}  failed {counts["failed"]:4}  '
              f'skipped {counts["skipped"]:4}  of {len(tests)}')
    for key, tests in sorted(found.items()):
        gloo = found.get(f'gloo-{key.rsplit("-", 1)[1]}', {})
        if tests is gloo:
            continue
        for test in sorted(tests):
            theirs, ours = gloo.get(test, {}).get('status'), tests[test]['status']
            if theirs == 'passed' and ours != 'passed' or ours == 'failed' != theirs:
                print(f'{key}: {test}: gloo {theirs}, here {ours}')
                if arguments.details:
                    print('   ' + '\n   '.join(tests[test]['output'].splitlines()[-12:]))


def main():
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser('run')
    runs.add_argument('results')
    runs.add_argument('--backend', choices=['gloo', 'cohort', 'cohort-as-gloo'], required=True)
    runs.add_argument('--world-size', type=int, default=2)
    runs.add_argument('--seconds', type=float, default=100)
    runs.add_argument('--again', action='store_true', help='also tests that have a result')
    runs.add_argument('-k', default='', help='a regular expression of names')
    runs.set_defaults(function=run)
    compares = commands.add_parser('compare')
    compares.add_argument('results')
    compares.add_argument('--details', action='store_true')
    compares.set_defaults(function=compare)
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == '__main__':
    main()
