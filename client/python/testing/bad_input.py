"""Tables of wrong calls, and a loop that looks for leaks."""

import asyncio
import ctypes
import gc
import os
import sys
from typing import Any, Callable, Dict, NamedTuple, Optional

import numpy as np

import cohort
from cohort import moe
from testing.coordinator import run_ranks

# All that a wrong argument may raise.
ERRORS = (ValueError, TypeError, KeyError, cohort.Error)
# A str that has no UTF-8 form.
NO_UTF8 = '\udcff'
COUNT = 1000


class Wrong(NamedTuple):
    """A wrong call of one rank, a part of its error, and the call of the other ranks, which get the
    same error. Without `right`, the error is this rank's alone."""
    call: Callable[[Any], Any]
    text: str
    right: Optional[Callable[[Any], Any]] = None


def refuse(call: Callable[[], Any], text: str) -> str:
    """Returns the error of the call, which contains `text`."""
    try:
        result = call()
    except ERRORS as error:
        assert text in str(error), error
        return str(error)
    raise AssertionError(f'no error with "{text}", but {result!r}')


async def refuse_awaited(call: Callable[[], Any], text: str) -> str:
    """As `refuse`, for a call that returns a coroutine, or raises at once."""
    try:
        result = call()
        if asyncio.iscoroutine(result):
            result = await result
    except ERRORS as error:
        assert text in str(error), error
        return str(error)
    raise AssertionError(f'no error with "{text}", but {result!r}')


def refuse_on_ranks(groups: list, wrong: Wrong, count: int = 1) -> None:
    """Rank 0 makes the wrong call, and the others make the right one, so many times."""
    def body(rank):
        call = wrong.call if rank == 0 else wrong.right
        for _ in range(count):
            message = refuse(lambda: call(groups[rank]), wrong.text)
            assert rank == 0 or 'rank 0' in message, message
    if wrong.right is None:
        for _ in range(count):
            refuse(lambda: wrong.call(groups[0]), wrong.text)
    else:
        run_ranks(len(groups), body)


class _Allocated(ctypes.Structure):
    """struct mallinfo2 of glibc."""
    _fields_ = [(name, ctypes.c_size_t) for name in (
        'arena', 'ordblks', 'smblks', 'hblks', 'hblkhd', 'usmblks', 'fsmblks', 'uordblks',
        'fordblks', 'keepcost')]


_mallinfo2 = ctypes.CDLL(None).mallinfo2
_mallinfo2.restype = _Allocated


def usage() -> Dict[str, int]:
    """Returns what the process holds now."""
    gc.collect()
    allocated = _mallinfo2()
    return {'descriptors': len(os.listdir('/proc/self/fd')),
            'bytes': allocated.uordblks + allocated.hblkhd,
            'blocks of Python': sys.getallocatedblocks()}


# The most that a thousand calls may leave: a leak in each of them leaves more.
_SLACK = {'descriptors': 0, 'bytes': 32 * COUNT, 'blocks of Python': COUNT // 2}


def assert_no_leak(repeat: Callable[[int], None]) -> None:
    """Calls repeat(count) some times. A leak grows each time; caches and pools do not."""
    repeat(COUNT // 10)
    for _ in range(4):
        before = usage()
        repeat(COUNT)
        grown = {name: now - before[name] for name, now in usage().items()}
        if all(grown[name] <= slack for name, slack in _SLACK.items()):
            return
    raise AssertionError(f'a thousand calls leave {grown}')


_ARRAY = np.ones(3)
# Right calls of a Group of one rank or of several. A closed group and a forked child refuse them.
CALLS = {
    'all_reduce': lambda g: g.all_reduce(np.ones(3)),
    'all_reduce, not waited for': lambda g: g.all_reduce(np.ones(3), wait=False),
    'all_reduce_coalesced': lambda g: g.all_reduce_coalesced([np.ones(3)]),
    'reduce': lambda g: g.reduce(np.ones(3), 0, np.ones(3)),
    'broadcast': lambda g: g.broadcast(np.ones(3), 0),
    'all_gather': lambda g: g.all_gather(np.ones(3), np.ones(3)),
    'all_gather_v': lambda g: g.all_gather_v(np.ones(3), [3], np.ones(3)),
    'all_to_all': lambda g: g.all_to_all(np.ones(3)),
    'exchange_sizes': lambda g: g.exchange_sizes(1),
    'barrier': lambda g: g.barrier(),
    'send': lambda g: g.send(_ARRAY, 1),
    'receive': lambda g: g.receive(np.ones(3), 1),
    'await_message': lambda g: g.await_message([1]),
    'send_object': lambda g: g.send_object(b'', 0),
    'receive_object': lambda g: g.receive_object(0),
    'broadcast_object': lambda g: g.broadcast_object(b'', 0),
    'all_gather_objects': lambda g: g.all_gather_objects(b''),
    'send_map': lambda g: g.send_map({}, 1),
    'receive_map': lambda g: g.receive_map(1),
    'broadcast_map': lambda g: g.broadcast_map({}, 0),
    'empty': lambda g: g.empty(3),
    'rejoin': lambda g: g.rejoin(0),
    'abort': lambda g: g.abort('no more'),
    'queue': cohort.MessageQueue,
    'layout': lambda g: g._core.create_layout(cohort.make_layout(1, {}), [], [], '', 1),
    'pipeline': lambda g: cohort.Pipeline(g).recv_forward() or g.barrier(),
    'ring_shift': lambda g: cohort.ring_shift(g, np.ones(3)),
    'dispatch': lambda g: moe.dispatch(g, np.ones((1, 2))),
}
