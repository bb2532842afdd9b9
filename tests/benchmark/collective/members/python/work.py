"""A piece of work, its inputs and its outputs: processes/work.h and harness/pattern.h say what and why."""

from typing import NamedTuple

import numpy

_PERIOD = 1021
_RANK_SHIFT = 331


class Work(NamedTuple):
    collective: str
    bytes: int
    memory: str


def parse(words):
    collective, size, memory, _ = words
    return Work(collective, int(size), memory)


def _block(work, size):
    return max(1, -(-(work.bytes // 4) // size))


def extents(work, rank, size):
    """Elements of the input and of the output."""
    elements, block = max(1, work.bytes // 4), _block(work, size)
    return {
        'all_reduce': (elements, elements),
        'sendrecv': (elements, elements),
        'all_gather': (elements, elements * size),
        'reduce_scatter': (block * size, block),
        'all_to_all': (block * size, block * size),
        'broadcast': (elements, 0) if rank == 0 else (0, elements),
    }[work.collective]


def _elements(rank, begin, end):
    return ((numpy.arange(begin, end, dtype=numpy.int64) + _RANK_SHIFT * rank)
            % _PERIOD).astype(numpy.float32)


def fill(work, group, array):
    array[:] = _elements(group.rank, 0, extents(work, group.rank, group.size)[0])


def spoil(array):
    array.view(numpy.uint32)[:] = 0xffffffff


def check(work, group, found):
    """Raises ValueError that names the first wrong element."""
    rank, size, count, block = group.rank, group.size, len(found), _block(work, group.size)

    def of_all(begin, end):
        return sum(_elements(each, begin, end) for each in range(size))

    if work.collective == 'all_reduce':
        expected = of_all(0, count)
    elif work.collective == 'reduce_scatter':
        expected = of_all(rank * block, (rank + 1) * block)
    elif work.collective == 'all_gather':
        expected = numpy.concatenate([_elements(each, 0, count // size) for each in range(size)])
    elif work.collective == 'all_to_all':
        expected = numpy.concatenate(
            [_elements(each, rank * block, (rank + 1) * block) for each in range(size)])
    elif work.collective == 'broadcast':
        expected = _elements(0, 0, count)
    else:
        expected = _elements((rank - 1) % size, 0, count)
    wrong = numpy.flatnonzero(found != expected)
    if len(wrong) > 0:
        first = wrong[0]
        raise ValueError(f'element {first} is {found[first]} and should be {expected[first]}')
