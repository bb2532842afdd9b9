"""Facts that objects tell about themselves: repr, `closed`, and facts that stay readable after close."""

import asyncio
import threading
import time

import numpy as np
import pytest

import cohort
from testing.coordinator import LONG, eventually, run_ranks
from testing.fixtures import address_fixture, joined_groups

_address = address_fixture()


def new_member(address, name='member-facts'):
    return cohort.ProcessGroup(name, rank=0, world_size=1, member='the-member', address=address)


def test_group(address):
    with joined_groups('facts', 2, address) as groups:
        group = groups[1]
        assert repr(group) == "<cohort.Group 'facts': rank 1 of 2, generation 1, open>"
        assert not group.closed
        for _ in range(2):
            group.close()
            assert repr(group) == "<cohort.Group 'facts': rank 1 of 2, generation 1, closed>"
            assert (group.name, group.rank, group.size, group.generation) == ('facts', 1, 2, 1)
            assert group.closed and group.world_size == 2
        with pytest.raises(cohort.FailedPrecondition, match='close'):
            group.barrier()


def test_facts_of_the_last_generation(address):
    def body(rank):
        with cohort.Group('again', rank=rank, world_size=2, address=address, timeout=LONG) as group:
            if rank == 0:
                group.abort('a trial')
            with pytest.raises(cohort.Aborted):
                group.barrier()
            group.rejoin(LONG)
            group.all_gather_objects(b'')
        return group.generation, group.rank
    assert run_ranks(2, body) == [(2, 0), (2, 1)]


def test_process_group(address):
    group = new_member(address)
    assert repr(group) == "<cohort.ProcessGroup 'member-facts': rank 0 of 1, generation 1, open>"
    group.close()
    assert repr(group) == "<cohort.ProcessGroup 'member-facts': rank 0 of 1, generation 1, closed>"
    assert (group.name, group.member, group.rank, group.size, group.generation, group.closed) == (
        'member-facts', 'the-member', 0, 1, 1, True)


def test_group_that_was_not_joined(address):
    class Kept(cohort.Group):
        """Its object stays when joining fails."""
        def __init__(self, *args, **options):
            kept.append(self)
            super().__init__(*args, **options)
    kept = []
    with pytest.raises(cohort.InvalidArgument):
        Kept('', rank=0, world_size=1, address=address)
    assert repr(kept[0]) == '<cohort.Group, not joined>'


def test_repr_does_not_block(address):
    """Another thread is in a call."""
    with joined_groups('blocked', 2, address) as groups:
        waiting = threading.Thread(target=groups[0].barrier)
        waiting.start()
        begin = time.monotonic()
        for _ in range(100):
            assert 'rank 0 of 2' in repr(groups[0])
        assert time.monotonic() - begin < LONG / 2
        assert waiting.is_alive()
        groups[1].barrier()
        waiting.join(LONG)


def test_store_and_watch(address):
    other = cohort.Store(address, tenant='team', group='engines')
    assert repr(other) == f"<cohort.Store {address!r}, tenant 'team', group 'engines', open>"
    store = cohort.Store(address)
    assert repr(store) == f'<cohort.Store {address!r}, open>'
    watch = store.watch('workers/')
    assert repr(watch) == f"<cohort.Watch of keys 'workers/' at revision {watch.revision}, open>"
    events = []
    stepping = threading.Thread(target=lambda: events.extend(watch))
    stepping.start()
    store.put('workers/a', 'b')
    eventually(lambda: events)
    assert f'at revision {events[0].revision}, open' in repr(watch)  # while a step waits
    store.close()
    stepping.join(LONG)
    assert repr(store).endswith(', closed>') and store.closed
    assert repr(watch).endswith(f'at revision {events[0].revision}, closed>') and watch.closed
    with new_member(address, 'watched'), cohort.watch_group('watched', address=address) as group:
        assert repr(group).startswith("<cohort.GroupWatch of group 'watched' at revision ")


def test_message_queue():
    with cohort.MessageQueue.create_external('plain') as writer:
        with cohort.MessageQueue.open(writer.handle, 'reader') as reader:
            assert repr(writer) == '<cohort.MessageQueue: the queue "plain", writer, open>'
            assert repr(reader) == (
                '<cohort.MessageQueue: the queue "plain", reader by shared memory, open>')
        assert repr(reader).endswith(', closed>') and reader.closed and not writer.closed
    assert repr(writer) == '<cohort.MessageQueue: the queue "plain", writer, closed>'


def test_parts_of_models(address):
    with joined_groups('model', 1, address) as groups:
        pipeline = cohort.Pipeline(groups[0])
        assert repr(pipeline) == "<cohort.Pipeline of group 'model': stage 0 of 1>"
        batch = cohort.moe.dispatch_to_experts(
            groups[0], np.ones((3, 2), 'f4'), np.array([[0], [1], [1]], 'i4'),
            np.ones((3, 1), 'f4'), cohort.moe.ExpertPlacement.blocks(2, 1), form='routed')
        assert repr(batch) == '<cohort.moe.ExpertBatch, routed: 3 rows for 2 experts>'
    assert repr(pipeline) == "<cohort.Pipeline of group 'model': stage 0 of 1>"
    assert pipeline.stage == 0 and pipeline.is_last


def test_asyncio(address):
    async def main():
        member = cohort.aio.ProcessGroup('aio', rank=0, world_size=1, address=address)
        assert repr(member) == '<cohort.aio.ProcessGroup, not joined>'
        async with member:
            assert repr(member) == "<cohort.aio.ProcessGroup 'aio': rank 0 of 1, generation 1, open>"
        assert repr(member).endswith(', closed>') and member.closed and member.rank == 0
        group = cohort.aio.Group('aio-group', rank=0, world_size=1, address=address)
        assert repr(group) == "<cohort.aio.Group 'aio-group', not joined>" and not group.closed
        async with group:
            assert repr(group) == (
                "<cohort.aio.Group 'aio-group': rank 0 of 1, generation 1, open>")
            queue = cohort.aio.MessageQueue(group)
            assert repr(queue) == '<cohort.aio.MessageQueue, not made>'
            async with queue:
                assert repr(queue).startswith('<cohort.aio.MessageQueue: the queue ') and not queue.closed
            assert queue.closed
        assert repr(group).endswith(', closed>') and group.closed and group.size == group.world_size == 1
        async with cohort.aio.Store(address) as store:
            assert repr(store) == f'<cohort.aio.Store {address!r}, open>'
            async with store.watch('a') as watch:
                assert repr(watch).startswith("<cohort.aio.Watch of keys 'a' at revision ")
            assert watch.closed
        assert store.closed
    asyncio.run(asyncio.wait_for(main(), LONG))
