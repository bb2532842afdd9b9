"""The classes of `cohort` for asyncio: the methods are those of the classes there, awaited.

    import asyncio
    import cohort.aio

    async def main():
        async with cohort.aio.ProcessGroup("weights", rank=0, world_size=2) as group:
            await group.barrier()
            return await group.all_gather(b"10.0.0.4:4123")

    asyncio.run(main())

Arguments, results and errors are those of `cohort.Group`, `cohort.ProcessGroup`, `cohort.Store` and
`cohort.MessageQueue`. Calls of a `ProcessGroup` or a `Store` have no thread: any number of them may
wait at once. A call starts when its method is awaited, or scheduled as a task. Cancelling the task
that waits ends the call: this member then no longer takes part in that round, and its next call of
that name does. A value that is on its way to a `receive` or a `queue_pop` when that is cancelled is
not lost: the next such call of the same object returns it, or the coordinator puts it back at its
old place.

An object may be used by several event loops; each call belongs to the loop that runs it.
"""

import asyncio
import collections
import weakref
from typing import Any, AsyncIterator, Callable, Deque, Dict, Generator, List, Optional, Sequence

from cohort import _core
from cohort import _lifetime
from cohort._aio_group import Group
from cohort._aio_process_group import ProcessGroup
from cohort._aio_queue import MessageQueue
from cohort._environment import coordinator_address
from cohort._event_loop import CallsInFlight, Inbox, run
from cohort.errors import Error
from cohort.group_info import GroupInfo, read_group_info
from cohort.store import (KeyValue, PutResult, RangePage, Value, describe_store, read_put,
                          to_bytes)
from cohort.timeouts import Duration, Timeout, seconds
from cohort.watch import E, GroupEvent, KeyEvent, group_watch_options


class Watch(AsyncIterator[E]):
    """A watch, as `cohort.Watch`, for `async for`.

    It has all changes after it was opened: by `async with`, or by `await`, which returns it; without
    them, its first step opens it. No watch has a thread. If a task that waits for the next change
    is cancelled, the stream is closed, and no change is lost: the next step opens it again.
    """

    def __init__(self, core: Any, event: Callable[..., E], subject: str):
        self._core = core
        self._event = event
        self._subject = subject
        self._events: Deque[tuple] = collections.deque()
        self._revision = 0
        self._ended = False
        self._closed = False

    @property
    def revision(self) -> int:
        """As Watch.revision."""
        if not self._closed:
            first = self._events[0] if self._events else None
            self._revision = first[-1] - 1 if first else self._core.revision()
        return self._revision

    @property
    def closed(self) -> bool:
        """Whether the watch was closed."""
        return self._closed

    def __repr__(self) -> str:
        state = 'closed' if self._closed else 'ended' if self._ended else 'open'
        return (f'<cohort.aio.{type(self).__name__} of {self._subject} at revision {self.revision}, '
                f'{state}>')

    async def _open(self) -> 'Watch[E]':
        await run(self._core.start_open)
        return self

    def __await__(self) -> Generator[Any, None, 'Watch[E]']:
        return self._open().__await__()

    async def __aenter__(self) -> 'Watch[E]':
        return await self._open()

    async def __aexit__(self, *exc_info) -> None:
        self.release()

    def __aiter__(self) -> 'Watch[E]':
        return self

    async def __anext__(self) -> E:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            try:
                self._keep(await run(self._core.start_next, late=self._keep))
            except asyncio.CancelledError:
                if not self._closed:
                    self._core.suspend()
                raise
            except Error:
                if not self._closed:
                    raise
        return self._event(*self._events.popleft())

    def _keep(self, events: Optional[List[tuple]]) -> None:
        if events is None:
            self._ended = True
        elif not self._closed:
            self._events.extend(events)

    def release(self) -> None:
        """As aclose, without asyncio."""
        self._revision = self.revision
        self._ended = self._closed = True
        self._events.clear()
        self._core.close()

    async def aclose(self) -> None:
        """Closes the stream. A step that waits ends the iteration. It may be called twice."""
        self.release()


class GroupWatch(Watch[GroupEvent]):
    """A watch of a group, as `cohort.GroupWatch`."""

    @property
    def info(self) -> GroupInfo:
        """As GroupWatch.info."""
        facts = self._core.info()
        if facts is None:
            raise RuntimeError('the watch is not open: use "async with", or await it')
        return read_group_info(facts)


def watch_group(group: str, *, address: Optional[str] = None, tenant: str = '',
                timeout: Timeout = None, reconnect_timeout: Timeout = 15) -> GroupWatch:
    """As cohort.watch_group, for `async for`. It opens as Store.watch does."""
    watch = GroupWatch(_core.watch_group(group_watch_options(
        group, address, tenant, timeout, reconnect_timeout)), GroupEvent, f'group {group!r}')
    _lifetime.close_at_exit(watch, GroupWatch.release)
    return watch


class Store:
    """Keys, counters and queues of the coordinator, as `cohort.Store`.

        store = cohort.aio.Store("coordinator:7700")
        print(await store.get("checkpoint", wait=10))
    """

    def __init__(self, address: Optional[str] = None, *, tenant: str = '', group: str = '',
                 timeout: Timeout = 30):
        """As Store: it connects on first use."""
        self._place = coordinator_address(address), tenant, group
        self._core = _core.connect_store(dict(zip(('address', 'tenant', 'group'), self._place)))
        self._timeout = seconds(timeout, 30)
        self._closed = False
        self._queues: Dict[str, Inbox] = {}
        self._calls = CallsInFlight()
        self._watches: 'weakref.WeakSet[Watch]' = weakref.WeakSet()
        _lifetime.close_at_exit(self, type(self).release)

    async def put(self, key: str, value: Value, *, expiration: Timeout = None,
                  expected_revision: Optional[int] = None,
                  expected_value: Optional[Value] = None, timeout: Timeout = None) -> PutResult:
        """As Store.put."""
        return read_put(await self._run(self._core.start_put, key, to_bytes(value), expiration,
                                        expected_revision, expected_value, self._limit(timeout)))

    async def multi_put(self, values: Dict[str, Value], *, expiration: Timeout = None,
                        timeout: Timeout = None) -> PutResult:
        """As Store.multi_put."""
        return read_put(await self._run(self._core.start_multi_put, list(values),
                                        list(values.values()), expiration,
                                        self._limit(timeout)))

    async def get(self, key: str, *, wait: Duration = 0, newer_than: int = 0,
                  timeout: Timeout = None) -> Optional[bytes]:
        """As Store.get."""
        found = await self.get_many([key], wait=wait, newer_than=newer_than, timeout=timeout)
        return found[key].value if key in found else None

    async def get_many(self, keys: Sequence[str], *, wait: Duration = 0, newer_than: int = 0,
                       timeout: Timeout = None) -> Dict[str, KeyValue]:
        """As Store.get_many."""
        values = (await self._run(self._core.start_get, keys, wait, newer_than, (), False,
                                  self._limit(timeout)))[0]
        return {value[0]: KeyValue(*value) for value in values}

    async def missing(self, keys: Sequence[str], *, wait: Duration = 0, or_queue: bool = False,
                      timeout: Timeout = None) -> List[str]:
        """As Store.missing."""
        return (await self._run(self._core.start_get, keys, wait, 0, (), or_queue,
                                self._limit(timeout)))[1]

    async def range(self, prefix: str, *, after: str = '', page_size: int = 100,
                    keys_only: bool = False, timeout: Timeout = None) -> RangePage:
        """As Store.range."""
        return RangePage.of(await self._run(self._core.start_range, prefix, after, page_size,
                                            keys_only, self._limit(timeout)))

    async def delete(self, key: str, *, prefix: bool = False, timeout: Timeout = None) -> int:
        """As Store.delete."""
        return await self._run(self._core.start_delete, key, prefix, self._limit(timeout))

    async def add(self, key: str, delta: int, *, timeout: Timeout = None) -> int:
        """As Store.add."""
        return await self._run(self._core.start_add, key, delta, self._limit(timeout))

    async def append(self, key: str, value: Value, *, timeout: Timeout = None) -> int:
        """As Store.append."""
        return await self._run(self._core.start_append, key, to_bytes(value), self._limit(timeout))

    async def queue_push(self, queue: str, value: Value, *, expiration: Timeout = None,
                         timeout: Timeout = None) -> int:
        """As Store.queue_push."""
        return await self._run(self._core.start_queue_push, queue, to_bytes(value), expiration,
                               self._limit(timeout))

    async def queue_pop(self, queue: str, *, wait: Duration = 0,
                        timeout: Timeout = None) -> Optional[bytes]:
        """As Store.queue_pop."""
        inbox = self._queues.setdefault(queue, Inbox())
        try:
            return await inbox.take(self._core.start_queue_pop, queue, wait, self._limit(timeout),
                                    owner=self._calls)
        finally:
            if inbox.empty():
                self._queues.pop(queue, None)

    async def queue_len(self, queue: str, *, timeout: Timeout = None) -> int:
        """As Store.queue_len."""
        lengths = (await self._run(self._core.start_get, (), 0, 0, [queue], False,
                                   self._limit(timeout)))[3]
        return lengths[0] if lengths else 0

    def watch(self, prefix: str = '', from_revision: int = 0, timeout: Timeout = None, *,
              reconnect_timeout: Timeout = 15) -> Watch[KeyEvent]:
        """As Store.watch, for `async for`. It opens when `async with` begins, when it is awaited, or
        with its first step.

            async with store.watch("workers/") as changes:
                async for change in changes:
                    print(change.kind, change.key, change.value)
        """
        core = self._core.watch(prefix, from_revision, timeout, seconds(reconnect_timeout, 15))
        watch = Watch(core, KeyEvent, f'keys {prefix!r}')
        self._watches.add(watch)
        return watch

    def _limit(self, timeout: Timeout) -> float:
        return seconds(timeout, self._timeout)

    @property
    def closed(self) -> bool:
        """Whether the store was closed."""
        return self._closed

    def __repr__(self) -> str:
        return describe_store('cohort.aio.Store', *self._place, self._closed)

    def release(self) -> None:
        """As close, without asyncio."""
        self._closed = True
        for watch in _lifetime.living(self._watches):
            watch.release()
        self._calls.cancel('close() was called on the store')
        self._core.release()

    async def close(self) -> None:
        """Frees the connection, and closes its watches; calls that wait end with Cancelled. It may be
        called twice."""
        self.release()

    async def _run(self, method: Callable, *arguments: Any) -> Any:
        return await run(method, *arguments, owner=self._calls)

    async def __aenter__(self) -> 'Store':
        return self

    async def __aexit__(self, *exc_info) -> None:
        await self.close()
