"""cohort/_core.pyi has the names of the extension module, and their numbers of arguments."""

import ast
import contextlib
import pathlib
import re
import types

import numpy as np
import pytest

import cohort
from cohort import _core
from cohort.process_group import membership_options
from testing.fixtures import address_fixture, joined_groups

_address = address_fixture()

STUB = ast.parse(pathlib.Path(_core.__file__).with_name('_core.pyi').read_text(encoding='utf-8'))
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
ALL_CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
# Those that begin with _ are bases for the stub alone.
CLASSES = {name: node for name, node in ALL_CLASSES.items() if not name.startswith('_')}
CONSTANTS = {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}


def is_special(name):
    return name.startswith('__') and name.endswith('__')


def methods_of_stub(name):
    methods = {}
    for base in ALL_CLASSES[name].bases:
        methods.update(methods_of_stub(base.id))
    methods.update((node.name, node) for node in ALL_CLASSES[name].body
                   if isinstance(node, ast.FunctionDef))
    return methods


def methods_of_module(name):
    return {method for method, value in vars(getattr(_core, name)).items()
            if isinstance(value, types.MethodDescriptorType)}


def test_names_of_the_module():
    assert {name for name in dir(_core) if not is_special(name)} == (
        set(FUNCTIONS) | set(CLASSES) | CONSTANTS)
    for name in FUNCTIONS:
        assert isinstance(getattr(_core, name), types.BuiltinFunctionType)
    for name in CONSTANTS:
        assert isinstance(getattr(_core, name), str)


@pytest.mark.parametrize('name', CLASSES)
def test_methods_of_types(name):
    assert isinstance(getattr(_core, name), type)
    assert methods_of_module(name) == set(methods_of_stub(name))


def positional(node):
    """The arguments of a function in the stub, besides self."""
    arguments = [argument.arg for argument in node.args.posonlyargs]
    others = [argument.arg for argument in node.args.args]
    assert others in ([], ['self']) and not node.args.kwonlyargs, f'{node.name}: not positional'
    return [argument for argument in arguments if argument != 'self']


def number_of_arguments(function):
    """The number that the module expects, as it says in the error of a call with too many."""
    with pytest.raises(TypeError) as caught:
        function(*[None] * 20)
    text = str(caught.value)
    if 'takes no arguments' in text:
        return 0
    number = re.search(r'(?:expected|exactly) (\w+) argument', text)[1]
    return 1 if number == 'one' else int(number)


def test_arguments_of_functions():
    for name, node in FUNCTIONS.items():
        assert number_of_arguments(getattr(_core, name)) == len(positional(node)), name


def test_arguments_of_methods(address):
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(joined_groups('stub', 1, address))[0]
        member = _core.join_process_group(
            membership_options('stub-member', world_size=1, rank=0, address=address))
        stack.callback(member.release)
        writer = stack.enter_context(cohort.MessageQueue.create_external('stub', blocks=1))
        reader = stack.enter_context(cohort.MessageQueue.open(writer.handle, 'reader'))
        writer.enqueue(b'value')
        view = reader._core.acquire_view(None)
        stack.callback(view.release)
        store = _core.connect_store({'address': address})
        objects = [group._core, member, view, writer._core, _core.create_completions(), store,
                   store.watch('', 0, None, 1),
                   _core.watch_group({'address': address, 'group': group.name}),
                   group.all_reduce(np.ones(1), wait=False)._call,
                   cohort.moe.ExpertPlacement.blocks(1, 1)._core, cohort.Pipeline(group)._core]
        by_type = {type(each).__name__: each for each in objects}
        for name in CLASSES:
            for method, node in methods_of_stub(name).items():
                if not is_special(method):
                    number = number_of_arguments(getattr(by_type[name], method))
                    assert number == len(positional(node)), f'{name}.{method}'
