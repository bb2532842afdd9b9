"""Timeouts: seconds, timedelta, None and infinity, of every object."""

import asyncio
import contextlib
import inspect
import re
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import cohort
import cohort.aio
from testing.coordinator import LONG, run_ranks
from testing.fixtures import address_fixture, groups_fixture, joined_groups

_address = address_fixture()
_groups = groups_fixture('limits', 2)

SHORT = timedelta(milliseconds=10)

# Calls that wait in vain, by their class.
WAITS = {
    'Group.barrier': lambda t: t.groups[0].barrier(timeout=SHORT),
    'Group.all_reduce': lambda t: t.groups[0].all_reduce(np.ones(1), timeout=SHORT),
    'Group.all_reduce, pending': lambda t: t.groups[0].all_reduce(
        np.ones(1), timeout=SHORT, wait=False).wait(timedelta(seconds=LONG)),
    'Group.barrier, pending': lambda t: t.groups[0].barrier(timeout=SHORT, wait=False).wait(),
    'Group.receive': lambda t: t.groups[0].receive(np.ones(1), 1, timeout=SHORT),
    'Group.await_message': lambda t: t.groups[0].await_message([1], timeout=SHORT),
    'Group.receive_object': lambda t: t.groups[0].receive_object(1, timeout=SHORT),
    'Group.receive_map': lambda t: t.groups[0].receive_map(1, timeout=SHORT),
    'Group.rejoin': lambda t: t.groups[0].rejoin(SHORT),
    'Group, joining': lambda t: cohort.Group('late', rank=0, world_size=2, address=t.address,
                                             join_timeout=SHORT),
    'create_groups': lambda t: cohort.create_groups(t.groups[0], [[0, 1]], timeout=SHORT),
    'Group.split': lambda t: t.groups[0].split(0, timeout=SHORT),
    'ProcessGroup.barrier': lambda t: t.member.barrier(timeout=SHORT),
    'ProcessGroup.receive': lambda t: t.member.receive(1, timeout=SHORT),
    'MessageQueue.dequeue': lambda t: t.reader.dequeue(SHORT),
    'MessageQueue, of itself': lambda t: cohort.MessageQueue.open(
        t.writer.handle, 'second', timeout=SHORT).dequeue(),
    'aio.Group.barrier': lambda t: t.run(t.aio_group.barrier(timeout=SHORT)),
    'aio.ProcessGroup.barrier': lambda t: t.run(t.aio_member.barrier(timeout=SHORT)),
}
# Calls whose timeout may be None, besides its default.
NONE = {
    'Store.get': lambda t: t.store.get('absent', timeout=None),
    'Store.put': lambda t: t.store.put('key', 'value', timeout=None, expiration=timedelta(hours=1)),
    'Store.multi_put': lambda t: t.store.multi_put({'key': 'value'}, timeout=None),
    'Store.get_many': lambda t: t.store.get_many(['key'], timeout=None),
    'Store.missing': lambda t: t.store.missing(['key'], timeout=None),
    'Store.range': lambda t: t.store.range('k', timeout=None),
    'Store.add': lambda t: t.store.add('number', 1, timeout=None),
    'Store.append': lambda t: t.store.append('text', 'x', timeout=None),
    'Store.delete': lambda t: t.store.delete('key', timeout=None),
    'Store.queue_push': lambda t: t.store.queue_push('queue', 'x', timeout=None),
    'Store.queue_len': lambda t: t.store.queue_len('queue', timeout=None),
    'Store.queue_pop': lambda t: t.store.queue_pop('queue', timeout=None, wait=SHORT),
    'Store.watch': lambda t: t.store.watch('x', reconnect_timeout=None).close(),
    'ProcessGroup.agree_alive': lambda t: t.alone.agree_alive(None),
    'watch_group': lambda t: cohort.watch_group('alone', address=t.address, timeout=SHORT,
                                                reconnect_timeout=None).close(),
    'MessageQueue.enqueue': lambda t: t.writer.enqueue(b'', None),
    'Group': lambda t: cohort.Group('none', rank=0, world_size=1, address=t.address, timeout=None,
                                    join_timeout=None, lease=None, data_expiration=None).close(),
    'Group.rejoin': lambda t: t.group.abort('a trial') or t.group.rejoin(None),
    'create_groups': lambda t: cohort.create_groups(t.group, [[0]], timeout=None)[0].close(),
    'split': lambda t: t.group.split(0, timeout=None).close(),
    'PendingCall.wait': lambda t: t.group.barrier(timeout=None, wait=False).wait(None),
    'wait_all': lambda t: cohort.wait_all([t.group.barrier(wait=False)], None),
    'aio.Store.get': lambda t: t.run(t.aio_store.get('absent', timeout=None, wait=SHORT)),
    'aio.Store.put': lambda t: t.run(t.aio_store.put('key', 'value', timeout=None)),
    'aio.Store.multi_put': lambda t: t.run(t.aio_store.multi_put({'key': 'v'}, timeout=None)),
    'aio.Store.queue_len': lambda t: t.run(t.aio_store.queue_len('queue', timeout=None)),
    'aio.ProcessGroup.agree_alive': lambda t: t.run(t.aio_alone.agree_alive(None)),
}


class Things:
    """One object of each kind. Rank 1 of its groups never calls."""

    def __init__(self, address, groups, stack):
        self.address, self.groups = address, groups
        self.group = stack.enter_context(joined_groups('own', 1, address))[0]
        self.member, self.other = run_ranks(2, lambda rank: stack.enter_context(
            cohort.ProcessGroup('members', rank=rank, world_size=2, address=address)))
        self.alone = stack.enter_context(
            cohort.ProcessGroup('alone', rank=0, world_size=1, address=address))
        self.store = stack.enter_context(cohort.Store(address, timeout=timedelta(seconds=LONG)))
        self.writer = stack.enter_context(cohort.MessageQueue.create_external('limits'))
        self.reader = stack.enter_context(cohort.MessageQueue.open(self.writer.handle, 'reader'))
        self.runner = stack.enter_context(asyncio.Runner())
        self.aio_store = cohort.aio.Store(address)
        self.aio_alone = self.run(self._await(
            cohort.aio.ProcessGroup('aio-alone', rank=0, world_size=1, address=address)))
        other = stack.enter_context  # the other ranks of the groups for asyncio
        def join(rank):
            if rank:
                other(cohort.Group('aio', rank=1, world_size=2, address=address))
                other(cohort.ProcessGroup('aio-members', rank=1, world_size=2, address=address))
                return
            self.aio_group = self.run(self._await(
                cohort.aio.Group('aio', rank=0, world_size=2, address=address)))
            self.aio_member = self.run(self._await(
                cohort.aio.ProcessGroup('aio-members', rank=0, world_size=2, address=address)))
        run_ranks(2, join)
        stack.callback(lambda: self.run(self._close()))

    async def _await(self, joins):
        return await joins

    async def _close(self):
        for each in (self.aio_group, self.aio_member, self.aio_alone, self.aio_store):
            await each.close()

    def run(self, coroutine):
        return self.runner.run(asyncio.wait_for(coroutine, LONG))


@pytest.fixture(name='things')
def _things(address):
    with contextlib.ExitStack() as stack:
        groups = stack.enter_context(joined_groups('waits', 2, address))
        yield Things(address, groups, stack)


@pytest.mark.parametrize('wait', WAITS)
def test_timedelta(things, wait):
    with pytest.raises(cohort.DeadlineExceeded):
        WAITS[wait](things)


def test_none_is_the_timeout_of_the_object(things):
    for name, call in NONE.items():
        try:
            call(things)
        except TypeError as error:
            raise AssertionError(name) from error


def test_the_timeout_of_a_store(address):
    with cohort.Store(address, timeout=SHORT) as store:
        store.put('key', 'value', timeout=LONG)
    with cohort.Store('unix:/no/server/here', timeout=SHORT) as store:
        with pytest.raises(cohort.Unavailable):
            store.get('key')
        with pytest.raises(cohort.Unavailable):
            store.get('key', timeout=0.01)


def test_no_limit_is_infinity(groups):
    def body(rank):
        groups[rank].barrier(timeout=float('inf'))
        groups[rank].barrier(timeout=timedelta.max)
    run_ranks(2, body)


def test_wrong_timeouts(address):
    with cohort.Store(address) as store:
        for wrong, text in (('x', 'timeout: expected a number'), (timedelta(-1), 'timeout: expected '
                            'seconds, 0 or more'), (float('nan'), 'timeout: expected seconds')):
            with pytest.raises((TypeError, ValueError), match=text):
                store.get('key', timeout=wrong)


def test_each_timeout_has_the_type():
    """No method has a timeout that is only a float."""
    classes = [cohort.Group, cohort.ProcessGroup, cohort.Store, cohort.MessageQueue, cohort.Pipeline,
               cohort.PendingCall, cohort.aio.Group, cohort.aio.ProcessGroup, cohort.aio.Store,
               cohort.aio.MessageQueue]
    functions = [function for each in classes for name, function in inspect.getmembers(
        each, inspect.isfunction) if name == '__init__' or not name.startswith('_')]
    functions += [cohort.create_groups, cohort.create_layout, cohort.ring_shift, cohort.watch_group,
                  cohort.wait_all, cohort.wait_any, cohort.moe.dispatch, cohort.moe.combine,
                  cohort.moe.dispatch_to_experts, cohort.moe.combine_from_experts]
    count = 0
    for function in functions:
        for name, parameter in inspect.signature(function).parameters.items():
            if re.search('timeout$', name):
                assert 'timedelta' in str(parameter.annotation), f'{function.__qualname__}: {name}'
                count += 1
    assert count > 100


def test_await_streams_beside_the_call_of_another_thread(groups):
    # Only this rank calls it, so the group goes on.
    other = threading.Thread(target=lambda: groups[0].barrier(timeout=LONG))
    other.start()
    begin = time.monotonic()
    with pytest.raises(cohort.DeadlineExceeded, match='^await_streams of rank 0 in group limits did '
                       'not begin within 10ms: another call of this rank was not over'):
        while time.monotonic() < begin + LONG:  # until the other thread's call runs
            groups[0].await_streams(timeout=SHORT)
    groups[1].barrier(timeout=LONG)
    other.join()
    run_ranks(2, lambda rank: groups[rank].barrier())


def test_a_call_without_its_turn_ends_the_generation(address):
    # Otherwise this rank would leave out a call that the others make.
    with joined_groups('turns', 2, address) as groups:
        errors = []
        def sum_up():
            try:
                groups[0].all_reduce(np.ones(1), timeout=LONG)
            except cohort.Aborted as error:
                errors.append(str(error))
        other = threading.Thread(target=sum_up)
        other.start()
        begin = time.monotonic()
        with pytest.raises(cohort.DeadlineExceeded, match='another call of this rank was not over'):
            while time.monotonic() < begin + LONG:  # until the other thread's call runs
                groups[0].await_streams(timeout=SHORT)
        text = 'all_reduce of rank 0 in group turns did not begin within 10ms: another call of this'
        with pytest.raises(cohort.DeadlineExceeded, match=f'^{text}'):
            groups[0].all_reduce(np.ones(1), timeout=SHORT)
        other.join()
        assert len(errors) == 1 and text in errors[0]
        with pytest.raises(cohort.Aborted, match=text):
            groups[1].all_reduce(np.ones(1), timeout=LONG)
