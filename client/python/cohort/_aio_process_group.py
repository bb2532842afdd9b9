"""`cohort.ProcessGroup` for asyncio."""

import asyncio
from contextlib import suppress
from typing import Any, Dict, Generator, List, Optional, Sequence, Tuple

from cohort import _core
from cohort import _lifetime
from cohort._event_loop import Inbox, run
from cohort._objects import (WrongRound, check_members, check_root, check_round, pack, pack_all,
                             pack_or_refuse, raise_refusal, unpack, unpack_all, wrong_objects,
                             wrong_timeout)
from cohort.errors import Error
from cohort.facts import Facts
from cohort.group_info import GroupInfo, OpenWait, View, read_group_info
from cohort.process_group import BytesLike, VoteOp, VoteResult, membership_options, wrong_vote
from cohort.timeouts import Timeout, seconds


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
        if source is None:  # any rank, for _receive
            raise TypeError("source: expected an int, got <class 'NoneType'>")
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
        participants = await self._check('broadcast', name, participants)
        root, timeout, turn = check_root(self, 'broadcast', root, timeout)
        data = pack_or_refuse(obj, pickle) if self.rank == root else b''
        with turn:
            data = await run(self._core.start_broadcast, turn.refusal or data, root, name,
                             participants, timeout)
        return unpack(self, 'broadcast', data, root, pickle)

    async def all_gather(self, obj: Any, *, name: str = '', participants: Sequence[int] = (),
                         timeout: Timeout = None, pickle: bool = False) -> List[Any]:
        """As ProcessGroup.all_gather."""
        participants = await self._check('all_gather', name, participants)
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
        participants = await self._check('gather', name, participants)
        root, timeout, turn = check_root(self, 'gather', root, timeout)
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
        root, timeout, turn = check_root(self, 'scatter', root, timeout)
        at_root = self.rank == root
        each = pack_all(objs, pickle) if at_root else ()
        participants = await self._check('scatter', name, participants,
                                         wrong_objects(each) if at_root else '')
        if turn.refusal and each:
            each = [turn.refusal] * len(each)
        with turn:
            data = await run(self._core.start_scatter, each, root, name, participants, timeout)
        return unpack(self, 'scatter', data, root, pickle)

    async def _check(self, operation: str, name: str, participants: Sequence[int],
                     wrong: str = '') -> Sequence[int]:
        try:
            return check_members(self, operation, name, participants, wrong)
        except WrongRound as call:
            with suppress(Error):
                await run(self._core.start_refuse, *call.turn)
            raise call.error from None

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
        participants = await self._check('barrier', name, participants, wrong_timeout(timeout))
        await run(self._core.start_barrier, name, participants, timeout)

    async def cancel_barrier(self, name: str = '', reason: str = '') -> None:
        """As ProcessGroup.cancel_barrier."""
        await run(self._core.start_cancel_barrier, name, reason)

    async def vote(self, value: int, op: VoteOp, *, name: str = '',
                   participants: Sequence[int] = (),
                   timeout: Timeout = None) -> VoteResult:
        """As ProcessGroup.vote."""
        participants = await self._check('vote', name, participants,
                                         wrong_vote(value, op) or wrong_timeout(timeout))
        return VoteResult(*await run(self._core.start_vote, value, VoteOp(op), name, participants,
                                       timeout))

    async def agree_alive(self, timeout: Timeout = 30) -> Tuple[int, ...]:
        """As ProcessGroup.agree_alive."""
        await self._check('agree_alive', 'alive', (), wrong_timeout(timeout))
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
