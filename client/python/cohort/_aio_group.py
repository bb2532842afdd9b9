"""`cohort.Group` for asyncio."""

import asyncio
from typing import Any, Dict, Generator, List, Optional, Sequence, Tuple, Union

from cohort import _core
from cohort._event_loop import CallsInFlight, Inbox, run
from cohort._objects import check_root, check_round, pack, pack_or_refuse, unpack, unpack_all
from cohort.arrays import Array
from cohort.errors import Error
from cohort.group import Group as BlockingGroup
from cohort.group import PeerStats, group_options
from cohort.pending_call import PendingCall
from cohort.timeouts import Timeout, seconds


class Group:
    """A group in which this process is a rank, as `cohort.Group`, awaited.

        async with cohort.aio.Group("trainer", rank=0, world_size=2) as group: ...
        group = await cohort.aio.Group("trainer", rank=0, world_size=2)

    Both forms join. `async with` leaves at its end; otherwise await `close`. Arguments, results and
    errors are those of `cohort.Group`, without `wait`. A call starts when its method is awaited, or
    scheduled as a task. All ranks start the same calls in the same order, so start them from one
    task.

    Cancelling the task that waits, as Ctrl-C does under asyncio.run, ends the call. A collective or
    a message then aborts the group on all ranks, with the name of this one, because other ranks
    wait for it. An object that is on its way when its call is cancelled is not lost: the next
    receive_object of that rank returns it.

    Attributes:
      blocking: the same membership as a `cohort.Group`, for tensor maps, pipelines, layouts and all
        else that has no coroutine. Coroutines call it by asyncio.to_thread.
    """

    def __init__(self, group: str, *, world_size: Optional[int] = None, **options: Any):
        """Does not join yet. `options` are those of `cohort.Group`."""
        self._options = group_options(group, world_size=world_size, **options)
        self._joined: Optional[BlockingGroup] = None
        self._calls = CallsInFlight()
        self._inboxes: Dict[int, Inbox] = {}

    @property
    def blocking(self) -> BlockingGroup:
        """See the class. Raises RuntimeError before the group is joined."""
        if self._joined is None:
            raise RuntimeError('the group is not joined: use "async with", or await it')
        return self._joined

    async def _join(self) -> 'Group':
        if self._joined is None:
            core = await run(_core.start_join_group, self._options,
                             late=lambda joined: joined.release())
            self._joined = BlockingGroup._of(core, seconds(self._options['join_timeout'], 300))
        return self

    def __await__(self) -> Generator[Any, None, 'Group']:
        return self._join().__await__()

    async def __aenter__(self) -> 'Group':
        return await self._join()

    async def __aexit__(self, *exc_info) -> None:
        if self._joined is not None:
            self._calls.cancel('the group was closed')
            await asyncio.to_thread(self._joined.__exit__, *exc_info)

    # --- Facts, as those of Group.

    @property
    def name(self) -> str:
        """The group's name."""
        return self._options['group']

    @property
    def rank(self) -> int:
        """This process's rank, 0..size-1."""
        return self.blocking.rank

    @property
    def size(self) -> int:
        """How many ranks the generation has."""
        return self.blocking.size

    @property
    def world_size(self) -> int:
        """As `size`."""
        return self.blocking.size

    @property
    def generation(self) -> int:
        """The number of the generation."""
        return self.blocking.generation

    @property
    def closed(self) -> bool:
        """Whether `close` was awaited."""
        return self._joined is not None and self._joined.closed

    def __repr__(self) -> str:
        if self._joined is None:
            return f'<cohort.aio.Group {self.name!r}, not joined>'
        return repr(self._joined).replace('cohort.Group', 'cohort.aio.Group', 1)

    def stats(self) -> List[PeerStats]:
        """As Group.stats, which does not wait."""
        return self.blocking.stats()

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = 'float32',
              device: Any = None) -> Array:
        """As Group.empty, which does not wait."""
        return self.blocking.empty(shape, dtype, device)

    # --- Collectives, as those of Group.

    async def all_reduce(self, array: Array, out: Optional[Array] = None, **options: Any) -> Array:
        """As Group.all_reduce."""
        return await self._end(self.blocking.all_reduce(array, out, **options, wait=False))

    async def all_reduce_coalesced(self, inputs: Sequence[Array],
                                   out: Optional[Sequence[Array]] = None,
                                   **options: Any) -> Sequence[Array]:
        """As Group.all_reduce_coalesced."""
        return await self._end(
            self.blocking.all_reduce_coalesced(inputs, out, **options, wait=False))

    async def reduce(self, array: Array, root: int, out: Optional[Array] = None,
                     **options: Any) -> Optional[Array]:
        """As Group.reduce."""
        return await self._end(self.blocking.reduce(array, root, out, **options, wait=False))

    async def broadcast(self, array: Array, root: int, *, timeout: Timeout = None) -> Array:
        """As Group.broadcast."""
        return await self._end(self.blocking.broadcast(array, root, timeout=timeout, wait=False))

    async def all_gather(self, array: Array, out: Optional[Array] = None, **options: Any) -> Array:
        """As Group.all_gather."""
        return await self._end(self.blocking.all_gather(array, out, **options, wait=False))

    async def reduce_scatter(self, array: Array, out: Optional[Array] = None,
                             **options: Any) -> Array:
        """As Group.reduce_scatter."""
        return await self._end(self.blocking.reduce_scatter(array, out, **options, wait=False))

    async def all_to_all(self, array: Array, out: Optional[Array] = None, *,
                         timeout: Timeout = None) -> Array:
        """As Group.all_to_all."""
        return await self._end(self.blocking.all_to_all(array, out, timeout=timeout, wait=False))

    async def gather(self, array: Array, root: int, out: Optional[Array] = None,
                     **options: Any) -> Optional[Array]:
        """As Group.gather."""
        return await self._end(self.blocking.gather(array, root, out, **options, wait=False))

    async def scatter(self, array: Optional[Array], root: int, out: Array, **options: Any) -> Array:
        """As Group.scatter."""
        return await self._end(self.blocking.scatter(array, root, out, **options, wait=False))

    async def scan(self, array: Array, out: Optional[Array] = None, **options: Any) -> Array:
        """As Group.scan."""
        return await self._end(self.blocking.scan(array, out, **options, wait=False))

    async def exscan(self, array: Array, out: Optional[Array] = None, **options: Any) -> Array:
        """As Group.exscan."""
        return await self._end(self.blocking.exscan(array, out, **options, wait=False))

    async def all_gather_v(self, array: Array, sizes: Sequence[int], out: Optional[Array] = None,
                           **options: Any) -> Array:
        """As Group.all_gather_v."""
        return await self._end(self.blocking.all_gather_v(array, sizes, out, **options, wait=False))

    async def reduce_scatter_v(self, array: Array, sizes: Sequence[int],
                               out: Optional[Array] = None, **options: Any) -> Array:
        """As Group.reduce_scatter_v."""
        return await self._end(
            self.blocking.reduce_scatter_v(array, sizes, out, **options, wait=False))

    async def gather_v(self, array: Array, sizes: Sequence[int], root: int,
                       out: Optional[Array] = None, **options: Any) -> Optional[Array]:
        """As Group.gather_v."""
        return await self._end(
            self.blocking.gather_v(array, sizes, root, out, **options, wait=False))

    async def all_to_all_v(self, array: Array, input_sizes: Sequence[int],
                           output_sizes: Sequence[int], out: Optional[Array] = None, *,
                           timeout: Timeout = None) -> Array:
        """As Group.all_to_all_v."""
        return await self._end(self.blocking.all_to_all_v(
            array, input_sizes, output_sizes, out, timeout=timeout, wait=False))

    async def exchange_sizes(self, own: int, *, timeout: Timeout = None) -> List[int]:
        """As Group.exchange_sizes."""
        return await self._end(self.blocking.exchange_sizes(own, timeout=timeout, wait=False))

    async def barrier(self, *, timeout: Timeout = None) -> None:
        """As Group.barrier."""
        await self._end(self.blocking.barrier(timeout=timeout, wait=False))

    # --- Between two ranks.

    async def send(self, array: Array, destination: int, *, timeout: Timeout = None) -> None:
        """As Group.send."""
        await self._end(self.blocking.send(array, destination, timeout=timeout, wait=False))

    async def receive(self, out: Array, source: int, *, timeout: Timeout = None) -> Array:
        """As Group.receive."""
        return await self._end(self.blocking.receive(out, source, timeout=timeout, wait=False))

    async def exchange(self, sends: Sequence[Tuple[Array, int]],
                       receives: Sequence[Tuple[Array, int]], *, timeout: Timeout = None) -> None:
        """As Group.exchange."""
        await self._end(self.blocking.exchange(sends, receives, timeout=timeout, wait=False))

    # --- Objects. A thread of the library waits for each.

    async def send_object(self, obj: Any, destination: int, *, pickle: bool = False,
                          timeout: Timeout = None) -> None:
        """As Group.send_object."""
        await self._run(self._core.start_send_object, pack(obj, pickle), destination, timeout)

    async def receive_object(self, source: int, *, pickle: bool = False,
                             timeout: Timeout = None) -> Any:
        """As Group.receive_object."""
        inbox = self._inboxes.setdefault(source, Inbox())
        data = await inbox.take(self._core.start_receive_object, source, timeout, owner=self._calls)
        return unpack(self, 'receive_object', data, source, pickle)

    async def broadcast_object(self, obj: Any, root: int, *, pickle: bool = False,
                               timeout: Timeout = None) -> Any:
        """As Group.broadcast_object."""
        root, timeout, turn = check_root(self, 'broadcast_object', root, timeout)
        data = pack_or_refuse(obj, pickle) if self.rank == root else b''
        with turn:
            data = await self._run(self._core.start_broadcast_object, turn.refusal or data, root,
                                   timeout)
        return unpack(self, 'broadcast_object', data, root, pickle)

    async def all_gather_objects(self, obj: Any, *, pickle: bool = False,
                                 timeout: Timeout = None) -> List[Any]:
        """As Group.all_gather_objects."""
        timeout, turn = check_round(self, 'all_gather_objects', timeout)
        data = pack_or_refuse(obj, pickle)
        with turn:
            objects = await self._run(self._core.start_all_gather_objects, turn.refusal or data,
                                      timeout)
        return unpack_all(self, 'all_gather_objects', objects, pickle)

    # --- The end, and the next beginning.

    async def rejoin(self, timeout: Timeout = 60) -> None:
        """As Group.rejoin."""
        self._inboxes.clear()  # objects of ended generations are gone
        limit = seconds(timeout, self.blocking._join_timeout)
        await self._run(self._core.start_rejoin, limit)

    def abort(self, reason: str) -> None:
        """As Group.abort, which does not wait."""
        self.blocking.abort(reason)

    async def close(self) -> None:
        """Leaves the group; calls of objects that wait end with Cancelled. It may be called
        twice."""
        await self.__aexit__(None, None, None)

    @property
    def _core(self) -> Any:
        return self.blocking._core  # pylint: disable=protected-access

    async def _run(self, method: Any, *arguments: Any) -> Any:
        return await run(method, *arguments, owner=self._calls)

    async def _end(self, call: PendingCall) -> Any:
        """Awaits the call. If the task is cancelled, so is the call; the cancellation continues
        when the arrays of the call are free."""
        try:
            return await call
        except asyncio.CancelledError:
            call.cancel()
            try:
                await call
            except Error:
                pass
            raise
