"""Every block of docs/python.md runs as it is printed.

A comment before a block says how it runs: by how many ranks, as threads of this process, or each a
program, or by torchrun. SETUPS has what the page takes for granted, and what must hold afterwards.
"""

import ast
import asyncio
import contextlib
import inspect
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
from typing import NamedTuple

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, coordinator, eventually, run_ranks, worker

PAGE = pathlib.Path('docs/python.md')
BLOCK = re.compile(r'(?:^<!-- (?P<how>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$',
                   re.MULTILINE | re.DOTALL)
HOW = re.compile(r'ranks: (?P<ranks>\d+)(?:, (?P<form>each a program|by torchrun|needs a GPU))?$')


class Block(NamedTuple):
    """A block of the page, the comment before it, and its name: its section and its number
    there."""
    name: str
    language: str
    how: str
    code: str
    line: int


class Setup(NamedTuple):
    """The needs of a block, and what must hold after it: code that runs in its namespace. `group`: it
    uses the group of all ranks under this name."""
    before: str = ''
    after: str = ''
    group: bool = False


def read_blocks():
    text = PAGE.read_text(encoding='utf-8')
    headings = [(match.start(), match[1]) for match in re.finditer(r'^## (.*)$', text, re.MULTILINE)]
    blocks, counts = [], {}
    for match in BLOCK.finditer(text):
        section = [heading for start, heading in headings if start < match.start()][-1]
        counts[section] = counts.get(section, 0) + 1
        blocks.append(Block(f'{section} {counts[section]}', match['language'], match['how'] or '',
                            match['code'], text.count('\n', 0, match.start('code'))))
    assert text.count('\n```') == 2 * len(blocks)
    return blocks


BLOCKS = {block.name: block for block in read_blocks()}

_TWO_STAGES = '''
import torch
groups = {'pipeline': group}
layers = torch.nn.Linear(4, 4)
batch = torch.ones(2, 4)
'''
_ELSEWHERE = '''
others = cohort.Store()
'''

SETUPS = {
    'The first group 1': Setup(),
    'Address, rank and size from the launcher 1': Setup(),
    'Pending calls 1': Setup('parts = [np.full(2, i + rank) for i in range(3)]',
                             'assert total.tolist() == [9, 9], total', group=True),
    'Objects, prefix sums, splits 1': Setup('count, x = 10 + rank, np.ones(2)', '''
assert settings == {'lr': 0.1, 'layers': [1, 2]} and names[3] == 'host-3'
assert first.tolist() == [sum(10 + r for r in range(rank))]
assert rows.rank == 1 - rank % 2 and x.tolist() == [2, 2]
''', group=True),
    'GPUs 1': Setup('import torch\nlocal_rank = 0\ngradients = torch.ones(4, device="cuda")',
                    'assert gradients.tolist() == [1] * 4\ngroup.close()'),
    'Ranks in a worker daemon 1': Setup('x = np.ones(2)', 'assert x.tolist() == [4, 4]'),
    'Tensor maps 1': Setup('hidden = np.ones(3)\nweights = {"w": np.full(2, 7)}', '''
assert rank == 0 or received['request'] == {'ids': [1, 2]} and received['hidden'].sum() == 3
assert weights['w'].tolist() == [7, 7]
''', group=True),
    'Message queues 1': Setup('ids = [1, 2]', 'assert rank == 0 or step == {"step": 1, "ids": ids}',
                              group=True),
    'asyncio 1': Setup('import asyncio', 'assert group.closed'),
    'asyncio 2': Setup('gradients = np.ones(2)',
                       'assert total.tolist() == [2, 2] and batch == b"step 1"'),
    'Watches 1': Setup(_ELSEWHERE + '''
store = cohort.Store()
others.put('workers/a', b'1')
others.put('workers/gone', b'2')
def play():
    eventually(lambda: len(names.get('workers', {})) == 2)
    others.put('workers/b', b'3')
    others.delete('workers/gone')
    eventually(lambda: names['workers'] == {'workers/a': b'1', 'workers/b': b'3'})
    store.close()
background(play)
'''),
    'Watches 2': Setup('''
member = cohort.ProcessGroup('engines', rank=0, world_size=1)
def play():
    eventually(lambda: names.get('ranks') == {0})
    member.leave()
    eventually(lambda: names['ranks'] == set())
    names['events'].close()
background(play)
'''),
    'Watches 3': Setup(_ELSEWHERE + '''
printed = []
def play():
    eventually(lambda: 'changes' in names)
    def put():
        others.put('workers/c', b'4')
        return ('put', 'workers/c', b'4') in printed
    eventually(put)
    names['loop'].call_soon_threadsafe(names['changes'].release)
def print(*words):
    printed.append(words)
background(play)
'''),
    'Groups of a layout 1': Setup('partial, gradients = np.ones(2), np.ones(2)', '''
assert partial.tolist() == [2, 2] and gradients.tolist() == [1, 1]
assert layout.families['tensor'] == [[0, 1], [2, 3], [4, 5], [6, 7]]
'''),
    'Groups of a layout 2': Setup('world = group', '''
assert len(groups) == (1 if rank in (0, 3) else 2)
for each in groups:
    each.close()
''', group=True),
    'Tokens to experts 1': Setup('''
import torch
all_experts = [lambda rows: rows * 2] * 64
hidden = before = torch.ones(3, 8)
ids = torch.tensor([[0, 63], [31, 32], [1, 2]])
weights = torch.full((3, 2), 0.5)
''', 'assert torch.equal(hidden, 2 * before)', group=True),
    'Stages of a pipeline 1': Setup(_TWO_STAGES, '''
if stage.is_last:
    stage.send_backward(torch.ones(2, 4))
else:
    assert gradients[0].shape == (2, 4)
''', group=True),
    'Errors 1': Setup('''
x = np.ones(2)
group.barrier()
if rank == 1:
    group.abort('a trial')
''', 'assert group.generation == 2', group=True),
    'TLS 1': Setup(),
    'Tensor parallel layers 1': Setup('''
import torch
seed = torch.Generator().manual_seed(0)
first, second = torch.randn(4, 8, generator=seed), torch.randn(8, 4, generator=seed)
x = torch.ones(2, 4)
''', '''
whole = torch.relu(torch.ones(2, 4) @ first) @ second
assert torch.allclose(y, whole, atol=1e-4) and columns.grad is not None
''', group=True),
    'torch.distributed 1': Setup(after='assert x.tolist() == [2] * 4'),
    "In place of vLLM's StatelessProcessGroup 1": Setup('host, world_size = "127.0.0.1", 2',
                                                        'group.barrier()\n'),
}
# Blocks that cannot run here, and the reason that their comment gives.
NOT_RUN = {'Install 1': 'it builds the wheel'}


def execute(code, names, block):
    """Runs code, which may await, as a module does."""
    compiled = compile(code, f'{PAGE}: {block.name}', 'exec', flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                       dont_inherit=True)
    if not compiled.co_flags & inspect.CO_COROUTINE:
        exec(compiled, names)  # pylint: disable=exec-used
        return

    async def main():
        names['loop'] = asyncio.get_running_loop()
        await eval(compiled, names)  # pylint: disable=eval-used
    asyncio.run(asyncio.wait_for(main(), LONG))


def run_as_threads(block, setup, ranks, address, more):
    """Runs the block by `ranks` threads of this process."""
    def body(rank):
        threads = []
        def background(function):
            threads.append(threading.Thread(target=function, daemon=True))
            threads[-1].start()
        with contextlib.ExitStack() as stack:
            names = {'__name__': '__main__', 'cohort': cohort, 'np': np, 'rank': rank,
                     'eventually': eventually, 'background': background, **more}
            names['names'] = names
            if setup.group:
                names['group'] = stack.enter_context(cohort.Group(
                    re.sub(r'\W', '-', block.name), rank=rank, world_size=ranks, address=address,
                    timeout=LONG))
            execute(setup.before, names, block)
            # Errors have the line of the page.
            execute('\n' * block.line + block.code, names, block)
            execute(setup.after, names, block)
            if setup.group:
                names['group'].all_gather_objects(b'done')
        for thread in threads:
            thread.join(LONG)
            assert not thread.is_alive()
    run_ranks(ranks, body)


def run_as_programs(block, setup, ranks, address, folder, by_torchrun):
    """Runs the block as a file, by each rank or by torchrun."""
    program = folder / 'program.py'
    program.write_text(f'{block.code}\n{setup.after}', encoding='utf-8')
    environment = dict(os.environ, COHORT_ADDRESS=address, WORLD_SIZE=str(ranks))
    if by_torchrun:
        commands = [['-m', 'torch.distributed.run', '--standalone', f'--nproc-per-node={ranks}',
                     str(program)]]
        del environment['WORLD_SIZE']
    else:
        commands = [[str(program), str(rank)] for rank in range(ranks)]
    running = [subprocess.Popen([sys.executable, *command], text=True,  # pylint: disable=consider-using-with
                                env={'RANK': str(rank), **environment}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
               for rank, command in enumerate(commands)]
    try:
        outputs = [process.communicate(timeout=2 * LONG)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    for process, output in zip(running, outputs):
        assert process.returncode == 0, output
    return outputs


@pytest.fixture(scope='module', name='address')
def _address():
    with coordinator() as address:
        yield address


def test_all_blocks_are_known():
    """A new block needs a way to run."""
    assert set(BLOCKS) == set(SETUPS) | set(NOT_RUN)
    for name, reason in NOT_RUN.items():
        assert BLOCKS[name].language != 'python' and BLOCKS[name].how == f'not run: {reason}'


@pytest.mark.parametrize('name', SETUPS)
def test_block(name, address, tmp_path, monkeypatch):
    block, setup = BLOCKS[name], SETUPS[name]
    how = HOW.match(block.how)
    assert how, f'{name}: no comment says how the block runs'
    ranks, form = int(how['ranks']), how['form']
    if block.language != 'python':
        subprocess.run(['bash', '-euc', block.code], check=True, timeout=LONG, cwd=tmp_path)
        return
    code = setup.before + block.code
    if 'torch' in code or 'vllm' in code:
        torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
        if form == 'needs a GPU' and not torch.cuda.is_available():
            compile(block.code, name, 'exec')
            pytest.skip('there is no GPU')
    monkeypatch.setenv('COHORT_ADDRESS', address)
    if form in ('each a program', 'by torchrun'):
        outputs = run_as_programs(block, setup, ranks, address, tmp_path, form == 'by torchrun')
        if name == 'The first group 1':
            assert outputs == ['[3. 3. 3. 3.]\n'] * 2
        elif name.startswith('Address'):
            assert outputs == [f"<cohort.Group 'job': rank {rank} of 2, generation 1, open>\n"
                               for rank in range(2)]
        return
    if form == 'needs a GPU':
        monkeypatch.setenv('RANK', '0')
        monkeypatch.setenv('WORLD_SIZE', '1')
    more = {}
    with contextlib.ExitStack() as stack:
        if 'worker=worker' in block.code:
            more['worker'] = stack.enter_context(worker(address))[0]
        if 'host, port' in block.code:
            with socket.create_server(('127.0.0.1', 0)) as listening:
                more['port'] = listening.getsockname()[1]
        run_as_threads(block, setup, ranks, address, more)
