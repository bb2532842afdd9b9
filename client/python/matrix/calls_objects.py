"""The calls of ProcessGroup and Store, which go to the coordinator: blocking, and in cohort.aio."""

import cohort
import cohort.aio
from matrix.calls import (ANY, JOIN_PATIENCE, KEY, MAILBOX, REQUEST, ROOTED, ROUND, Context, add)

_LONG = 8


def _limit(c, **more):
    if c.timeout is not None:
        more['timeout'] = c.timeout
    return more


def _round(c):
    more = {'name': {'name': 5}, 'participants': {'participants': [0, 1, 99]}}
    return _limit(c, **more.get(c.variant, {}))


_MEMBERS = ('name', 'participants')


# --- ProcessGroup.


def _join(c: Context, module):
    return module.ProcessGroup(c.name, rank=c.rank, world_size=c.size, address=c.address,
                               timeout=c.patience, join_timeout=JOIN_PATIENCE)


def _prepare(c):
    c.group = _join(c, cohort)
    assert len(c.group.all_gather(b'', name='first')) == c.size


async def _prepare_aio(c):
    c.group = await _join(c, cohort.aio)
    assert len(await c.group.all_gather(b'', name='first')) == c.size


def _close_aio(c, runner):
    # An object of cohort.aio belongs to event loops; another thread asks the loop.
    runner.get_loop().call_soon_threadsafe(c.group.release)


async def _nothing():
    return None


def _add_group(name, kind, run, expect, before=None, **facts):
    """`run` returns a value, or with cohort.aio the coroutine of one."""
    def prepare(c):
        _prepare(c)
        if before is not None:
            before(c)

    async def prepare_aio(c):
        await _prepare_aio(c)
        if before is not None:
            await before(c)

    async def run_aio(c):
        # A method that is no coroutine returns its value.
        result = run(c)
        return await result if hasattr(result, '__await__') else result
    shared = {'name': name, 'kind': kind, 'form': 'self', 'expect': expect,
              'follow': lambda c: c.group.all_gather(c.object(), name='later'),
              'follow_expected': lambda c: c.objects(),
              'rejoin': lambda c: c.group.rejoin(4), 'leave': lambda c: c.group.close()}
    add(**{**shared, 'front': 'ProcessGroup', 'mode': 'block', 'run': run, 'prepare': prepare,
           'close': lambda c, _: c.group.close(), **facts})
    add(**{**shared, 'front': 'aio.ProcessGroup', 'mode': 'aio', 'run': run_aio,
           'prepare': prepare_aio, 'close': _close_aio, 'is_async': True, **facts})


def _by_rank(subject, peer):
    return lambda c: subject(c) if c.rank == 0 else peer(c)


def _nobody(_):
    return None


_add_group('barrier', ROUND, lambda c: c.group.barrier(**_round(c)), _nobody, wrong=_MEMBERS)
_add_group('broadcast', ROOTED,
           lambda c: c.group.broadcast(c.object(1) if c.rank == 1 else None, c.at(1), **_round(c)),
           lambda c: c.object(1), wrong=('rank', 'type') + _MEMBERS, peer_waits=False, sender=1)
_add_group('all_gather', ROUND, lambda c: c.group.all_gather(c.object(), **_round(c)),
           lambda c: c.objects(), wrong=('type',) + _MEMBERS)
_add_group('gather', ROUND, lambda c: c.group.gather(c.object(), c.at(0), **_round(c)),
           lambda c: c.objects() if c.rank == 0 else [], wrong=('type', 'rank') + _MEMBERS,
           peer_waits=False)
_add_group('scatter', ROOTED,
           lambda c: c.group.scatter(c.objects() if c.rank == 1 else (), c.at(1), **_round(c)),
           lambda c: c.object(), wrong=('rank', 'type') + _MEMBERS, peer_waits=False, sender=1)
_add_group('vote', ROUND, lambda c: c.group.vote(c.value(c.rank), cohort.VoteOp.MIN, **_round(c)),
           lambda c: (c.value(0), ()), wrong=_MEMBERS)
_add_group('receive', MAILBOX, _by_rank(
    lambda c: c.group.receive(c.at(1), **_limit(c)),
    lambda c: c.group.send(c.object(1), 0, **_limit(c))),
           _by_rank(lambda c: c.object(1), _nobody), wrong=('rank',), peer_waits=False)
_add_group('receive_any', MAILBOX, _by_rank(
    lambda c: c.group.receive_any(**_limit(c)),
    lambda c: c.group.send(c.object(1), 0, **_limit(c))),
           _by_rank(lambda c: (c.object(1), 1), _nobody), peer_waits=False)
# All ranks need the ids.
_add_group('fetch_unique_ids', ROUND, _by_rank(
    lambda c: c.group.fetch_unique_ids(f'ids-{c.step}', **_limit(c)),
    lambda c: c.group.publish_unique_ids(f'ids-{c.step}', [c.object(1)])),
           _by_rank(lambda c: [c.object(1)], _nobody), peer_waits=False)
_add_group('send', REQUEST, _by_rank(lambda c: c.group.send(c.object(), c.at(1), **_limit(c)),
                                     lambda c: _nobody(c)), _nobody,
           wrong=('rank', 'type'), waits=False, peer_waits=False)
for _name, _run in {
        'describe': lambda c: c.group.describe(),
        'who_is_missing': lambda c: c.group.who_is_missing(),
        'expire_data': lambda c: c.group.expire_data(),
        'report_error': lambda c: c.group.report_error('for the matrix'),
        'report_progress': lambda c: c.group.report_progress(c.step, 'step'),
        'publish_unique_ids': lambda c: c.group.publish_unique_ids(
            f'own-{c.step}-{c.rank}-{c.variant}', [c.object()]),
        'cancel_barrier': lambda c: c.group.cancel_barrier('open', 'for the matrix'),
}.items():
    _add_group(_name, REQUEST, _by_rank(_run, _nobody), lambda c: ANY, waits=False,
               peer_waits=False, wrong=('type',) if _name == 'publish_unique_ids' else ())


# --- Store. Rank 0 waits for what another rank writes.


def _prepare_store(c):
    c.group = cohort.Store(c.address)
    c.group.put(f'{c.name}/{c.rank}', b'here')


async def _prepare_aio_store(c):
    c.group = cohort.aio.Store(c.address)
    await c.group.put(f'{c.name}/{c.rank}', b'here')


def _key(c, kind='key'):
    if c.variant == 'type':
        return 5
    return f'{c.name}/{kind}-{c.step}'


def _add_store(name, kind, run, expect, before=None, run_aio=None, before_aio=None, **facts):
    def prepare(c):
        _prepare_store(c)
        if before is not None and c.rank == 0:
            before(c)

    async def prepare_aio(c):
        await _prepare_aio_store(c)
        if before_aio is not None and c.rank == 0:
            await before_aio(c)

    async def run_of_aio(c):
        result = (run_aio or run)(c)
        return await result if hasattr(result, '__await__') else result

    async def follow_aio(c):
        await c.group.put(f'{c.name}/later-{c.rank}', c.object())
        return await c.group.get(f'{c.name}/later-{c.rank}')

    def follow(c):
        c.group.put(f'{c.name}/later-{c.rank}', c.object())
        return c.group.get(f'{c.name}/later-{c.rank}')
    shared = {'name': name, 'kind': kind, 'form': 'self', 'expect': expect,
              'follow_expected': lambda c: c.object(), 'peer_waits': False}
    add(**{**shared, 'front': 'Store', 'mode': 'block', 'run': run, 'prepare': prepare,
           'follow': follow, 'rejoin': _nobody, 'leave': lambda c: c.group.close(),
           'close': lambda c, _: c.group.close(), **facts})
    add(**{**shared, 'front': 'aio.Store', 'mode': 'aio', 'run': run_of_aio, 'prepare': prepare_aio,
           'follow': follow_aio, 'rejoin': lambda c: _nothing(),
           'leave': lambda c: c.group.close(), 'close': _close_aio, 'is_async': True, **facts})


def _wait(c):
    if c.coordinator_goes:
        return {'wait': _LONG, 'timeout': c.timeout}
    return {'wait': _LONG if c.timeout is None else c.timeout}


def _put(c):
    return c.group.put(_key(c), c.object(1))


def _missed(c):
    """The peer has not written: a wait of a store then ends without an error."""
    return c.timeout is not None and c.timeout < 1


_add_store('get', KEY, _by_rank(lambda c: c.group.get(_key(c), **_wait(c)), _put),
           _by_rank(lambda c: None if _missed(c) else c.object(1), lambda c: ANY), wrong=('type',))
_add_store('get_many', KEY, _by_rank(
    lambda c: c.group.get_many([_key(c)], **_wait(c)), _put), lambda c: ANY, wrong=('type',))
_add_store('missing', KEY, _by_rank(
    lambda c: c.group.missing([_key(c)], **_wait(c)), _put),
           _by_rank(lambda c: [_key(c)] if _missed(c) else [], lambda c: ANY), wrong=('type',))
_add_store('queue_pop', KEY, _by_rank(
    lambda c: c.group.queue_pop(_key(c), **_wait(c)),
    lambda c: c.group.queue_push(_key(c), c.object(1))),
           _by_rank(lambda c: None if _missed(c) else c.object(1), lambda c: ANY), wrong=('type',))


def _patience(c):
    """How long the coordinator may be away: the default is longer than a pair may last."""
    return {'reconnect_timeout': c.patience} if c.coordinator_goes else {}


def _watch(c):
    c.made['watch'] = c.group.watch(f'{c.name}/key', timeout=None, **_patience(c))


async def _watch_aio(c):
    c.made['watch'] = await c.group.watch(f'{c.name}/key', timeout=None, **_patience(c))


async def _next_aio(c):
    if c.rank:
        return await _put(c)
    event = await c.made['watch'].__anext__()
    return event.key, event.value


def _next(c):
    event = next(c.made['watch'])
    return event.key, event.value


_add_store('watch', KEY, _by_rank(_next, _put),
           _by_rank(lambda c: (_key(c), c.object(1)), lambda c: ANY), before=_watch,
           before_aio=_watch_aio, run_aio=_next_aio)

for _name, _run in {
        'put': lambda c: c.group.put(_key(c), c.object(), **_limit(c)),
        'multi_put': lambda c: c.group.multi_put({_key(c): c.object()}, **_limit(c)),
        'get_now': lambda c: c.group.get(_key(c), **_limit(c)),
        'range': lambda c: c.group.range(_key(c), **_limit(c)),
        'delete': lambda c: c.group.delete(_key(c), **_limit(c)),
        'add': lambda c: c.group.add(_key(c, 'count'), 3, **_limit(c)),
        'append': lambda c: c.group.append(_key(c), c.object(), **_limit(c)),
        'queue_push': lambda c: c.group.queue_push(_key(c, 'queue'), c.object(), **_limit(c)),
        'queue_len': lambda c: c.group.queue_len(_key(c, 'queue'), **_limit(c)),
}.items():
    _add_store(_name, REQUEST, _by_rank(_run, _nobody), lambda c: ANY, waits=False, wrong=('type',))
