"""The calls of cohort.torch, cohort.regions and cohort.vllm: sync, async, and by a future.

One file, though long: a table, of a few lines for each call.
"""

import datetime
import os

import numpy as np

from matrix.calls import (ANY, COLLECTIVE, MAILBOX, MESSAGE, REQUEST, ROOTED, ROUND, Context,
                          add)

_LARGE = 1 << 19
_MISFIT = ('type', 'shape')

# Only the ranks of these calls have PyTorch.
# pylint: disable=import-outside-toplevel


def _torch():
    import torch
    return torch


def _dist():
    import torch.distributed as dist
    return dist


# --- torch.distributed.


def _prepare(c: Context) -> None:
    import cohort.torch as cohort_torch
    os.environ['COHORT_ADDRESS'] = c.address
    _dist().init_process_group(
        'cohort', init_method=f'file://{c.folder}/store', rank=c.rank, world_size=c.size,
        timeout=datetime.timedelta(seconds=c.patience), pg_options=cohort_torch.Options())
    first = _torch().ones(3)
    _dist().all_reduce(first)
    assert first[0] == c.size


def _tensor(c, elements=0, value=None):
    """This rank's tensor; a wrong one if the variant says so."""
    torch = _torch()
    if c.variant == 'type':
        return torch.ones(3, dtype=torch.float64, device='meta')
    elements = (elements or c.elements) + 2 * (c.variant == 'shape')
    return torch.full((elements,), float(c.value(c.rank) if value is None else value),
                      dtype=torch.float64)


def _list(c, elements=0):
    """Tensors to receive into, one for each rank; one less if the variant is "list"."""
    torch = _torch()
    return [torch.zeros(elements or c.elements, dtype=torch.float64)
            for _ in range(c.size - (c.variant == 'list'))]


def _op(c):
    # Numbers with a fraction have no bits to combine.
    return _dist().ReduceOp.BAND if c.variant == 'op' else _dist().ReduceOp.SUM


def _full(c, value, elements=0):
    return c.full(value, elements)


def _values(c):
    return [c.value(rank) for rank in range(c.size)]


def _finish(c, work, result):
    """Waits for a call as its mode does, and returns the result."""
    if c.mode == 'async':
        work.wait()
    elif c.mode == 'future':
        work.get_future().wait()
    return result


def _follow(c):
    tensor = _torch().full((3,), float(c.value(c.rank)), dtype=_torch().float64)
    _dist().all_reduce(tensor)
    return tensor


_SHARED = {
    'form': 'self', 'needs_torch': True, 'prepare': _prepare, 'follow': _follow,
    'follow_expected': lambda c: c.full(c.total, 3),
    'rejoin': lambda c: _dist().group.WORLD.cohort_group.rejoin(4),
    'leave': lambda c: _dist().destroy_process_group(),
    'close': lambda c, _: _dist().destroy_process_group(), 'front': 'torch'}


def _add(name, kind, start, expect, modes=('sync', 'async', 'future'), **facts):
    """`start(c, **options)` begins the call and returns its work and its result."""
    def run(c):
        if c.timeout is not None:
            _dist().group.WORLD.set_timeout(datetime.timedelta(seconds=c.timeout))
        options = {} if c.mode == 'sync' else {'async_op': True}
        work, result = start(c, **options)
        if c.started:
            return work
        return _finish(c, work, result)
    for mode in modes:
        add(**{**_SHARED, 'name': name, 'kind': kind, 'mode': mode, 'run': run, 'expect': expect,
               **facts})


def _at(rank, value):
    return lambda c: value(c) if c.rank == rank else ANY


def _in_place(call):
    def start(c, **options):
        tensor = _tensor(c)
        return call(c, tensor, **options), tensor
    return start


_add('all_reduce', COLLECTIVE,
     _in_place(lambda c, t, **o: _dist().all_reduce(t, op=_op(c), **o)),
     lambda c: _full(c, c.total), wrong=_MISFIT + ('op',))
_add('reduce', COLLECTIVE, _in_place(lambda c, t, **o: _dist().reduce(t, c.at(0), op=_op(c), **o)),
     _at(0, lambda c: _full(c, c.total)), wrong=_MISFIT + ('op', 'rank'), peer_waits=False)
_add('broadcast', COLLECTIVE, _in_place(lambda c, t, **o: _dist().broadcast(t, c.at(1), **o)),
     lambda c: _full(c, c.value(1)), wrong=_MISFIT + ('rank',), peer_waits=False)


def _all_gather(c, **options):
    outputs = _list(c)
    return _dist().all_gather(outputs, _tensor(c), **options), outputs


_add('all_gather', COLLECTIVE, _all_gather, lambda c: [_full(c, each) for each in _values(c)],
     wrong=_MISFIT + ('list',))


def _all_gather_single(c, **options):
    output = _torch().zeros(c.size * c.elements, dtype=_torch().float64)
    return _dist().all_gather_into_tensor(output, _tensor(c), **options), output


_add('all_gather_into_tensor', COLLECTIVE, _all_gather_single, lambda c: c.parts(_values(c)),
     wrong=_MISFIT)


def _reduce_scatter(c, **options):
    output = _tensor(c)
    inputs = [each + c.value(c.rank) for each in _list(c)]
    return _dist().reduce_scatter(output, inputs, op=_op(c), **options), output


_add('reduce_scatter', COLLECTIVE, _reduce_scatter, lambda c: _full(c, c.total),
     wrong=_MISFIT + ('list', 'op'))


def _reduce_scatter_single(c, **options):
    output = _torch().zeros(c.elements, dtype=_torch().float64)
    return _dist().reduce_scatter_tensor(output, _tensor(c, c.size * c.elements), op=_op(c),
                                         **options), output


_add('reduce_scatter_tensor', COLLECTIVE, _reduce_scatter_single, lambda c: _full(c, c.total),
     wrong=_MISFIT + ('op',))


def _all_to_all(c, **options):
    outputs = _list(c)
    return _dist().all_to_all(outputs, [_tensor(c) for _ in range(c.size)], **options), outputs


_add('all_to_all', COLLECTIVE, _all_to_all, lambda c: [_full(c, each) for each in _values(c)],
     wrong=_MISFIT + ('list',))


def _all_to_all_single(c, **options):
    splits = [c.elements] * c.size
    if c.variant == 'list':
        splits[0] += 1
    output = _torch().zeros(c.size * c.elements, dtype=_torch().float64)
    return _dist().all_to_all_single(output, _tensor(c, c.size * c.elements), None, splits,
                                     **options), output


_add('all_to_all_single', COLLECTIVE, _all_to_all_single, lambda c: c.parts(_values(c)),
     wrong=_MISFIT + ('list',))


def _gather(c, **options):
    outputs = _list(c) if c.rank == 0 else None
    return _dist().gather(_tensor(c), outputs, dst=c.at(0), **options), outputs


_add('gather', COLLECTIVE, _gather, _at(0, lambda c: [_full(c, each) for each in _values(c)]),
     wrong=_MISFIT + ('rank',), peer_waits=False)


def _scatter(c, **options):
    output = _tensor(c, value=0)
    inputs = None
    if c.rank == 1:
        inputs = [_torch().full((c.elements,), float(each), dtype=_torch().float64)
                  for each in _values(c)]
    return _dist().scatter(output, inputs, src=c.at(1), **options), output


_add('scatter', COLLECTIVE, _scatter, lambda c: _full(c, c.value(c.rank)),
     wrong=_MISFIT + ('rank',), peer_waits=False)
_add('barrier', COLLECTIVE, lambda c, **options: (_dist().barrier(**options), None), lambda c: None,
     modes=('sync', 'async'))


def _monitored(c, **_):
    limit = datetime.timedelta(seconds=c.patience if c.timeout is None else c.timeout)
    return _dist().monitored_barrier(timeout=limit), None


# It goes through the coordinator.
_add('monitored_barrier', ROUND, _monitored, lambda c: None, modes=('sync',))


def _object(c):
    """This rank's object; one that has no pickle if the variant is "type"."""
    return (each for each in ()) if c.variant == 'type' else {'step': c.value(c.rank)}


def _gather_objects(c, **_):
    outputs = [None] * c.size
    return _dist().all_gather_object(outputs, _object(c)), outputs


_add('all_gather_object', COLLECTIVE, _gather_objects,
     lambda c: [{'step': each} for each in _values(c)], modes=('sync',), wrong=('type',))


def _broadcast_objects(c, **_):
    objects = [c.value(1) if c.rank == 1 else None, 'text']
    return _dist().broadcast_object_list(objects, c.at(1)), objects


def _scatter_objects(c, **_):
    output = [None]
    _dist().scatter_object_list(output, _values(c), c.at(1))
    return None, output


def _gather_objects_at(c, **_):
    outputs = [None] * c.size if c.rank == 0 else None
    return _dist().gather_object(_object(c), outputs, c.at(0)), outputs


_add('broadcast_object_list', COLLECTIVE, _broadcast_objects, lambda c: [c.value(1), 'text'],
     modes=('sync',), wrong=('rank',), peer_waits=False)
_add('scatter_object_list', COLLECTIVE, _scatter_objects, lambda c: [c.value(c.rank)],
     modes=('sync',), wrong=('rank',), peer_waits=False)
_add('gather_object', COLLECTIVE, _gather_objects_at,
     lambda c: [{'step': each} for each in _values(c)] if c.rank == 0 else None, modes=('sync',),
     wrong=('type', 'rank'))

# --- Messages.


def _prepare_messages(c):
    """A first message, so that the channel of the two ranks is open."""
    _prepare(c)
    if c.rank < 2:
        work = _dist().isend(_torch().ones(1), 1 - c.rank)
        _dist().recv(_torch().ones(1), 1 - c.rank)
        work.wait()


def _follow_messages(c):
    """A collective, and a message in each direction."""
    total, theirs = _follow(c), None
    if c.rank < 2:
        mine = _torch().full((3,), float(c.value(c.rank)), dtype=_torch().float64)
        theirs = _torch().zeros(3, dtype=_torch().float64)
        work = _dist().isend(mine, 1 - c.rank)
        _dist().recv(theirs, 1 - c.rank)
        work.wait()
    return [total, theirs]


_MESSAGE = {'prepare': _prepare_messages, 'follow': _follow_messages, 'are_told': True,
            'follow_expected': lambda c: [
                c.full(c.total, 3), c.full(c.value(1 - c.rank), 3) if c.rank < 2 else None]}


def _message(c, is_sender, elements=0, **options):
    dist = _dist()
    tensor = _tensor(c, elements)
    other = 1 - c.rank
    if c.mode == 'sync':
        return (dist.send if is_sender else dist.recv)(tensor, other), tensor
    return (dist.isend if is_sender else dist.irecv)(tensor, other), tensor


_add('recv', MESSAGE, lambda c, **o: _message(c, c.rank == 1), lambda c: _full(c, c.value(1)),
     wrong=_MISFIT, peer_waits=False, sender=1, **_MESSAGE)
_add('send', MESSAGE, lambda c, **o: _message(c, c.rank == 0, _LARGE),
     lambda c: _full(c, c.value(0), _LARGE), wrong=_MISFIT, sender=0, **_MESSAGE)


def _any_source(c, **_):
    if c.rank == 1:
        return _message(c, True)
    tensor = _tensor(c)
    return _dist().recv(tensor), tensor


_add('recv_any', MESSAGE, _any_source, lambda c: _full(c, c.value(1)), modes=('sync',),
     wrong=_MISFIT, peer_waits=False, **_MESSAGE)


def _batch(c, **_):
    dist = _dist()
    received = _torch().zeros(c.elements, dtype=_torch().float64)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, _tensor(c), 1 - c.rank),
                                    dist.P2POp(dist.irecv, received, 1 - c.rank)])

    class All:
        """The works of the batch."""

        def wait(self):
            """Waits for each."""
            for work in works:
                work.wait()
    return All(), received


_add('batch_isend_irecv', MESSAGE, _batch, lambda c: _full(c, c.value(1 - c.rank)), modes=('async',),
     wrong=('type',), **_MESSAGE)

# --- cohort.regions, on a cohort.Group.


def _add_region(name, call, expect):
    def prepare(c):
        c.group = c.join()
        assert c.group.all_reduce(np.ones(3))[0] == c.size

    def run(c):
        from cohort import regions
        return call(regions, _tensor(c, 2 * 3 * c.elements).reshape(2, -1)
                    if c.variant == 'right' else _tensor(c), c.group)
    add(**{**_SHARED, 'name': name, 'front': 'regions', 'kind': COLLECTIVE, 'mode': 'block',
           'run': run, 'expect': expect, 'prepare': prepare,
           'follow': lambda c: c.group.all_reduce(c.full(c.value(c.rank), 3)),
           'rejoin': lambda c: c.group.rejoin(4), 'leave': lambda c: c.group.close(),
           'close': lambda c, _: c.group.close(), 'wrong': ('type',)})


_add_region('reduce_from', lambda r, x, g: r.reduce_from_tensor_parallel(x, g),
            lambda c: _full(c, c.total, 6 * c.elements))
_add_region('all_to_all', lambda r, x, g: r.all_to_all(x.reshape(-1)[:g.size], g),
            lambda c: np.array(_values(c), float))

# --- cohort.vllm.StatelessProcessGroup.


def _prepare_vllm(c):
    from cohort.vllm import StatelessProcessGroup
    c.group = StatelessProcessGroup.create(
        '127.0.0.1', 1, c.rank, c.size, store_timeout=c.patience, address=c.address, name=c.name)
    assert len(c.group.all_gather_obj(None)) == c.size


def _add_vllm(name, kind, run, expect, **facts):
    add(**{**_SHARED, 'name': name, 'front': 'vllm', 'kind': kind, 'mode': 'block', 'run': run,
           'expect': expect, 'prepare': _prepare_vllm,
           'follow': lambda c: c.group.all_gather_obj(c.value(c.rank)), 'follow_expected': _values,
           'rejoin': lambda c: None, 'leave': lambda c: c.group.close(),
           'close': lambda c, _: c.group.close(), **facts})


def _by_rank(subject, peer):
    return lambda c: subject(c) if c.rank == 0 else peer(c)


_add_vllm('all_reduce', COLLECTIVE, lambda c: c.group.all_reduce(_tensor(c)),
          lambda c: _full(c, c.total), wrong=_MISFIT)
_add_vllm('broadcast', COLLECTIVE, lambda c: c.group.broadcast(_tensor(c), 1),
          lambda c: _full(c, c.value(1)), wrong=_MISFIT, peer_waits=False)
_add_vllm('gather', COLLECTIVE, lambda c: c.group.gather(_tensor(c), 0),
          _at(0, lambda c: [_full(c, each) for each in _values(c)]), wrong=_MISFIT, peer_waits=False)
_add_vllm('barrier', COLLECTIVE, lambda c: c.group.barrier(
    c.patience if c.timeout is None else c.timeout), lambda c: None)
_add_vllm('broadcast_obj', ROOTED, lambda c: c.group.broadcast_obj(
    object() if c.variant == 'type' else {'a': c.value(1)}, 1),
          lambda c: {'a': c.value(1)}, peer_waits=False, wrong=('type',), sender=1)
_add_vllm('all_gather_obj', ROUND, lambda c: c.group.all_gather_obj(
    object() if c.variant == 'type' else c.value(c.rank)), _values, wrong=('type',))
_add_vllm('recv_obj', MAILBOX, _by_rank(lambda c: c.group.recv_obj(1),
                                        lambda c: c.group.send_obj([c.value(1)], 0)),
          _by_rank(lambda c: [c.value(1)], lambda c: None), peer_waits=False)
_add_vllm('recv', MAILBOX, _by_rank(lambda c: c.group.recv(_tensor(c), 1),
                                    lambda c: c.group.send(_tensor(c), 0)),
          _by_rank(lambda c: _full(c, c.value(1)), lambda c: None), peer_waits=False)
_add_vllm('send_obj', REQUEST, _by_rank(lambda c: c.group.send_obj(
    object() if c.variant == 'type' else 5, 1), lambda c: None), lambda c: ANY, wrong=('type',),
          waits=False, peer_waits=False)

