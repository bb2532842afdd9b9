"""Wrong arguments of ProcessGroup and Store, blocking and awaited: an exception that says which, no
leak, and an object that works afterwards."""

import asyncio

import pytest

import cohort
import cohort.aio
from testing.bad_input import NO_UTF8, Wrong, assert_no_leak, refuse, refuse_awaited
from testing.coordinator import LONG
from testing.fixtures import address_fixture

_address = address_fixture()

NAN = float('nan')
BYTES = b'\xff'  # no UTF-8
NUMBER = 1 << 70

# Calls of the only member of a group, and a part of the error.
MEMBER = {
    'object': (lambda g: g.send(object(), 0), 'cannot send a builtins.object'),
    'destination': (lambda g: g.send(b'', 7), 'destination 7 is not in 0..0'),
    'destination below 0': (lambda g: g.send(b'', -1), 'destination -1 is not in 0..0'),
    'destination of 71 bits': (lambda g: g.send(b'', NUMBER), f'destination: {NUMBER}'),
    'tag': (lambda g: g.send(b'', 0, NO_UTF8), 'tag: the text has no UTF-8 form'),
    'tag in bytes': (lambda g: g.send(b'', 0, BYTES), 'tag: the bytes are not UTF-8'),
    'long tag': (lambda g: g.receive_any('x' * 1000), 'tag: longer than'),
    'timeout': (lambda g: g.send(b'', 0, '', NAN), 'timeout: expected seconds'),
    'source': (lambda g: g.receive(7), 'source 7 is not in 0..0'),
    'no source': (lambda g: g.receive('x'), 'source: expected an int'),
    'tag of any source': (lambda g: g.receive_any(5), 'tag: expected a str or bytes'),
    'root': (lambda g: g.broadcast(b'', 9), 'root 9 is not in 0..0'),
    'contribution': (lambda g: g.all_gather(object()), 'cannot send a builtins.object'),
    'root of a gather': (lambda g: g.gather(b'', -1), 'root -1 is not in 0..0'),
    'objects': (lambda g: g.scatter('ab', 0), 'objs: expected a sequence'),
    'an object': (lambda g: g.scatter([object()], 0), 'cannot send a builtins.object'),
    'number of objects': (lambda g: g.scatter([b''] * 3, 0), '3 objects for 1 participants'),
    'age': (lambda g: g.expire_data(-1), 'older_than: expected seconds'),
    'participants': (lambda g: g.barrier(participants='text'), "participants: 'text': expected a sequence"),
    'participant': (lambda g: g.barrier(participants=[9]), 'participants: [9]: ranks are 0..0'),
    'participant below 0': (lambda g: g.barrier(participants=[-1]), 'participants: [-1]: ranks'),
    'participant twice': (lambda g: g.barrier(participants=[0, 0]), 'a rank comes twice'),
    'name': (lambda g: g.barrier(name=NO_UTF8), 'name: expected at most 128'),
    'name in bytes': (lambda g: g.barrier(name=BYTES), 'name: expected at most 128'),
    'vote': (lambda g: g.vote(NUMBER, 0), f'value: {NUMBER}'),
    'kind of vote': (lambda g: g.vote(1, 99), '99'),
    'time to agree': (lambda g: g.agree_alive('x'), 'timeout: expected a number'),
    'ids': (lambda g: g.publish_unique_ids('n', 'ab'), 'ids: expected a sequence'),
    'id': (lambda g: g.publish_unique_ids('n', [5]), 'ids: expected a str or bytes'),
    'name of ids': (lambda g: g.fetch_unique_ids(NO_UTF8), 'name: the text has no UTF-8 form'),
    'removed rank': (lambda g: g.propose_view(remove=[9]), 'rank 9'),
    'added member': (lambda g: g.propose_view(add=[5]), 'add: expected a str'),
    'proposal': (lambda g: g.ack_view(99), 'no view proposal 99'),
    'progress': (lambda g: g.report_progress('x'), 'counter: expected an int'),
    'operation': (lambda g: g.report_progress(1, NO_UTF8), 'operation: the text has no UTF-8'),
    'detail': (lambda g: g.report_error(5), 'detail: expected a str'),
    'suspected': (lambda g: g.report_error('x', suspected='9'), 'suspected: expected a sequence'),
    'time to rejoin': (lambda g: g.rejoin(-1), 'timeout: expected seconds'),
    'reason': (lambda g: g.leave(NO_UTF8), 'reason: the text has no UTF-8 form'),
    'reason for all': (lambda g: g.close_for_all(5), 'reason: expected a str'),
}
STORE = {
    'no key': (lambda s: s.put('', b''), 'key: must not be empty'),
    'key': (lambda s: s.put(NO_UTF8, b''), 'key: the text has no UTF-8 form'),
    'key in bytes': (lambda s: s.put(BYTES, b''), 'key: the bytes are not UTF-8'),
    'key is a number': (lambda s: s.put(5, b''), 'key: expected a str'),
    'long key': (lambda s: s.put('k' * 2000, b''), 'key: longer than'),
    'value': (lambda s: s.put('k', 5), 'value: expected a bytes-like object'),
    'text': (lambda s: s.put('k', NO_UTF8), 'value: the text has no UTF-8 form'),
    'huge value': (lambda s: s.put('k', bytes(5 << 20)), 'max_message_bytes'),
    'expiration': (lambda s: s.put('k', b'', expiration=NAN), 'expiration: expected seconds'),
    'revision': (lambda s: s.put('k', b'', expected_revision=NUMBER), 'expected_revision: '),
    'revision below 0': (lambda s: s.put('k', b'', expected_revision=-5), 'expected_revision: '),
    'expected': (lambda s: s.put('k', b'', expected_value=5), 'expected_value: expected a str'),
    'no entries': (lambda s: s.multi_put({}), 'no entries'),
    'keys': (lambda s: s.multi_put({5: b''}), 'keys: expected a str'),
    'values': (lambda s: s.multi_put({'k': 5}), 'values: expected a str'),
    'wait': (lambda s: s.get('k', wait=NAN), 'wait: expected seconds'),
    'newer_than': (lambda s: s.get('k', newer_than='x'), 'newer_than: expected an int'),
    'no sequence of keys': (lambda s: s.get_many('text'), 'key: expected a sequence'),
    'no keys': (lambda s: s.get_many([]), 'keys: needs 1 to'),
    'prefix': (lambda s: s.range(NO_UTF8), 'prefix: the text has no UTF-8 form'),
    'page_size': (lambda s: s.range('k', page_size=-1), 'page_size: must be'),
    'keys_only': (lambda s: s.range('k', keys_only=5), 'keys_only: expected a bool'),
    'deleted key': (lambda s: s.delete(5), 'key: expected a str'),
    'delta': (lambda s: s.add('k', NUMBER), f'delta: {NUMBER}'),
    'appended value': (lambda s: s.append('k', 5), 'value: expected a bytes-like object'),
    'queue': (lambda s: s.queue_push(NO_UTF8, b''), 'queue: the text has no UTF-8 form'),
    'pushed value': (lambda s: s.queue_push('q', 5), 'value: expected a bytes-like object'),
    'popped queue': (lambda s: s.queue_pop(''), 'queue: must not be empty'),
    'time to wait': (lambda s: s.queue_pop('q', wait=-1), 'wait: expected seconds'),
    'length': (lambda s: s.queue_len(5), 'queues: expected a str'),
}


@pytest.fixture(scope='module', name='member')
def _member(address):
    with cohort.ProcessGroup('bad', rank=0, world_size=1, address=address, timeout=LONG) as group:
        yield group


@pytest.fixture(scope='module', name='store')
def _store(address):
    with cohort.Store(address) as store:
        yield store


def repeat_refusal(thing, call, text):
    def repeat(count):
        for _ in range(count):
            refuse(lambda: call(thing), text)
    assert_no_leak(repeat)


@pytest.mark.parametrize('name', MEMBER)
def test_members(member, name):
    repeat_refusal(member, *MEMBER[name])
    member.barrier()


@pytest.mark.parametrize('name', STORE)
def test_stores(store, name):
    repeat_refusal(store, *STORE[name])
    store.put('works', b'yes')
    assert store.get('works') == b'yes'


def repeat_awaited(new, table, check):
    """Makes each wrong call of the table a thousand times, on one event loop and on another."""
    async def main():
        async with new() as thing:
            async def repeat(wrong, count):
                for _ in range(count):
                    await refuse_awaited(lambda: wrong.call(thing), wrong.text)
            runner = asyncio.get_running_loop()
            for wrong in [Wrong(*each) for each in table.values()]:
                await repeat(wrong, 20)
                def on_another_loop(count, wrong=wrong):
                    asyncio.run(asyncio.wait_for(repeat(wrong, count), LONG))
                await runner.run_in_executor(None, assert_no_leak, on_another_loop)
            await check(thing)
    asyncio.run(main())


def test_awaited_members(address):
    def new():
        return cohort.aio.ProcessGroup('bad-awaited', rank=0, world_size=1, address=address,
                                       timeout=LONG)
    async def check(group):
        await group.barrier()
    repeat_awaited(new, MEMBER, check)


def test_awaited_stores(address):
    async def check(store):
        await store.put('works', b'yes')
        assert await store.get('works') == b'yes'
    repeat_awaited(lambda: cohort.aio.Store(address), STORE, check)


def test_closed_objects(address):
    group = cohort.ProcessGroup('closed', rank=0, world_size=1, address=address)
    store = cohort.Store(address)
    async def awaited():
        async with cohort.aio.ProcessGroup('closed-2', rank=0, world_size=1, address=address) as g:
            pass
        async with cohort.aio.Store(address) as s:
            pass
        for _ in range(1000):
            await refuse_awaited(g.barrier, 'close()')
            await refuse_awaited(lambda: s.get('k'), 'close()')
    asyncio.run(awaited())
    group.close()
    store.close()
    repeat_refusal(group, lambda g: g.barrier(), 'close()')
    repeat_refusal(group, lambda g: g.send(b'', 0), 'close()')
    repeat_refusal(store, lambda s: s.get('k'), 'close()')
    repeat_refusal(store, lambda s: s.put('k', b''), 'close()')
