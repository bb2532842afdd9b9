"""Pending calls: their ends, callbacks, several at once, and each call that has wait=False."""

import logging
import sys
import threading
import typing
from datetime import timedelta

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture, groups_fixture, joined_groups, run

RANKS = 2

_address = address_fixture()
_groups = groups_fixture('pending', RANKS)


def started(groups):
    """Starts an all_reduce on rank 0, for which rank 1 has not come, and returns it with a function
    that ends it."""
    call = groups[0].all_reduce(np.ones(2), wait=False)
    return call, lambda: groups[1].all_reduce(np.ones(2))


def test_the_result_is_there_at_the_end(groups):
    call, end = started(groups)
    assert not call.done() and not call.test()
    with pytest.raises(cohort.FailedPrecondition, match='all_reduce: the call has not ended, .*use wait'):
        call.result  # pylint: disable=pointless-statement
    for limit in (0.01, timedelta(milliseconds=10)):
        for wait in (call.exception, call.wait):
            with pytest.raises(cohort.DeadlineExceeded,
                               match='^all_reduce: the call has not ended after 0.01 s'):
                wait(limit)
        # Only this rank calls it, so it ends alone.
        with pytest.raises(cohort.DeadlineExceeded, match='rank 0 in group pending'):
            groups[0].await_streams(timeout=limit)
    assert repr(call) == '<cohort.PendingCall all_reduce, pending>'
    end()
    assert call.wait().tolist() == [2, 2]
    assert call.done() and call.exception() is None and call.result is call.wait()
    assert repr(call) == '<cohort.PendingCall all_reduce, done>'


def test_the_error_of_a_call(groups):
    calls = run(groups, lambda group, rank: group.all_reduce(np.ones(2 + rank), wait=False))
    for call in calls:
        error = call.exception(LONG)
        assert isinstance(error, cohort.InvalidArgument) and call.done()
        with pytest.raises(cohort.InvalidArgument):
            call.result  # pylint: disable=pointless-statement
        assert repr(call) == '<cohort.PendingCall all_reduce, failed: InvalidArgument>'


def test_callbacks(groups, caplog):
    call, end = started(groups)
    ended, order = threading.Event(), []
    def fail(_):
        raise ZeroDivisionError('of a callback')
    call.add_done_callback(fail)
    call.add_done_callback(lambda _: sys.exit(3))  # ends no thread of the library
    call.add_done_callback(order.append)
    call.add_done_callback(lambda _: ended.set())
    assert not order
    with caplog.at_level(logging.ERROR, 'cohort'):
        end()
        assert ended.wait(LONG)
    assert order == [call]
    assert 'of a callback' in caplog.text and 'PendingCall all_reduce' in caplog.text
    late = threading.Event()
    call.add_done_callback(lambda _: late.set())  # the call is over
    assert late.wait(LONG)


def test_callbacks_start_calls(groups):
    """A callback runs on another thread than the calls do."""
    def body(group, rank):
        ended, results = threading.Event(), []
        def again(call):
            results.append(call.result[0])
            if len(results) < 5:
                group.all_reduce(call.result, wait=False).add_done_callback(again)
            else:
                ended.set()
        group.all_reduce(np.ones(1), wait=False).add_done_callback(again)
        assert ended.wait(LONG), rank
        return results
    assert run(groups, body) == [[2, 4, 8, 16, 32]] * RANKS


def test_wait_all(groups):
    assert cohort.wait_all([]) == []
    def body(group, rank):
        calls = [group.all_reduce(np.full(1, rank + i), wait=False) for i in range(3)]
        return [int(result[0]) for result in cohort.wait_all(calls, timeout=LONG)]
    assert run(groups, body) == [[1, 3, 5]] * RANKS
    call, end = started(groups)
    with pytest.raises(cohort.DeadlineExceeded, match='wait_all: 1 of 1 calls have not ended after 0.01 s'):
        cohort.wait_all([call], timedelta(milliseconds=10))
    end()
    cohort.wait_all([call])
    # All calls end before the first error is raised.
    def failing(group, rank):
        calls = [group.all_reduce(np.ones(2 + rank), wait=False),
                 group.all_reduce(np.ones(2), wait=False)]
        with pytest.raises(cohort.InvalidArgument):
            cohort.wait_all(calls)
        return calls[1].done()
    assert run(groups, failing) == [True] * RANKS


def test_wait_all_has_one_deadline(groups, monkeypatch):
    limits = []
    exception = cohort.PendingCall.exception
    def noted(call, timeout=None):
        limits.append(timeout)
        return exception(call, timeout)
    monkeypatch.setattr(cohort.PendingCall, 'exception', noted)
    def body(group, _):
        return [group.all_reduce(np.ones(1), wait=False) for _ in range(4)]
    cohort.wait_all(run(groups, body)[0], LONG)
    assert LONG > limits[0] > limits[1] > limits[2] > limits[3]


def test_wait_any(groups, address):
    with pytest.raises(ValueError, match='at least one call'):
        cohort.wait_any([])
    call, end = started(groups)
    with pytest.raises(cohort.DeadlineExceeded, match='wait_any: none of 1 calls has ended after 0.01 s'):
        cohort.wait_any([call], 0.01)
    with joined_groups('alone', 1, address) as alone:
        over = alone[0].all_reduce(np.ones(1), wait=False)
        assert cohort.wait_any([call, over], LONG) == 1
    threading.Timer(0.05, end).start()
    assert cohort.wait_any([call], float('inf')) == 0
    call.wait()


def test_each_call_may_be_pending(groups):
    """All of them, in one order on all ranks."""
    def body(group, rank):
        sizes = [1, 2]
        part = np.full(sizes[rank], rank)
        one, out = np.full(2, rank), np.empty(2, int)
        calls = {
            'coalesced': group.all_reduce_coalesced([one, np.ones(1, int)], wait=False),
            'barrier': group.barrier(wait=False),
            'gathered': group.all_gather_v(part, sizes, wait=False),
            'reduced': group.reduce_scatter_v(np.arange(3), sizes, wait=False),
            'at root': group.gather_v(part, sizes, 1, wait=False),
            'to all': group.all_to_all_v(np.full(2, rank), [1, 1], [1, 1], wait=False),
            'sizes': group.exchange_sizes(rank + 5, wait=False),
            'scan': group.scan(np.full(1, 7), op='avg', wait=False),
            'sent': (group.send(one, 1, wait=False) if rank == 0
                     else group.receive(np.empty(2, int), 0, wait=False)),
            'exchanged': group.exchange([(one, 1 - rank)], [(out, 1 - rank)], wait=False),
        }
        results = dict(zip(calls, cohort.wait_all(list(calls.values()), LONG)))
        assert [each.tolist() for each in results['coalesced']] == [[1, 1], [2]]
        assert results['barrier'] is None and results['exchanged'] is None
        assert results['gathered'].tolist() == [0, 1, 1]
        assert results['reduced'].tolist() == ([0] if rank == 0 else [2, 4])
        assert rank == 0 and results['at root'] is None or results['at root'].tolist() == [0, 1, 1]
        assert results['to all'].tolist() == [0, 1] and results['sizes'] == [5, 6]
        assert results['scan'].tolist() == [7]
        assert rank == 0 and results['sent'] is None or results['sent'].tolist() == [0, 0]
        assert out.tolist() == [1 - rank] * 2
        return [repr(call) for call in calls.values()]
    assert run(groups, body)[0][:2] == ['<cohort.PendingCall all_reduce_coalesced, done>',
                                        '<cohort.PendingCall barrier, done>']


WRONG = {
    'ragged': (lambda g: g.all_gather_v(np.ones(1), 'xy', wait=False), 'sizes'),
    'coalesced': (lambda g: g.all_reduce_coalesced('xy', wait=False), 'inputs'),
    'barrier': (lambda g: g.barrier(timeout='x', wait=False), 'timeout: expected a number'),
    'sizes': (lambda g: g.exchange_sizes('x', wait=False), 'own: expected an int'),
    'scan': (lambda g: g.scan('x', wait=False), 'are not supported'),
}
RIGHT = {
    'ragged': lambda g: g.all_gather_v(np.ones(1), [1, 1], wait=False),
    'coalesced': lambda g: g.all_reduce_coalesced([np.ones(1)], wait=False),
    'barrier': lambda g: g.barrier(wait=False),
    'sizes': lambda g: g.exchange_sizes(1, wait=False),
    'scan': lambda g: g.scan(np.ones(1), wait=False),
}


@pytest.mark.parametrize('kind', WRONG)
def test_a_wrong_argument_fails_the_call_on_all_ranks(groups, kind):
    wrong, text = WRONG[kind]
    def body(group, rank):
        error = (RIGHT[kind] if rank else wrong)(group).exception(LONG)
        assert isinstance(error, cohort.InvalidArgument)
        assert text in str(error) and 'rank 0' in str(error)
        assert group.all_reduce(np.ones(1)).tolist() == [RANKS]  # in step
    run(groups, body)


def test_a_wrong_message_is_an_error_of_its_rank(groups):
    with pytest.raises(TypeError, match='tensor: expected an array'):
        groups[0].send(object(), 1, wait=False)
    with pytest.raises(TypeError, match='peer: expected an int'):
        groups[0].receive(np.ones(1), 'x', wait=False)


def test_closed_group(address):
    with joined_groups('closed', 1, address) as groups:
        groups[0].close()
        for call in RIGHT.values():
            with pytest.raises(cohort.FailedPrecondition, match='close'):
                call(groups[0])


def test_arrays_stay_while_a_message_is_pending(groups):
    data = bytearray(8)
    call = groups[0].receive(data, 1, wait=False)
    with pytest.raises(BufferError):
        data.append(1)
    groups[1].send(bytes(range(8)), 0)
    assert call.wait(LONG) is data and data == bytes(range(8))
    data.append(1)


def test_overloads():
    """With wait=False the type is a PendingCall of the result."""
    if not hasattr(typing, 'get_overloads'):
        pytest.skip('typing.get_overloads is of Python 3.11')
    for name in dir(cohort.Group):
        method = getattr(cohort.Group, name)
        if name.startswith('_') or 'wait' not in getattr(method, '__annotations__', {}):
            continue
        waits, starts = typing.get_overloads(method)
        result = waits.__annotations__['return'] or type(None)
        assert starts.__annotations__['return'] == cohort.PendingCall[result], name
        assert waits.__annotations__['wait'] == typing.Literal[True]
        assert starts.__annotations__['wait'] == typing.Literal[False]


def test_ranks_in_threads_share_the_thread_of_callbacks(groups):
    before = threading.active_count()
    def body(rank):
        ended = threading.Event()
        groups[rank].barrier(wait=False).add_done_callback(lambda _: ended.set())
        assert ended.wait(LONG)
    run_ranks(RANKS, body)
    assert threading.active_count() <= before
