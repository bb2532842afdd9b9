"""cohort.aio.Group and cohort.aio.MessageQueue: each call, cancellation, and Ctrl-C."""

import asyncio
import logging
import os
import select
import signal
import time

import numpy as np
import pytest

import cohort
import cohort.aio
from cohort import _event_loop
from testing.coordinator import LONG, rank_process, run_ranks
from testing.fixtures import address_fixture

_address = address_fixture()


def run(main, ranks=2):
    """Runs main(rank) by an event loop of its own for each rank."""
    return run_ranks(ranks, lambda rank: asyncio.run(asyncio.wait_for(main(rank), LONG)))


def new(name, rank, address, size=2, **options):
    options.setdefault('timeout', LONG)
    return cohort.aio.Group(name, rank=rank, world_size=size, address=address, **options)


def test_each_call(address):
    async def main(rank):
        async with new('each', rank, address) as group:
            own = np.full(2, rank + 1.0)
            assert (await group.all_reduce(own, op='max')).tolist() == [2, 2]
            assert (await group.all_reduce_coalesced([own]))[0].tolist() == [3, 3]
            total = await group.reduce(own, 0)
            assert total is None if rank else total.tolist() == [3, 3]
            assert (await group.broadcast(own.copy(), 1)).tolist() == [2, 2]
            assert (await group.all_gather(own)).tolist() == [1, 1, 2, 2]
            assert (await group.reduce_scatter(own)).tolist() == [3]
            assert (await group.all_to_all(own)).tolist() == [1, 2]
            gathered = await group.gather(own, 1)
            assert gathered is None if rank == 0 else gathered.tolist() == [1, 1, 2, 2]
            part = await group.scatter(np.arange(2.0) if rank == 0 else None, 0, np.empty(1))
            assert part.tolist() == [rank]
            assert (await group.scan(own)).tolist() == [[1, 1], [3, 3]][rank]
            assert (await group.exscan(own)).tolist() == [[0, 0], [1, 1]][rank]
            sizes = await group.exchange_sizes(rank + 1)
            assert sizes == [1, 2]
            ragged = np.full(sizes[rank], rank)
            assert (await group.all_gather_v(ragged, sizes)).tolist() == [0, 1, 1]
            assert (await group.reduce_scatter_v(np.arange(3), sizes)).tolist() == [[0], [2, 4]][rank]
            at_root = await group.gather_v(ragged, sizes, 0)
            assert at_root is None if rank else at_root.tolist() == [0, 1, 1]
            assert (await group.all_to_all_v(own, [1, 1], [1, 1])).tolist() == [1, 2]
            await group.barrier()
            out = np.empty(2)
            await group.exchange([(own, 1 - rank)], [(out, 1 - rank)])
            assert out.tolist() == [2 - rank] * 2
            if rank:
                await group.send(own, 0)
                await group.send_object({'from': rank}, 0)
            else:
                assert (await group.receive(out, 1)) is out and out.tolist() == [2, 2]
                assert await group.receive_object(1) == {'from': 1}
            assert await group.broadcast_object('x' if rank else None, 1) == 'x'
            assert group.empty(3).shape == (3,) and len(group.stats()) == 2
            assert await group.all_gather_objects(rank) == [0, 1]
            with pytest.raises(cohort.InvalidArgument, match='rank 1: cannot send'):
                await group.all_gather_objects(object() if rank else None)
            with pytest.raises(cohort.InvalidArgument):
                await group.all_reduce(np.ones(2 + rank))
            blocking = await asyncio.to_thread(group.blocking.broadcast_map, {'a': rank}, 0)
            assert blocking == {'a': 0}
            await group.all_gather_objects(b'')
        with pytest.raises(cohort.FailedPrecondition):
            await group.barrier()
        await group.close()
    run(main)


def test_await_joins(address):
    async def main():
        group = new('await', 0, address, 1)
        with pytest.raises(RuntimeError, match='not joined'):
            await group.barrier()
        await group.close()  # nothing to leave
        assert await group is group and (await group).rank == 0
        await group.close()
        with pytest.raises(cohort.InvalidArgument):
            await new('', 0, address, 1)
        with pytest.raises(TypeError):
            new('await', 0, address, 1, colour='red')
    asyncio.run(asyncio.wait_for(main(), LONG))


def test_a_cancelled_collective_aborts_the_group(address):
    async def main(rank):
        async with new('cancel', rank, address) as group:
            if rank == 1:
                waiting = asyncio.create_task(group.all_reduce(np.ones(2)))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                with pytest.raises(cohort.Aborted):
                    await group.barrier()
            else:
                with pytest.raises(cohort.Aborted, match='rank 1'):
                    await group.receive(np.empty(1), 1)
            await group.rejoin(LONG)
            assert (await group.all_reduce(np.ones(1))).tolist() == [2]
            await group.all_gather_objects(b'')
    run(main)


def test_a_cancelled_object_call_loses_nothing(address):
    async def main(rank):
        async with new('objects', rank, address) as group:
            if rank == 0:
                for _ in range(5):
                    waiting = asyncio.create_task(group.receive_object(1))
                    await asyncio.sleep(0.001)
                    waiting.cancel()
                    await asyncio.wait([waiting])
                await group.send_object(b'begin', 1)
                received = [await group.receive_object(1) for _ in range(3)]
                assert received == [0, 1, 2]
            else:
                assert await group.receive_object(0) == b'begin'
                for value in range(3):
                    await group.send_object(value, 0)
            await group.all_gather_objects(b'')
            # The group is not aborted.
            assert (await group.all_reduce(np.ones(1))).tolist() == [2]
            await group.all_gather_objects(b'')
    run(main)


def test_message_queue(address):
    async def main(rank):
        async with new('queue', rank, address) as group:
            async with cohort.aio.MessageQueue(group, writer_rank=1, block_bytes=1 << 16,
                                               blocks=1) as queue:
                assert queue.is_writer == (rank == 1) and 'queue' in queue.name
                if queue.is_writer:
                    await queue.await_readers(1)
                    await group.barrier()
                    for step in range(100):  # more than the ring has room for
                        await queue.enqueue(bytes([step]) * 4000)
                    assert len(queue.readers()) == 1 and queue.departures() == []
                else:
                    waiting = asyncio.create_task(queue.dequeue())
                    await asyncio.sleep(0.01)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                    with pytest.raises(cohort.DeadlineExceeded):
                        await queue.dequeue(timeout=0.01)
                    await group.barrier()
                    values = [await queue.dequeue() for _ in range(100)]
                    assert values == [bytes([step]) * 4000 for step in range(100)]
                assert await queue.broadcast_object([rank], timeout=9) == [1]
                if queue.is_writer:
                    await queue.enqueue_object({'step': 1})
                else:
                    assert await queue.dequeue_object() == {'step': 1}
                assert await queue.broadcast(b'last' if rank else None) == b'last'
                await group.all_gather_objects(b'')
            with pytest.raises(cohort.FailedPrecondition):
                await queue.dequeue()
    run(main)


def test_a_value_of_a_cancelled_dequeue_is_not_lost():
    async def main():
        writer = cohort.aio.MessageQueue.create_external('late')
        reader = await cohort.aio.MessageQueue.open(writer.handle, 'reader')
        got = []
        for step in range(50):
            waiting = asyncio.create_task(reader.dequeue())
            await asyncio.sleep(0.001)
            await writer.enqueue(b'%d' % step)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                got.append(waiting.result())
        while len(got) < 50:
            got.append(await reader.dequeue(timeout=LONG))
        assert got == [b'%d' % step for step in range(50)]
        await writer.close()
        with pytest.raises(cohort.Cancelled):
            await reader.dequeue()
        await reader.close()
    asyncio.run(asyncio.wait_for(main(), LONG))


def test_an_error_about_a_late_value_is_logged(caplog):
    """The value comes before its task is cancelled, and the event loop looks at it afterwards."""
    def refuse(value):
        raise ZeroDivisionError(f'refuses {value}')
    async def main():
        with cohort.MessageQueue.create_external('logged') as writer, \
                cohort.MessageQueue.open(writer.handle, 'reader') as reader:
            waiting = asyncio.create_task(
                _event_loop.run(reader._core.start_dequeue, None, late=refuse))
            await asyncio.sleep(0)
            writer.enqueue(b'late')
            completions = _event_loop._of_running_loop()._completions
            assert select.select([completions.fileno()], [], [], LONG)[0]
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
    with caplog.at_level(logging.ERROR, 'cohort'):
        asyncio.run(asyncio.wait_for(main(), LONG))
    assert "refuses b'late'" in caplog.text


def test_close_ends_calls_that_wait():
    async def main():
        writer = cohort.aio.MessageQueue.create_external('closed')
        reader = await cohort.aio.MessageQueue.open(writer.handle, 'reader')
        waiting = asyncio.create_task(reader.dequeue())
        await asyncio.sleep(0.01)
        await reader.close()
        with pytest.raises(cohort.Cancelled):
            await waiting
        await writer.close()
    asyncio.run(asyncio.wait_for(main(), LONG))


# Each waits for a rank that does not come.
WAITS = {
    'join': 'await new("join", 2)',
    'queue': 'await cohort.aio.MessageQueue(group)',
    'barrier': 'await group.barrier()',
    'receive': 'await group.receive(numpy.empty(1), 1)',
    'object': 'await group.receive_object(1)',
    'dequeue': 'await reader.dequeue()',
}
PROGRAM = '''
import asyncio, sys, numpy, cohort, cohort.aio
address, wait = sys.argv[1:]
def new(name, size, rank=0):
    return cohort.aio.Group(name, rank=rank, world_size=size, address=address, timeout=600,
                            join_timeout=600)
async def main():
    if wait != 'await new("join", 2)':
        group, other = await asyncio.gather(new('wait', 2), new('wait', 2, 1))
        writer = cohort.aio.MessageQueue.create_external('queue')
        reader = await cohort.aio.MessageQueue.open(writer.handle, 'reader')
    print('waits', flush=True)
    code = compile(wait, 'wait', 'exec', flags=0x2000)
    await eval(code, {**globals(), **locals()})
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print('interrupted', flush=True)
'''


@pytest.mark.parametrize('wait', WAITS)
def test_control_c(address, wait):
    with rank_process(PROGRAM, address, WAITS[wait]) as process:
        assert process.stdout.readline() == 'waits\n'
        begin = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.readline() == 'interrupted\n'
        assert process.wait(LONG) == 0
        assert time.monotonic() - begin < LONG / 2
