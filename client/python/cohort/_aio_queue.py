"""`cohort.MessageQueue` for asyncio."""

import asyncio
from typing import Any, Generator, List, Optional, Union

from cohort import _core
from cohort._aio_group import Group
from cohort._event_loop import CallsInFlight, Inbox, run
from cohort._objects import pack, pack_or_refuse, unpack_of_queue
from cohort.errors import DeadlineExceeded
from cohort.group import Group as BlockingGroup
from cohort.message_queue import MessageQueue as BlockingQueue
from cohort.message_queue import QueueDeparture, QueueReader, queue_options
from cohort.process_group import BytesLike
from cohort.timeouts import Timeout


class MessageQueue:
    """A queue that one process writes and many read, as `cohort.MessageQueue`, awaited.

        async with cohort.aio.MessageQueue(group) as queue:        # on all ranks
            if queue.is_writer:
                await queue.enqueue(b"step 1")
            else:
                value = await queue.dequeue()

    `await` makes the queue, too. Arguments and errors are those of `cohort.MessageQueue`. One task
    at a time enqueues or dequeues. A call that has to wait uses a thread of the library; cancelling
    its task ends it. A value that comes while a dequeue is cancelled is not lost: the next one
    returns it. If an enqueue is cancelled, readers may get its value.

    Attributes: name, is_writer, handle and path, as those of cohort.MessageQueue.
    """

    def __init__(self, group: Union[Group, BlockingGroup], writer_rank: int = 0, **options: Any):
        """All ranks of the group make one, and await it. `options` are those of
        `cohort.MessageQueue`. Cancelling the task that awaits it aborts the group, because the
        other ranks wait for this one."""
        self._made: Optional[BlockingQueue] = None
        self._calls = CallsInFlight()
        self._values = Inbox()
        self._group = group
        self._options = queue_options(writer_rank, **options)

    @classmethod
    def create_external(cls, name: str, **options: Any) -> 'MessageQueue':
        """As MessageQueue.create_external, which does not wait. The queue is ready."""
        return cls._of(BlockingQueue.create_external(name, **options))

    @classmethod
    async def open(cls, handle: bytes, reader: str, *, join_timeout: Timeout = 60,
                   timeout: Timeout = 60) -> 'MessageQueue':
        """As MessageQueue.open."""
        options = {'handle': handle, 'reader': reader, 'join_timeout': join_timeout,
                   'timeout': timeout}
        core = await run(_core.start_open_queue, options, late=lambda late: late.release())
        return cls._of(BlockingQueue._of(core))

    @classmethod
    def _of(cls, made: BlockingQueue) -> 'MessageQueue':
        queue = cls.__new__(cls)
        queue._made = made
        queue._calls = CallsInFlight()
        queue._values = Inbox()
        return queue

    async def _create(self) -> BlockingQueue:
        group = self._group.blocking if isinstance(self._group, Group) else self._group
        try:
            core = await run(group._core.start_create_queue, self._options,
                             late=lambda late: late.release())
        except asyncio.CancelledError:
            group.abort('the task that makes a message queue was cancelled')
            raise
        return BlockingQueue._of(core)

    async def _open(self) -> 'MessageQueue':
        if self._made is None:
            self._made = await self._create()
        return self

    def __await__(self) -> Generator[Any, None, 'MessageQueue']:
        return self._open().__await__()

    async def __aenter__(self) -> 'MessageQueue':
        return await self._open()

    async def __aexit__(self, *exc_info) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        if name in ('name', 'is_writer', 'handle', 'path'):
            return getattr(self._queue, name)
        raise AttributeError(f'{type(self).__name__!r} object has no attribute {name!r}')

    @property
    def _queue(self) -> BlockingQueue:
        if self._made is None:
            raise RuntimeError('the queue is not made: use "async with", or await it')
        return self._made

    @property
    def _core(self) -> Any:
        return self._queue._core  # pylint: disable=protected-access

    @property
    def closed(self) -> bool:
        """Whether `close` was awaited."""
        return self._made is not None and self._made.closed

    def __repr__(self) -> str:
        if self._made is None:
            return '<cohort.aio.MessageQueue, not made>'
        return repr(self._made).replace('cohort.', 'cohort.aio.', 1)

    async def enqueue(self, value: BytesLike, timeout: Timeout = None) -> None:
        """As MessageQueue.enqueue."""
        try:
            self._core.enqueue(value, 0)
        except DeadlineExceeded:  # the ring is full
            await run(self._core.start_enqueue, value, timeout, owner=self._calls)

    async def dequeue(self, timeout: Timeout = None) -> bytes:
        """As MessageQueue.dequeue."""
        if self._values.empty():
            try:
                return self._core.dequeue(0)
            except DeadlineExceeded:  # there is no value yet
                pass
        return await self._values.take(self._core.start_dequeue, timeout, owner=self._calls)

    async def broadcast(self, value: Optional[BytesLike] = None, timeout: Timeout = None) -> bytes:
        """As MessageQueue.broadcast."""
        if not self._queue.is_writer:
            return await self.dequeue(timeout)
        await self.enqueue(value, timeout)
        return bytes(value)

    async def enqueue_object(self, obj: Any, *, pickle: bool = False,
                             timeout: Timeout = None) -> None:
        """As MessageQueue.enqueue_object."""
        await self.enqueue(pack(obj, pickle), timeout)

    async def dequeue_object(self, *, pickle: bool = False, timeout: Timeout = None) -> Any:
        """As MessageQueue.dequeue_object."""
        data = await self.dequeue(timeout)
        return unpack_of_queue(self, 'dequeue_object', data, pickle)

    async def broadcast_object(self, obj: Any = None, *, pickle: bool = False,
                               timeout: Timeout = None) -> Any:
        """As MessageQueue.broadcast_object."""
        data = pack_or_refuse(obj, pickle) if self._queue.is_writer else None
        data = await self.broadcast(data, timeout)
        return unpack_of_queue(self, 'broadcast_object', data, pickle)

    def readers(self) -> List[QueueReader]:
        """As MessageQueue.readers, which does not wait."""
        return self._queue.readers()

    def departures(self) -> List[QueueDeparture]:
        """As MessageQueue.departures, which does not wait."""
        return self._queue.departures()

    async def await_readers(self, count: int, timeout: Timeout = None) -> None:
        """As MessageQueue.await_readers."""
        await run(self._core.start_await_readers, count, timeout, owner=self._calls)

    def shutdown(self, reason: str) -> None:
        """As MessageQueue.shutdown, which does not wait."""
        self._queue.shutdown(reason)

    async def close(self) -> None:
        """Shuts this end down and frees it; calls that wait end with Cancelled. It may be called
        twice."""
        if self._made is not None:
            self._calls.cancel('close() was called on the queue')
            await asyncio.to_thread(self._made.close)
