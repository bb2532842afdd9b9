"""The calls of cohort.Group and of all that runs on one: in the three forms of a rank."""

import numpy as np

import cohort
from cohort import moe
from matrix.calls import (ANY, COLLECTIVE, JOIN, MAILBOX, MESSAGE, QUEUE, REQUEST, ROOTED, ROUND, Context, add)

FORMS = ('self', 'worker', 'attached')
# The bytes of a message that waits for its receiver.
_LARGE = 1 << 19
_MISFIT = ('type', 'shape')


# --- What all of them share.

def prepare(c: Context) -> None:
    """Joins, and makes a first collective."""
    c.group = c.join()
    assert c.group.all_reduce(np.ones(3))[0] == c.size


def follow(c: Context):
    """A later collective."""
    return c.group.all_reduce(c.full(c.value(c.rank), 3))


def follow_expected(c: Context):
    """Its value."""
    return c.full(c.total, 3)


def close(c: Context, _):
    """Closes the group from another thread."""
    c.group.close()


def _add(name, kind, run, expect, *, modes=('block',), front='group', before=None, **facts):
    def prepared(c):
        prepare(c)
        if before is not None:
            before(c)
    for form in FORMS:
        for mode in modes:
            add(**{'name': name, 'front': front, 'kind': kind, 'mode': mode, 'form': form, 'run': run,
                   'expect': expect, 'prepare': prepared, 'follow': follow,
                   'follow_expected': follow_expected, 'rejoin': lambda c: c.group.rejoin(4),
                   'leave': lambda c: c.group.close(), 'close': close, **facts})


def at(rank, value):
    """The expected value of one rank; the others get None."""
    return lambda c: value(c) if c.rank == rank else None


def _all(c):
    return [c.value(rank) for rank in range(c.size)]


# --- Collectives.

_ALL_MODES = ('block', 'pending', 'await')

_add('all_reduce', COLLECTIVE, lambda c: c.group.all_reduce(c.array(), **c.options()),
     lambda c: c.full(c.total), modes=_ALL_MODES, wrong=_MISFIT)
_add('all_reduce_in_place', COLLECTIVE,
     lambda c: c.group.all_reduce(x := c.array(), out=x, op='max', **c.options()),
     lambda c: c.full(c.value(c.size - 1)), modes=_ALL_MODES, wrong=_MISFIT)
_add('reduce', COLLECTIVE, lambda c: c.group.reduce(c.array(), c.at(0), **c.options()),
     at(0, lambda c: c.full(c.total)), modes=_ALL_MODES, wrong=_MISFIT + ('rank',), peer_waits=False)
_add('broadcast', COLLECTIVE, lambda c: c.group.broadcast(c.array(), c.at(1), **c.options()),
     lambda c: c.full(c.value(1)), modes=_ALL_MODES, wrong=_MISFIT + ('rank',), peer_waits=False)
_add('all_gather', COLLECTIVE, lambda c: c.group.all_gather(c.array(), **c.options()),
     lambda c: c.parts(_all(c)), modes=_ALL_MODES, wrong=_MISFIT)
_add('reduce_scatter', COLLECTIVE,
     lambda c: c.group.reduce_scatter(c.array(6 * c.elements), **c.options()),
     lambda c: c.full(c.total, 6 * c.elements // c.size), modes=_ALL_MODES, wrong=_MISFIT)
_add('all_to_all', COLLECTIVE, lambda c: c.group.all_to_all(c.array(6 * c.elements), **c.options()),
     lambda c: c.parts(_all(c), 6 * c.elements // c.size), modes=_ALL_MODES, wrong=_MISFIT)
_add('gather', COLLECTIVE, lambda c: c.group.gather(c.array(), c.at(0), **c.options()),
     at(0, lambda c: c.parts(_all(c))), modes=_ALL_MODES, wrong=_MISFIT + ('rank',),
     peer_waits=False)
_add('scatter', COLLECTIVE,
     lambda c: c.group.scatter(c.parts(_all(c)) if c.rank == 1 else None, c.at(1), c.zeros(),
                               **c.options()),
     lambda c: c.full(c.value(c.rank)), modes=_ALL_MODES, wrong=_MISFIT + ('rank',),
     peer_waits=False)

_add('all_reduce_coalesced', COLLECTIVE,
     lambda c: c.group.all_reduce_coalesced([c.full(1), c.array()], **c.options()),
     lambda c: [c.full(c.size), c.full(c.total)], wrong=_MISFIT)
_add('barrier', COLLECTIVE, lambda c: c.group.barrier(**c.options()), lambda c: None)
_add('exchange_sizes', COLLECTIVE,
     lambda c: c.group.exchange_sizes(-5 if c.variant == 'shape' else c.value(c.rank), **c.options()),
     _all, wrong=('shape',))


def _sizes(c):
    return [c.elements + rank for rank in range(c.size)]


def _ragged(c):
    return np.concatenate([c.full(c.value(rank), _sizes(c)[rank]) for rank in range(c.size)])


_add('all_gather_v', COLLECTIVE,
     lambda c: c.group.all_gather_v(c.array(_sizes(c)[c.rank]), _sizes(c), **c.options()), _ragged,
     wrong=_MISFIT)
_add('gather_v', COLLECTIVE,
     lambda c: c.group.gather_v(c.array(_sizes(c)[c.rank]), _sizes(c), c.at(0), **c.options()),
     at(0, _ragged), wrong=_MISFIT + ('rank',), peer_waits=False)
_add('reduce_scatter_v', COLLECTIVE,
     lambda c: c.group.reduce_scatter_v(c.array(sum(_sizes(c))), _sizes(c), **c.options()),
     lambda c: c.full(c.total, _sizes(c)[c.rank]), wrong=_MISFIT)
_add('all_to_all_v', COLLECTIVE,
     lambda c: c.group.all_to_all_v(c.array(sum(_sizes(c))), _sizes(c),
                                    [_sizes(c)[c.rank]] * c.size, **c.options()),
     lambda c: c.parts(_all(c), _sizes(c)[c.rank]), wrong=_MISFIT)

# --- On top of a group, still called by all ranks.

_add('ring_shift', COLLECTIVE, lambda c: cohort.ring_shift(c.group, c.array(), **c.options()),
     lambda c: c.full(c.value((c.rank - 1) % c.size)), front='cohort')
_add('dispatch', COLLECTIVE, lambda c: moe.dispatch(c.group, c.array(), **c.options()).hidden,
     lambda c: c.parts(_all(c)), front='moe', wrong=('type',))
_add('combine', COLLECTIVE,
     lambda c: moe.combine(c.group, c.array(c.size * c.elements), [c.elements] * c.size,
                           **c.options()),
     lambda c: c.full(c.total), front='moe', wrong=_MISFIT)


def _experts(c):
    """Each rank sends a token to the expert of each rank, and gets it back twice as large."""
    placement = moe.ExpertPlacement.blocks(c.size, c.size)
    hidden = np.full((c.size, 3), c.value(c.rank), np.float32)
    ids = np.arange(c.size, dtype=np.int32).reshape(c.size, 1)
    if c.variant == 'shape':
        ids = ids + 50
    elif c.variant == 'type':
        hidden = np.array([None])
    batch = moe.dispatch_to_experts(c.group, hidden, ids, np.ones((c.size, 1), np.float32), placement,
                                    **c.options())
    # A rank may have rows without an expert of its own.
    outputs = 2 * batch.hidden * batch.weights.sum(axis=1, keepdims=True)
    return moe.combine_from_experts(c.group, batch, outputs, **c.options())


_add('experts', COLLECTIVE, _experts,
     lambda c: np.full(c.size * 3, 2 * c.value(c.rank), np.float32), front='moe', wrong=_MISFIT)
_add('broadcast_map', COLLECTIVE,
     lambda c: c.group.broadcast_map(
         {'x': c.full(c.value(1)), 'step': {1, 2} if c.variant == 'type' else c.step}
         if c.rank == 1 else None, c.at(1), **c.options()),
     lambda c: {'x': c.full(c.value(1)), 'step': c.step}, wrong=('rank',), peer_waits=False)


def _made_group(groups, c):
    """The sum in the group that was made."""
    made = groups[0] if isinstance(groups, list) else groups['tensor']
    c.made['group'] = groups
    return made.all_reduce(c.full(c.value(c.rank), 3))


_add('create_groups', COLLECTIVE,
     lambda c: _made_group(cohort.create_groups(
         c.group, [list(range(c.size + (c.variant == 'shape')))], timeout=c.timeout or c.patience), c),
     lambda c: c.full(c.total, 3), front='cohort', wrong=('shape',))
_add('create_layout', COLLECTIVE,
     lambda c: _made_group(cohort.create_layout(
         c.group, cohort.make_layout(c.size + (c.variant == 'shape'), {'tp': c.size + (
             c.variant == 'shape')}), kinds=['tensor'], separate=['tensor'],
         timeout=c.timeout or c.patience), c),
     lambda c: c.full(c.total, 3), front='cohort', wrong=('shape',))


def _make_queue(c):
    c.made['queue'] = cohort.MessageQueue(c.group, c.at(1), block_bytes=1 << 16, blocks=2,
                                          timeout=c.patience, join_timeout=c.timeout or c.patience)
    return c.made['queue'].is_writer


_add('create', COLLECTIVE, _make_queue, lambda c: c.rank == 1, front='MessageQueue',
     wrong=('rank',))

# --- Messages between ranks 0 and 1.


def _by_rank(subject, peer):
    return lambda c: subject(c) if c.rank == 0 else peer(c)


_none = _by_rank(lambda c: None, lambda c: None)

_add('receive', MESSAGE, _by_rank(lambda c: c.group.receive(c.zeros(), 1, **c.options()),
                                  lambda c: c.group.send(c.array(), 0, **c.options())),
     _by_rank(lambda c: c.full(c.value(1)), lambda c: None), wrong=_MISFIT, peer_waits=False,
     sender=1)
_add('send', MESSAGE, _by_rank(lambda c: c.group.send(c.array(_LARGE), 1, **c.options()),
                               lambda c: c.group.receive(c.zeros(_LARGE), 0, **c.options())),
     _by_rank(lambda c: None, lambda c: c.full(c.value(0), _LARGE)), wrong=_MISFIT, sender=0)


def _exchange(c):
    received = np.zeros(c.elements)
    c.group.exchange([(c.array(), 1 - c.rank)], [(received, 1 - c.rank)], **c.options())
    return received


_add('exchange', MESSAGE, _exchange, lambda c: c.full(c.value(1 - c.rank)), wrong=_MISFIT)


def _await_message(c):
    source, _, count = c.group.await_message([c.at(1)], **c.options())
    return source, count, c.group.receive(np.zeros(c.elements), 1)


_add('await_message', MESSAGE, _by_rank(_await_message, lambda c: c.group.send(c.array(), 0)),
     _by_rank(lambda c: (1, c.elements, c.full(c.value(1))), lambda c: None), peer_waits=False)


def _map(c):
    return {'x': c.full(c.value(1)), 'note': ['text', c.step]}


_add('receive_map', MESSAGE, _by_rank(lambda c: c.group.receive_map(1, **c.options()),
                                      lambda c: c.group.send_map(_map(c), 0, **c.options())),
     _by_rank(_map, lambda c: None), peer_waits=False)


def _large_map(c):
    return {'x': {1, 2} if c.variant == 'type' else c.full(c.value(0), _LARGE)}


_add('send_map', MESSAGE, _by_rank(lambda c: c.group.send_map(_large_map(c), 1, **c.options()),
                                   lambda c: c.group.receive_map(0, **c.options())),
     _by_rank(lambda c: None, _large_map), wrong=('type',), sender=0, is_told=True)

# Rank 0 is the first stage.


def _open_pipeline(c):
    c.made['pipeline'] = cohort.Pipeline(c.group)


def _pipe(c):
    return c.made['pipeline']


_add('recv_backward', MESSAGE, _by_rank(lambda c: _pipe(c).recv_backward(**c.options()),
                                        lambda c: _pipe(c).send_backward(c.array(), **c.options())),
     _by_rank(lambda c: [c.full(c.value(1))], lambda c: None), front='Pipeline',
     before=_open_pipeline, peer_waits=False, wrong=('type',), sender=1, is_told=True)
_add('send_forward', MESSAGE,
     _by_rank(lambda c: _pipe(c).send_forward(c.array(_LARGE), **c.options()),
              lambda c: _pipe(c).recv_forward(**c.options())),
     _by_rank(lambda c: None, lambda c: [c.full(c.value(0), _LARGE)]), front='Pipeline',
     before=_open_pipeline, wrong=('type',), sender=0, is_told=True)
_add('send_forward_recv_backward', MESSAGE,
     _by_rank(lambda c: _pipe(c).send_forward_recv_backward(c.array(), **c.options()),
              lambda c: _pipe(c).send_backward_recv_forward(c.array(), **c.options())),
     _by_rank(lambda c: [c.full(c.value(1))], lambda c: [c.full(c.value(0))]), front='Pipeline',
     before=_open_pipeline)

# --- Queues of messages, between ranks 0 and 1 or all of them.


def _open_queue(writer):
    def before(c):
        c.made['queue'] = cohort.MessageQueue(c.group, writer, block_bytes=1 << 14, blocks=2,
                                              timeout=c.patience, join_timeout=8)
    return before


def _queue(c):
    return c.made['queue']


def _limit(c):
    return {} if c.timeout is None else {'timeout': c.timeout}


def _add_queue(name, writer, run, expect, **facts):
    _add(name, QUEUE, run, expect, front='MessageQueue', before=_open_queue(writer),
         **{'leave': lambda c: _queue(c).close(), 'close': lambda c, _: _queue(c).close(), **facts})


def _view(c):
    with _queue(c).dequeue_view(**_limit(c)) as view:
        return bytes(view)


_add_queue('dequeue', 1, _by_rank(lambda c: _queue(c).dequeue(**_limit(c)),
                                  lambda c: _queue(c).enqueue(c.object(1), **_limit(c))),
           _by_rank(lambda c: c.object(1), lambda c: None), peer_waits=False)
_add_queue('dequeue_view', 1, _by_rank(_view, lambda c: _queue(c).enqueue(c.object(1), **_limit(c))),
           _by_rank(lambda c: c.object(1), lambda c: None), peer_waits=False)
_add_queue('broadcast', 1, lambda c: _queue(c).broadcast(c.object(1), **_limit(c)),
           lambda c: c.object(1), peer_waits=False)
_add_queue('dequeue_object', 1,
           _by_rank(lambda c: _queue(c).dequeue_object(**_limit(c)),
                    lambda c: _queue(c).enqueue_object([1, c.object(1)], **_limit(c))),
           _by_rank(lambda c: [1, c.object(1)], lambda c: None), peer_waits=False)
_add_queue('broadcast_object', 1, lambda c: _queue(c).broadcast_object([c.object(1)], **_limit(c)),
           lambda c: [c.object(1)], peer_waits=False)
# Larger than the ring, so that it waits for the reader.
_add_queue('enqueue', 0,
           lambda c: _queue(c).enqueue(3.5 if c.variant == 'type' else c.object(0) * 20000,
                                       **_limit(c)) if c.rank == 0
           else _queue(c).dequeue(**_limit(c)),
           _by_rank(lambda c: None, lambda c: c.object(0) * 20000), wrong=('type',))

# --- Objects, through the coordinator.

_add('broadcast_object', ROOTED,
     lambda c: c.group.broadcast_object(c.object(1) if c.rank == 1 else None, c.at(1), **c.options()),
     lambda c: c.object(1), wrong=('rank', 'type'), sender=1, peer_waits=False)
_add('all_gather_objects', ROUND,
     lambda c: c.group.all_gather_objects(c.object(), **c.options()), lambda c: c.objects(),
     wrong=('type',))
_add('receive_object', MAILBOX, _by_rank(
    lambda c: c.group.receive_object(c.at(1), **c.options()),
    lambda c: c.group.send_object(c.object(1), 0, **c.options())),
     _by_rank(lambda c: c.object(1), lambda c: None), wrong=('rank',), peer_waits=False)
_add('send_object', REQUEST, _by_rank(
    lambda c: c.group.send_object(c.object(), c.at(1), **c.options()), lambda c: None),
     lambda c: None, wrong=('rank', 'type'), waits=False, peer_waits=False)

# --- Joining.


def _join(c):
    c.group = c.join()
    return c.group.rank, c.group.all_reduce(np.ones(3))


def _abort(c):
    prepare(c)
    c.made['aborted'] = True
    if c.rank == 0:
        c.group.abort('for the matrix')


def _rejoin(c):
    c.group.rejoin(c.timeout or 8)
    return follow(c)


_add('join', JOIN, _join, lambda c: (c.rank, c.full(c.size, 3)), front='Group',
     prepare=lambda c: None, leave=lambda c: None)
_add('rejoin', JOIN, _rejoin, follow_expected, prepare=_abort)

# --- Facts, which are right at any time.

_add('facts', REQUEST,
     lambda c: (c.group.name == c.name, c.group.rank, c.group.size, c.group.device,
                len(c.group.paths), len(c.group.hosts), len(c.group.stats())),
     lambda c: (True, c.rank, c.size, 'cpu', c.size, c.size, c.size), waits=False, peer_waits=False)
_add('abort', REQUEST, lambda c: c.group.abort('for the matrix') if c.rank == 0 else None,
     lambda c: ANY, waits=False, peer_waits=False)
