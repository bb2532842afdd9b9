"""Keeps torch.compile out of the code of the backend."""

import importlib
import inspect
import types
from typing import Iterable, Iterator

_MODULES = ('call_arguments', 'call_queue', 'callbacks', 'channel', 'collectives', 'completer', 'flat', 'health',
            'messages', 'process_group', 'reductions', 'sparse', 'timer', 'work')


def leave_untraced(modules: Iterable[str] = _MODULES) -> None:
    """Calls of a process group in a compiled function run as they are, as those of C++ do.

    torch.compile cannot trace a subclass of ProcessGroup. It breaks the graph at a call such as
    torch.distributed.send, and would then compile the Python functions that the call runs.
    """
    try:
        # pylint: disable-next=import-outside-toplevel
        from torch._C._dynamo import eval_frame
        skip = eval_frame._FrameAction.SKIP  # pylint: disable=protected-access
        # pylint: disable-next=protected-access
        strategy = eval_frame._FrameExecStrategy(skip, skip)  # also functions that the code calls
        set_strategy = eval_frame.set_code_exec_strategy
    except (ImportError, AttributeError):  # a PyTorch without the compiler
        return
    for name in modules:
        module = importlib.import_module(f'cohort.torch.{name}')
        for code in _codes(module):
            set_strategy(code, strategy)


def _codes(module: types.ModuleType) -> Iterator[types.CodeType]:
    for each in list(vars(module).values()):
        if getattr(each, '__module__', None) != module.__name__:
            continue
        members = list(vars(each).values()) if inspect.isclass(each) else [each]
        for member in members:
            if isinstance(member, property):
                member = member.fget
            if isinstance(member, (staticmethod, classmethod)):
                member = member.__func__
            if inspect.isfunction(member):
                yield from _with_inner(member.__code__)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _with_inner(each)
