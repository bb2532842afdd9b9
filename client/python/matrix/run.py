"""Runs pairs of the matrix, and says which rules were broken.

    python3 -m matrix.run --seed 7 --pairs 300                    # a sample
    python3 -m matrix.run --all                                   # all pairs
    python3 -m matrix.run --only group.barrier/block@self:ctrl_c  # one pair; * stands for any text
    python3 -m matrix.run --rules                                 # the table

The package, the programs and PyTorch are those of the environment. The exit status is 0 if every rule
was kept, 1 if one was broken, and 2 if the matrix itself failed.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import os
import random
import signal
import sys
import threading
import time
from typing import Dict, List, NamedTuple, Optional

from matrix import calls, events, rules
from matrix.outcomes import Violation
from matrix.scene import Fault, Hung, Scene, Servers, Template


class Result(NamedTuple):
    """How a pair ended: "kept", "broken" or "fault"."""
    pair: str
    verdict: str
    text: str
    seconds: float


def all_pairs(with_torch: bool = True) -> List[str]:
    """The names of all pairs, in the order of the tables."""
    return [f'{name}:{event}' for name, call in calls.BY_NAME.items() for event in events.NAMES
            if call.front != 'planted' and (with_torch or not call.needs_torch)
            and rules.rule(call, event) is not None]


class Runner:
    """Runs pairs, several at a time."""

    def __init__(self):
        self._servers: Optional[Servers] = None
        self._templates: Dict[bool, Template] = {}
        self._lock = threading.Lock()

    def __enter__(self):
        self._servers = Servers()
        return self

    def __exit__(self, *_):
        for template in self._templates.values():
            template.close()
        self._servers.close()

    def _template(self, with_torch: bool) -> Template:
        with self._lock:
            if with_torch not in self._templates:
                self._templates[with_torch] = Template(with_torch)
            return self._templates[with_torch]

    def run(self, pair: str) -> Result:
        """Runs a pair. A pair that was too late runs again, because another program may have had the
        processors; it counts if it is late again."""
        result = self._run(pair)
        if result.verdict == 'broken' and ' late: ' in f' {result.text}':
            result = self._run(pair)
        return result

    def _run(self, pair: str) -> Result:
        began = time.monotonic()
        name, event = pair.split(':')
        call = calls.BY_NAME[name]
        row = rules.rule(call, event)
        servers, scene = self._servers, None
        try:
            own = event in rules.WITHOUT
            if own:
                servers = Servers(0 if call.form == 'self' else 2)
            spec = {}
            if own and (call.kind not in (calls.COLLECTIVE, calls.MESSAGE, calls.QUEUE)
                        or f'{call.front}.{call.name}' in rules.FORMING):
                spec = {'patience': rules.WITHOUT_COORDINATOR, 'gone': True}
            scene = Scene(pair, call, servers, self._template(call.needs_torch),
                          events.ranks_of(event), **spec)
            scene.prepare()
            events.play(scene, row, event)
            verdict, text = 'kept', ''
        except Violation as violation:
            verdict, text = 'broken', str(violation)
        except Hung as hung:
            stacks = scene.ranks[hung.rank].stacks() if scene and scene.ranks else ''
            verdict, text = 'broken', f'hangs: {hung}\n{stacks}'
        except Exception as fault:  # pylint: disable=broad-exception-caught
            verdict, text = 'fault', f'{type(fault).__name__}: {fault}'
        finally:
            if scene is not None:
                scene.close()
            if servers is not self._servers:
                servers.close()
        return Result(pair, verdict, text, time.monotonic() - began)


def _chosen(arguments) -> List[str]:
    pairs = all_pairs(not arguments.without_torch)
    if arguments.only:
        pairs = [pair for pair in pairs
                 if any(fnmatch.fnmatchcase(pair, pattern) for pattern in arguments.only)]
        if not pairs:
            sys.exit(f'no pair is called {arguments.only}')
    if arguments.all or (arguments.only and arguments.pairs is None):
        return pairs
    random.Random(arguments.seed).shuffle(pairs)
    return pairs[:arguments.pairs or 300]


def _print_counts(results: List[Result], skipped: int) -> None:
    """Prints a table by kind of call and event: pairs, and broken rules."""
    counts = collections.defaultdict(collections.Counter)
    for result in results:
        name, event = result.pair.split(':')
        counts[event.partition('-')[0]][calls.BY_NAME[name].kind, result.verdict] += 1
    kinds = [kind for kind in calls.KINDS
             if any(key[0] == kind for row in counts.values() for key in row)]
    print('\npairs run / rules broken, by event and kind of call')
    print(f'{"":18}' + ''.join(f'{kind:>12}' for kind in kinds))
    for event in events.EVENTS:
        if event in counts:
            cells = []
            for kind in kinds:
                total = sum(count for (of, _), count in counts[event].items() if of == kind)
                broken = counts[event][kind, 'broken']
                cells.append(f'{total}/{broken}' if total else '-')
            print(f'{event:18}' + ''.join(f'{cell:>12}' for cell in cells))
    verdicts = collections.Counter(result.verdict for result in results)
    print(f'{len(results)} pairs: {verdicts["kept"]} kept, {verdicts["broken"]} broken, '
          f'{verdicts["fault"]} faults of the matrix' + (f', {skipped} not run' if skipped else ''))


def run_pairs(pairs: List[str], jobs: int, seconds: float, verbose: bool = False,
              again: int = 0) -> List[Result]:
    """Runs the pairs, and prints those that were not kept. It begins no pair after so many
    seconds. A pair that breaks a rule runs again, at most `again` times, and counts if it breaks it each
    time; the others are printed as "unsteady"."""
    results = []
    end = time.monotonic() + seconds
    with Runner() as runner, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        def run(pair):
            if time.monotonic() >= end:
                return None
            result = first = runner.run(pair)
            for _ in range(again):
                if result.verdict != 'broken':
                    break
                result = runner.run(pair)
            if result is not first and result.verdict == 'kept':
                print(f'UNSTEADY {pair}: {first.text}', flush=True)
            return result
        try:
            for future in concurrent.futures.as_completed([pool.submit(run, pair) for pair in pairs]):
                result = future.result()
                if result is None:
                    continue
                results.append(result)
                if result.verdict != 'kept' or verbose:
                    print(f'{result.verdict.upper()} {result.pair} ({result.seconds:.1f} s): '
                          f'{result.text}', flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def main(arguments: Optional[List[str]] = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description='The matrix of calls and events.')
    parser.add_argument('--seed', type=int, default=None, help='of the sample; none: a new one')
    parser.add_argument('--pairs', type=int, default=None, help='the size of the sample (300)')
    parser.add_argument('--all', action='store_true', help='all pairs')
    parser.add_argument('--only', action='append', metavar='CALL:EVENT',
                        help='these pairs; * stands for any text; repeatable')
    parser.add_argument('--jobs', type=int, default=3, help='pairs at a time (3)')
    parser.add_argument('--seconds', type=float, default=float('inf'),
                        help='begin no pair after so many seconds')
    parser.add_argument('--again', type=int, default=0,
                        help='how often a pair that breaks a rule runs again; it counts if it breaks '
                             'the rule each time')
    parser.add_argument('--without-torch', action='store_true', help='no call that needs PyTorch')
    parser.add_argument('--list', action='store_true', help='print the names of the pairs')
    parser.add_argument('--rules', action='store_true', help='print the table of rules')
    parser.add_argument('--verbose', action='store_true', help='print each pair')
    chosen = parser.parse_args(arguments)
    if chosen.rules:
        rules.print_table()
        return 0
    if chosen.seed is None:
        chosen.seed = int.from_bytes(os.urandom(3), 'little')
    pairs = _chosen(chosen)
    if chosen.list:
        print('\n'.join(pairs))
        return 0
    print(f'seed {chosen.seed}: {len(pairs)} of {len(all_pairs(not chosen.without_torch))} pairs',
          flush=True)
    # The daemons end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    results = run_pairs(pairs, chosen.jobs, chosen.seconds, chosen.verbose,
                        chosen.again)
    _print_counts(results, len(pairs) - len(results))
    print(f'{time.monotonic() - began:.0f} s')
    verdicts = {result.verdict for result in results}
    return 2 if 'fault' in verdicts or not results else 1 if 'broken' in verdicts else 0


if __name__ == '__main__':
    sys.exit(main())
