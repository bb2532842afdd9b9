"""Wrong arguments of a Group: an exception that says which, no leak, and a group that works
afterwards."""

import gc

import numpy as np
import pytest

import cohort
from testing.bad_input import CALLS, NO_UTF8, Wrong, assert_no_leak, refuse, refuse_on_ranks
from testing.coordinator import LONG, rank_process, run_ranks
from testing.fixtures import address_fixture, groups_fixture, joined_groups

_address = address_fixture()
_groups = groups_fixture('bad', 2)


def read_only():
    array = np.ones(3)
    array.flags.writeable = False
    return array


class Exported:
    """An array whose __dlpack__ runs `export`."""

    def __init__(self, export):
        self.export = export

    def __dlpack__(self, **_):
        return self.export()


def fails():
    raise KeyError('the exporter fails')


# A call of rank 0 while rank 1 calls all_reduce of three f64, and a part of both errors.
WRONG = {
    'no array': (lambda g: g.all_reduce('text', out=np.ones(3)), 'expected an array'),
    'no array, no out': (lambda g: g.all_reduce('text'), 'expected an array'),
    'None': (lambda g: g.all_reduce(None, out=np.ones(3)), 'rank 0'),
    'operation': (lambda g: g.all_reduce(np.ones(3), op='median'), "got 'median'"),
    'number of an operation': (lambda g: g.all_reduce(np.ones(3), op=99), 'op: expected'),
    'timeout': (lambda g: g.all_reduce(np.ones(3), timeout='soon'), 'timeout: expected a number'),
    'negative timeout': (lambda g: g.barrier(timeout=-1), 'timeout: expected seconds'),
    'sizes': (lambda g: g.all_gather_v(np.ones(3), ['a', 'b']), 'sizes: expected an int'),
    'number of sizes': (lambda g: g.all_gather_v(np.ones(3), [1, 2, 3]), 'rank 0'),
    'size': (lambda g: g.exchange_sizes('one'), 'own: expected an int'),
    'arrays': (lambda g: g.all_reduce_coalesced([np.ones(3), 'x']), 'inputs: expected an array'),
    'no arrays': (lambda g: g.all_reduce_coalesced(None), 'inputs: expected'),
    'no arrays, not waited for': (lambda g: g.all_reduce_coalesced(5, wait=False).wait(),
                                  'inputs: expected'),
    'root is no number': (lambda g: g.broadcast(np.ones(3), 'zero'), 'root: expected an int'),
    'dimension without out': (lambda g: g.all_gather(np.ones(3), dim=7), 'dim'),
    'byte order': (lambda g: g.all_reduce(np.ones(3, '>f8'), out=np.ones(3)), 'format >d'),
    'objects': (lambda g: g.all_reduce(np.array([1, None, 2]), out=np.ones(3)), 'format O'),
    'long double': (lambda g: g.all_reduce(np.ones(3, 'g'), out=np.ones(3)), 'format g'),
    'read-only': (lambda g: g.all_reduce(np.ones(3), out=read_only()), 'read-only'),
    'shape of out': (lambda g: g.all_reduce(np.ones(3), out=np.ones(4)), 'rank 0'),
    'type of out': (lambda g: g.all_reduce(np.ones(3), out=np.ones(3, 'f4')), 'rank 0'),
    'shape': (lambda g: g.all_reduce(np.ones((3, 1)), out=np.ones((3, 1))), 'rank 0'),
    'other collective': (lambda g: g.all_gather(np.ones(3)), 'all_gather'),
    'root': (lambda g: g.broadcast(np.ones(3), 5), '5'),
    'dimension': (lambda g: g.all_gather(np.ones(3), out=np.ones(6), dim=7), 'dim'),
    'overlap': (lambda g: g.all_reduce((a := np.ones(4))[:3], out=a[1:]), 'overlap'),
    'complex': (lambda g: g.all_reduce(np.ones(3, complex)), 'c128'),
    'root below 0': (lambda g: g.broadcast(np.ones(3), -1), 'root -1 is not in 0..1'),
    'root of 64 bits': (lambda g: g.broadcast(np.ones(3), 1 << 40), 'root: 1099511627776'),
    'huge sizes': (lambda g: g.all_gather_v(np.ones(3), [1 << 62, 1 << 62]), "the sizes' sum"),
    'size below 0': (lambda g: g.all_gather_v(np.ones(3), [-1, 4], np.ones(3)), 'a size of -1'),
    'size of 71 bits': (lambda g: g.exchange_sizes(1 << 70), 'own: 1180591620717411303424'),
    'text without UTF-8': (lambda g: g.all_reduce(np.ones(3), op=NO_UTF8), 'op: the text has no'),
    'not waited for': (lambda g: g.all_reduce(np.ones(3), op='x', wait=False).wait(), "got 'x'"),
    'timeout that is no number': (lambda g: g.barrier(timeout=float('nan')), 'timeout: expected'),
    'output that overlaps itself': (lambda g: g.all_reduce(np.ones(3), out=(
        np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,)))), 'overlap in memory'),
    'an exporter that fails': (lambda g: g.all_reduce(Exported(fails), out=np.ones(3)),
                               "input: 'the exporter fails'"),
    'an exporter of no capsule': (lambda g: g.all_reduce(Exported(int), out=np.ones(3)), 'input: '),
}




def wrong_on_rank_0(name):
    call, text = WRONG[name]
    return Wrong(call, text, lambda g: g.all_reduce(np.ones(3)))


def check_works(groups):
    assert run_ranks(2, lambda rank: groups[rank].all_reduce(np.ones(3)).tolist()) == [[2] * 3] * 2


@pytest.mark.parametrize('name', WRONG)
def test_all_ranks_get_the_error_and_the_group_works_afterwards(groups, name):
    wrong = wrong_on_rank_0(name)
    def body(rank):
        message = refuse(lambda: (wrong.right if rank else wrong.call)(groups[rank]), wrong.text)
        assert groups[rank].all_reduce(np.ones(3)).tolist() == [2, 2, 2]
        return message
    messages = run_ranks(2, body)
    assert messages[0] == messages[1] and 'rank 0' in messages[0]


@pytest.mark.parametrize('wait', [True, False])
@pytest.mark.parametrize('name', ['object', 'U5', 'read-only', 'root of a wrong type'])
def test_a_broadcast_from_which_the_root_had_returned(groups, name, wait):
    # Rank 0, which is not the root, cannot take part. Both ranks fail the call after it, and only
    # that one, so that they are in step.
    wrong = {'object': lambda g, **o: g.broadcast(object(), 1, **o),
             'U5': lambda g, **o: g.broadcast(np.zeros(3, 'U5'), 1, **o),
             'read-only': lambda g, **o: g.broadcast(read_only(), 1, **o),
             'root of a wrong type': lambda g, **o: g.broadcast(np.ones(3), 'one', **o)}[name]
    def result(call):
        return call if wait else call.wait(LONG)
    def body(rank):
        group = groups[rank]
        if rank == 1:
            assert result(group.broadcast(np.ones(3), 1, wait=wait)).tolist() == [1] * 3
        else:
            with pytest.raises(cohort.InvalidArgument, match='^rank 0 .*the other ranks did not wait'):
                result(wrong(group, wait=wait))
        with pytest.raises(cohort.InvalidArgument, match='a call before this one failed, and no rank '
                                                         'has run this one: .*: rank 0 ') as info:
            result(group.all_reduce(np.full(3, rank), wait=wait))
        for i in range(3):
            assert group.broadcast(np.full(3, i + rank), 1).tolist() == [i + 1] * 3
            assert group.all_reduce(np.full(3, rank)).tolist() == [1] * 3
        return str(info.value)
    assert len(set(run_ranks(2, body))) == 1


# Calls that fail before the other ranks could notice.
LOCAL = {
    'type of memory': (lambda g: g.empty(3, 'U5'), 'dtype: '),
    'extent of memory': (lambda g: g.empty((-1, 2)), 'an extent is negative'),
    'huge memory': (lambda g: g.empty((1 << 40, 1 << 20)), 'bytes of shared memory'),
    'extent of 71 bits': (lambda g: g.empty(1 << 70), 'shape: 1180591620717411303424'),
    'dimensions of memory': (lambda g: g.empty([1] * 100), 'shape: '),
    'object': (lambda g: g.send_object(object(), 1), 'cannot send a builtins.object'),
    'destination of an object': (lambda g: g.send_object(b'', 9), 'destination 9 is not in 0..1'),
    'no destination': (lambda g: g.send_object(b'', 'one'), 'destination: expected an int'),
    'source of an object': (lambda g: g.receive_object(-1), 'source -1 is not in 0..1'),
    'root of an object': (lambda g: g.broadcast_object(b'', 9), 'root 9 is not in 0..1'),
    'rank': (lambda g: g.send(np.ones(3), 7), 'to rank 7: ranks are 0..1'),
    'rank of 64 bits': (lambda g: g.send(np.ones(3), 1 << 40), 'peer: 1099511627776'),
    'own rank': (lambda g: g.send(np.ones(3), g.rank), 'rank 0'),
    'rank is no number': (lambda g: g.send(np.ones(3), 'one'), 'peer: expected an int'),
    'message is no array': (lambda g: g.send(object(), 1), 'tensor: expected an array'),
    'read-only message': (lambda g: g.receive(read_only(), 1), 'tensor: the array is read-only'),
    'awaited rank': (lambda g: g.await_message([9]), 'rank 9: ranks are 0..1'),
    'awaited ranks': (lambda g: g.await_message('01'), 'peers: expected a sequence'),
    'reason': (lambda g: g.abort(NO_UTF8), 'reason: the text has no UTF-8 form'),
    'reason in bytes': (lambda g: g.abort(b'\xff'), 'reason: the bytes are not UTF-8'),
    'time to rejoin': (lambda g: g.rejoin(-1), 'timeout: expected seconds'),
    'no such method': (lambda g: g._core.run(1, 2), 'expected 7 arguments, got 2'),
}


@pytest.mark.parametrize('name', LOCAL)
def test_a_thousand_local_errors_leave_nothing(groups, name):
    wrong = Wrong(*LOCAL[name])
    assert_no_leak(lambda count: refuse_on_ranks(groups, wrong, count))
    check_works(groups)


@pytest.mark.parametrize('name', WRONG)
def test_a_thousand_errors_of_all_ranks_leave_nothing(groups, name):
    wrong = wrong_on_rank_0(name)
    assert_no_leak(lambda count: refuse_on_ranks(groups, wrong, count))
    check_works(groups)


def interrupts():
    raise KeyboardInterrupt('Ctrl-C')


@pytest.mark.parametrize('call', [
    lambda group, array: group.all_reduce(array, out=np.ones(3)),
    lambda group, array: group.all_reduce(array, out=np.ones(3), wait=False),
    lambda group, array: group.all_reduce_coalesced([array], [np.ones(3)])])
def test_an_interrupt_while_an_array_is_read_is_raised_when_the_other_ranks_know(groups, call):
    def body(rank):
        if rank == 0:
            with pytest.raises(KeyboardInterrupt, match='Ctrl-C'):
                call(groups[0], Exported(interrupts))
        else:
            with pytest.raises(cohort.InvalidArgument, match='rank 0.*KeyboardInterrupt: Ctrl-C'):
                groups[1].all_reduce(np.ones(3))
    for _ in range(3):
        run_ranks(2, body)
        check_works(groups)


def test_a_list_that_reading_it_changes(groups):
    def body(rank):
        arrays = [np.full(50, float(i)) for i in range(100)]
        inputs = list(arrays)
        if rank == 0:
            def export():
                arrays.clear()
                inputs.clear()
                gc.collect()
                return np.zeros(50).__dlpack__()
            inputs[0] = Exported(export)
        out = [np.ones(50) for _ in range(100)]
        groups[rank].all_reduce_coalesced(inputs, out)
        return [int(array[0]) for array in out]
    assert run_ranks(2, body) == [[2 * i for i in range(100)]] * 2


def test_arrays_that_are_dropped_while_a_call_runs(groups):
    def repeat(count):
        for i in range(count):
            source, out = np.full(1000, float(i)), np.empty(1000)
            call = groups[0].all_reduce(source, out=out, wait=False)
            del source, out
            np.full(1000, -1.0)  # takes freed memory
            groups[1].all_reduce(np.zeros(1000))
            result = call.wait(LONG)
            assert (result == i).all()
            groups[0].all_reduce(np.ones(1000), wait=False)  # nothing of it is kept
            groups[1].all_reduce(np.ones(1000))
    assert_no_leak(repeat)


@pytest.mark.parametrize('name', CALLS)
def test_closed_group(address, name):
    with joined_groups('closed', 1, address) as groups:
        pass
    wrong = Wrong(CALLS[name], 'close() was called on this object')
    assert_no_leak(lambda count: refuse_on_ranks(groups, wrong, count))


def test_forked_child(address):
    program = '''
import os, sys, cohort
import numpy as np
from testing.bad_input import CALLS, COUNT, assert_no_leak, refuse
group = cohort.Group("forked", rank=0, world_size=1, address=sys.argv[1])
call = group.all_reduce(np.ones(3), wait=False)
call.wait()
group.empty(3)
child = os.fork()
if child == 0:
    def repeat(count):
        for _ in range(count):
            for each in CALLS.values():
                refuse(lambda: each(group), "forked")
            refuse(call.wait, "forked")
            refuse(call.cancel, "forked")
    assert_no_leak(repeat)
    print("refused", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(group.all_reduce(np.ones(3)).tolist(), flush=True)
'''
    with rank_process(program, address) as process:
        assert process.stdout.readline() == 'refused\n'
        assert process.stdout.readline() == '[1.0, 1.0, 1.0]\n'


def test_wrong_options():
    with pytest.raises(TypeError, match='world_size'):
        cohort.ProcessGroup('g', rank=0, world_size='two')
    with pytest.raises(ValueError, match='out of range'):
        cohort.ProcessGroup('g', rank=1 << 40, world_size=2)
    with pytest.raises(TypeError, match='unknown option'):
        cohort._core.join_process_group({'grup': 'g'})
    with pytest.raises(cohort.InvalidArgument):
        cohort.ProcessGroup('g', rank=5, world_size=2)


def test_errors_name_the_argument(groups):
    with pytest.raises(TypeError, match="destination: expected an int"):
        groups[0].send_object(b'', 'one')


def test_types_are_made_by_functions_alone():
    with pytest.raises(TypeError):
        cohort._core.Group()
