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

One file, though long: each class is a list of the methods of its counterpart in `cohort`, a few lines
each.
"""

import asyncio
import collections
import weakref
from typing import (Any, AsyncIterator, Callable, Deque, Dict, Generator, List, Optional, Sequence,
                    Tuple)

from cohort import _core
from cohort import _lifetime
from cohort._aio_group import Group
from cohort._aio_queue import MessageQueue
from cohort._environment import coordinator_address
from cohort._event_loop import CallsInFlight, Inbox, run
from cohort._objects import (check_round, pack, pack_all, pack_or_refuse, raise_refusal, unpack,
                             unpack_all)
from cohort.errors import Error
from cohort.facts import Facts
from cohort.group_info import GroupInfo, OpenWait, View, read_group_info
from cohort.process_group import BytesLike, VoteOp, VoteResult, membership_options
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


class ProcessGroup(Facts):
    """One membership in a process group, as `cohort.ProcessGroup`.

        async with cohort.aio.ProcessGroup("weights", rank=0, world_size=2) as group: ...
        group = await cohort.aio.ProcessGroup("weights", rank=0, world_size=2)

    Both forms join. `async with` leaves at its end; otherwise await `close`.
    """

    _class_name = 'cohort.aio.ProcessGroup'

    def __init__(self, group: str, *, world_size: Optional[int] = None, **options: Any):
        """Does not join yet. `options` are those of `cohort.ProcessGroup`."""
        self._options = membership_options(group, world_size=world_size, **options)
        self._joined: Optional[Any] = None
        self._inboxes: Dict[Tuple[int, str], Inbox] = {}

    @property
    def _core(self) -> Any:
        if self._joined is None:
            raise RuntimeError('the group is not joined: use "async with", or await it')
        return self._joined

    async def _join(self) -> 'ProcessGroup':
        if self._joined is None:
            self._joined = await run(_core.start_join_process_group, self._options)
            _lifetime.close_at_exit(self, type(self).release)
        return self

    def __await__(self) -> Generator[Any, None, 'ProcessGroup']:
        return self._join().__await__()

    async def __aenter__(self) -> 'ProcessGroup':
        return await self._join()

    async def __aexit__(self, kind, error, trace) -> None:
        await self._close('closed' if error is None else f'{kind.__name__}: {error}')

    # --- Objects.

    async def send(self, obj: Any, destination: int, tag: str = '', timeout: Timeout = None, *,
                   pickle: bool = False) -> None:
        """As ProcessGroup.send."""
        await run(self._core.start_send, pack(obj, pickle), destination, tag, timeout)

    async def receive(self, source: int, tag: str = '', timeout: Timeout = None, *,
                      pickle: bool = False) -> Any:
        """As ProcessGroup.receive."""
        return (await self._receive(source, tag, timeout, pickle))[0]

    async def receive_any(self, tag: str = '', timeout: Timeout = None, *,
                          pickle: bool = False) -> Tuple[Any, int]:
        """As ProcessGroup.receive_any."""
        return await self._receive(None, tag, timeout, pickle)

    async def _receive(self, source: Optional[int], tag: str, timeout: Timeout,
                       pickle: bool) -> Tuple[Any, int]:
        generation = self.generation
        key = generation, tag
        inbox = self._inboxes.get(key)
        if inbox is None:
            # Objects of ended generations are gone.
            self._inboxes = {old: box for old, box in self._inboxes.items()
                             if old[0] == generation}
            inbox = self._inboxes[key] = Inbox()
        # A receive may take the object that a cancelled receive_any left, and the other way round.
        data, sender = await inbox.take(
            self._core.start_receive, source, tag, timeout,
            takes=lambda value: source is None or value[1] == source)
        return unpack(self, 'receive', data, sender, pickle), sender

    async def broadcast(self, obj: Any, root: int, *, name: str = '',
                        participants: Sequence[int] = (), timeout: Timeout = None,
                        pickle: bool = False) -> Any:
        """As ProcessGroup.broadcast."""
        timeout, turn = check_round(self, 'broadcast', timeout)
        data = pack_or_refuse(obj, pickle) if self.rank == root else b''
        with turn:
            data = await run(self._core.start_broadcast, turn.refusal or data, root, name,
                             participants, timeout)
        return unpack(self, 'broadcast', data, root, pickle)

    async def all_gather(self, obj: Any, *, name: str = '', participants: Sequence[int] = (),
                         timeout: Timeout = None, pickle: bool = False) -> List[Any]:
        """As ProcessGroup.all_gather."""
        timeout, turn = check_round(self, 'all_gather', timeout)
        data = pack_or_refuse(obj, pickle)
        with turn:
            objects = await run(self._core.start_all_gather, turn.refusal or data, name,
                                participants, timeout)
        return unpack_all(self, 'all_gather', objects, pickle, participants)

    async def gather(self, obj: Any, root: int, *, name: str = '',
                     participants: Sequence[int] = (), timeout: Timeout = None,
                     pickle: bool = False) -> List[Any]:
        """As ProcessGroup.gather."""
        timeout, turn = check_round(self, 'gather', timeout)
        data = pack_or_refuse(obj, pickle)
        with turn:
            objects = await run(self._core.start_gather, turn.refusal or data, root, name,
                                participants, timeout)
        raise_refusal(self, 'gather', data, self.rank)
        return unpack_all(self, 'gather', objects, pickle, participants)

    async def scatter(self, objs: Sequence[Any], root: int, *, name: str = '',
                      participants: Sequence[int] = (), timeout: Timeout = None,
                      pickle: bool = False) -> Any:
        """As ProcessGroup.scatter."""
        timeout, turn = check_round(self, 'scatter', timeout)
        each = pack_all(objs, pickle) if self.rank == root else ()
        if turn.refusal and each:
            each = [turn.refusal] * len(each)
        with turn:
            data = await run(self._core.start_scatter, each, root, name, participants, timeout)
        return unpack(self, 'scatter', data, root, pickle)

    async def expire_data(self, older_than: Timeout = None) -> int:
        """As ProcessGroup.expire_data."""
        return await run(self._core.start_expire_data, older_than)

    @property
    def member(self) -> str:
        """This member's name."""
        return self._facts()[1]

    # --- Agreement.

    async def barrier(self, *, name: str = '', participants: Sequence[int] = (),
                      timeout: Timeout = None) -> None:
        """As ProcessGroup.barrier."""
        await run(self._core.start_barrier, name, participants, timeout)

    async def cancel_barrier(self, name: str = '', reason: str = '') -> None:
        """As ProcessGroup.cancel_barrier."""
        await run(self._core.start_cancel_barrier, name, reason)

    async def vote(self, value: int, op: VoteOp, *, name: str = '',
                   participants: Sequence[int] = (),
                   timeout: Timeout = None) -> VoteResult:
        """As ProcessGroup.vote."""
        return VoteResult(*await run(self._core.start_vote, value, VoteOp(op), name, participants,
                                       timeout))

    async def agree_alive(self, timeout: Timeout = 30) -> Tuple[int, ...]:
        """As ProcessGroup.agree_alive."""
        return await run(self._core.start_agree_alive, seconds(timeout, 30))

    # --- Unique ids.

    async def publish_unique_ids(self, name: str, ids: Sequence[BytesLike]) -> None:
        """As ProcessGroup.publish_unique_ids."""
        await run(self._core.start_publish_unique_ids, name, ids)

    async def fetch_unique_ids(self, name: str, timeout: Timeout = None) -> List[bytes]:
        """As ProcessGroup.fetch_unique_ids."""
        return await run(self._core.start_fetch_unique_ids, name, timeout)

    # --- Membership.

    async def describe(self) -> GroupInfo:
        """As ProcessGroup.describe."""
        return read_group_info(await run(self._core.start_describe))

    async def who_is_missing(self) -> List[OpenWait]:
        """As ProcessGroup.who_is_missing."""
        return [OpenWait(*wait) for wait in await run(self._core.start_who_is_missing)]

    async def propose_view(self, *, remove: Sequence[int] = (), add: Sequence[str] = (),
                           timeout: Timeout = 30, drop_silent: bool = False) -> View:
        """As ProcessGroup.propose_view."""
        return View(*await run(self._core.start_propose_view, remove, add, seconds(timeout, 30),
                               drop_silent))

    async def ack_view(self, proposal: int, *, accept: bool = True, reason: str = '',
                       timeout: Timeout = 30) -> View:
        """As ProcessGroup.ack_view."""
        return View(*await run(self._core.start_ack_view, proposal, accept, reason,
                               seconds(timeout, 30)))

    def report_progress(self, counter: int, operation: str = '') -> None:
        """As ProcessGroup.report_progress, which does not wait."""
        self._core.report_progress(counter, operation)

    async def report_error(self, detail: str, *, fatal: bool = False,
                           suspected: Sequence[int] = ()) -> None:
        """As ProcessGroup.report_error."""
        await run(self._core.start_report_error, detail, fatal, suspected)

    async def rejoin(self, timeout: Timeout = None) -> None:
        """As ProcessGroup.rejoin."""
        await run(self._core.start_rejoin, timeout)

    async def leave(self, reason: str = '') -> None:
        """As ProcessGroup.leave."""
        await run(self._core.start_leave, reason)

    async def close_for_all(self, reason: str = '') -> None:
        """As ProcessGroup.close_for_all."""
        await run(self._core.start_close_for_all, reason)

    def release(self) -> None:
        """Leaves without asyncio, and blocks for at most a second. For programs that end."""
        if self._joined is not None:
            self._keep_facts()
            self._joined.release()

    async def close(self) -> None:
        """Leaves, if `leave` was not awaited, and frees the connection. If the coordinator is away,
        that takes at most two seconds, and the lease ends the membership. It may be called twice."""
        await self._close('closed')

    async def _close(self, why: str) -> None:
        if self._joined is None:
            return
        self._keep_facts()
        try:
            await asyncio.wait_for(self.leave(why), 1)
        except (Error, asyncio.TimeoutError):
            pass  # it has left, or the coordinator is away
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self._joined.release)


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
        for watch in list(self._watches):
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
