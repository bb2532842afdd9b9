"""Membership in a group, objects between its ranks, and barriers, through the coordinator."""

import enum
from contextlib import suppress
from operator import index
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from cohort import _core
from cohort import _lifetime
from cohort._environment import coordinator_address, rank_and_size
from cohort._objects import (BytesLike, WrongRound, check_members, check_root, check_round, pack,
                             pack_all, pack_or_refuse, raise_refusal, shown, unpack, unpack_all,
                             wrong_objects, wrong_timeout)
from cohort.errors import Error
from cohort.facts import Facts
from cohort.group_info import GroupInfo, OpenWait, View, read_group_info
from cohort.timeouts import Timeout, seconds


_SECONDS_TO_LEAVE = 1.8


class VoteOp(enum.IntEnum):
    """How a vote combines the values of all members."""
    AND = 0
    OR = 1
    SUM = 2
    MIN = 3
    MAX = 4
    EQUAL = 5


class VoteResult(NamedTuple):
    """The result of a vote, the same on all members."""
    value: int
    dissenting: Tuple[int, ...]  # EQUAL: the ranks whose value differs from that of most


def wrong_vote(value: Any, op: Any) -> str:
    """Returns the fault of a vote, or an empty text."""
    try:
        VoteOp(op)
    except Exception:  # pylint: disable=broad-exception-caught
        return f'op: expected a VoteOp, got {shown(op)}'
    try:
        number = index(value)
    except Exception:  # pylint: disable=broad-exception-caught
        return f'value: expected an int, got {shown(value)}'
    return '' if -1 << 63 <= number < 1 << 63 else f'value: {shown(number)} has more than 64 bits'


def membership_options(group: str, *, world_size: Optional[int] = None, rank: Optional[int] = None,
                       address: Optional[str] = None, tenant: str = '', min_world_size: int = 0,
                       member: str = '', timeout: Timeout = 300, join_timeout: Timeout = 300,
                       lease: Timeout = 30, share_fate: bool = True,
                       data_expiration: Timeout = 3600, parameters_digest: str = '',
                       labels: Optional[Dict[str, str]] = None) -> dict:
    """The options as the extension module reads them. The environment replaces None."""
    rank, world_size = rank_and_size(rank, world_size)
    return {
        'group': group, 'address': coordinator_address(address), 'tenant': tenant, 'rank': rank,
        'world_size': world_size, 'min_world_size': min_world_size, 'member': member,
        'timeout': timeout, 'join_timeout': join_timeout, 'lease': lease, 'share_fate': share_fate,
        'data_expiration': data_expiration, 'parameters_digest': parameters_digest,
        'labels': [text for item in (labels or {}).items() for text in item],
    }


class ProcessGroup(Facts):
    """One membership in a process group.

        group = cohort.ProcessGroup("weights", rank=0, world_size=2, address="coordinator:7700")
        addresses = group.all_gather(b"10.0.0.4:4123")
        group.barrier()

    All methods may be called from any thread. They block for at most their timeout, in seconds or
    as a datetime.timedelta, and 2 seconds more if the coordinator does not answer. They release the
    GIL. `timeout=None` stands for the group's timeout, and for 30 seconds in barriers and votes. On
    the main thread the handlers of signals run during a call, and one that raises ends it. A wrong
    argument of one rank in a call of all is InvalidArgument there and an error of the others, with
    its rank; a wrong `name` counts as the default one. Each rank counts its calls of a name, so
    those of some `participants` alone have a name of their own.

    Errors of all methods: DeadlineExceeded (`missing` has the ranks that did not come), Aborted (the
    generation ended: call `rejoin`), Unavailable (the coordinator has not answered; it may still
    carry the call out), InvalidArgument, ResourceExhausted, FailedPrecondition (the members
    disagree, or this member has left).
    """

    _class_name = 'cohort.ProcessGroup'

    def __init__(self, group: str, *, world_size: Optional[int] = None, rank: Optional[int] = None,
                 address: Optional[str] = None, tenant: str = '', min_world_size: int = 0,
                 member: str = '', timeout: Timeout = 300, join_timeout: Timeout = 300,
                 lease: Timeout = 30, share_fate: bool = True, data_expiration: Timeout = 3600,
                 parameters_digest: str = '', labels: Optional[Dict[str, str]] = None):
        """Joins and blocks until the group is complete, at most `join_timeout`.

        Args:
          group: the group's name.
          world_size: how many members the group has; with min_world_size, the most that it may have.
            None: that of the launcher: the first that is set of WORLD_SIZE (torchrun),
            OMPI_COMM_WORLD_SIZE (mpirun) and SLURM_NTASKS (srun).
          rank: this member's rank. None: with `world_size` the coordinator assigns one; without it,
            the launcher's: RANK, OMPI_COMM_WORLD_RANK or SLURM_PROCID.
          address: the coordinator: "host:port", "[::1]:port" or "unix:/path". None: the environment
            variable COHORT_ADDRESS, or else 127.0.0.1:7700.
          tenant: the namespace of the group's name; empty: "default".
          min_world_size: not 0: the group is elastic, with at least so many members.
          member: a name that is unique in the group and stays the same after a restart. Empty:
            "rank-N", or "HOST-PID-RANDOM" without a rank.
          timeout: of calls without their own, in seconds.
          join_timeout: of joining, and of `rejoin` without a timeout, in seconds.
          lease: the silence in seconds after which a member is lost.
          share_fate: False: a lost member ends only the waits that need it.
          data_expiration: when unread objects expire, in seconds.
          parameters_digest: the same for all members.
          labels: shown by the coordinator beside the member.

        Raises:
          InvalidArgument: no `world_size`, and no launcher has set one.
          AlreadyExists: another live member holds the rank.
          FailedPrecondition: another specification than that of the other members.
          DeadlineExceeded: lists the ranks without a member.
        """
        self._core = _core.join_process_group(membership_options(
            group, world_size=world_size, rank=rank, address=address, tenant=tenant,
            min_world_size=min_world_size, member=member, timeout=timeout,
            join_timeout=join_timeout, lease=lease, share_fate=share_fate,
            data_expiration=data_expiration, parameters_digest=parameters_digest, labels=labels))
        _lifetime.close_at_exit(self)

    # --- Objects: bytes, which travel as they are, and all other values that cohort.values takes.
    # With pickle=True on both sides also others; a receiver of a pickle runs code of its sender.

    def send(self, obj: Any, destination: int, tag: str = '', timeout: Timeout = None, *,
             pickle: bool = False) -> None:
        """Puts an object into the mailbox of rank `destination`; does not wait for it.

        Objects from one rank to another arrive under one tag in the order of the calls. Source:
        StatelessProcessGroup.send_obj.
        """
        self._core.send(pack(obj, pickle), destination, tag, timeout)

    def receive(self, source: int, tag: str = '', timeout: Timeout = None, *,
                pickle: bool = False) -> Any:
        """Returns the next object of rank `source`. Raises DataLoss if objects expired unread."""
        data = self._core.receive(source, tag, timeout)
        return unpack(self, 'receive', data, source, pickle)

    def receive_any(self, tag: str = '', timeout: Timeout = None, *,
                    pickle: bool = False) -> Tuple[Any, int]:
        """Returns the oldest object from any rank, and that rank."""
        data, source = self._core.receive_any(tag, timeout)
        return unpack(self, 'receive_any', data, source, pickle), source

    def broadcast(self, obj: Any, root: int, *, name: str = '', participants: Sequence[int] = (),
                  timeout: Timeout = None, pickle: bool = False) -> Any:
        """Returns the root's object on every participant. All participants call it; the root does
        not block. Other ranks' `obj` is ignored. An object that cannot be sent is InvalidArgument
        on all of them, as in all_gather, gather and scatter."""
        participants = self._check('broadcast', name, participants)
        root, timeout, turn = check_root(self, 'broadcast', root, timeout)
        data = pack_or_refuse(obj, pickle) if self.rank == root else b''
        with turn:
            data = self._core.broadcast(turn.refusal or data, root, name, participants, timeout)
        return unpack(self, 'broadcast', data, root, pickle)

    def all_gather(self, obj: Any, *, name: str = '', participants: Sequence[int] = (),
                   timeout: Timeout = None, pickle: bool = False) -> List[Any]:
        """Returns the objects of all participants, by rank. All participants call it."""
        participants = self._check('all_gather', name, participants)
        timeout, turn = check_round(self, 'all_gather', timeout)
        data = pack_or_refuse(obj, pickle)
        with turn:
            objects = self._core.all_gather(turn.refusal or data, name, participants, timeout)
        return unpack_all(self, 'all_gather', objects, pickle, participants)

    def gather(self, obj: Any, root: int, *, name: str = '', participants: Sequence[int] = (),
               timeout: Timeout = None, pickle: bool = False) -> List[Any]:
        """Like all_gather, at the root; the others get an empty list. An object that cannot be sent
        is InvalidArgument on its rank and on the root."""
        participants = self._check('gather', name, participants)
        root, timeout, turn = check_root(self, 'gather', root, timeout)
        data = pack_or_refuse(obj, pickle)
        with turn:
            objects = self._core.gather(turn.refusal or data, root, name, participants, timeout)
        raise_refusal(self, 'gather', data, self.rank)
        return unpack_all(self, 'gather', objects, pickle, participants)

    def scatter(self, objs: Sequence[Any], root: int, *, name: str = '',
                participants: Sequence[int] = (), timeout: Timeout = None,
                pickle: bool = False) -> Any:
        """Returns this rank's object of the root's `objs`, which has one for each participant in
        order of rank. Other ranks pass an empty sequence. An object that cannot be sent is
        InvalidArgument on the rank that should get it."""
        root, timeout, turn = check_root(self, 'scatter', root, timeout)
        at_root = self.rank == root
        each = pack_all(objs, pickle) if at_root else ()
        participants = self._check('scatter', name, participants,
                                   wrong_objects(each) if at_root else '')
        if turn.refusal and each:
            each = [turn.refusal] * len(each)
        with turn:
            data = self._core.scatter(each, root, name, participants, timeout)
        return unpack(self, 'scatter', data, root, pickle)

    def _check(self, operation: str, name: str, participants: Sequence[int],
               wrong: str = '') -> Sequence[int]:
        try:
            return check_members(self, operation, name, participants, wrong)
        except WrongRound as call:
            with suppress(Error):
                self._core.refuse(*call.turn)
            raise call.error from None

    def expire_data(self, older_than: Timeout = None) -> int:
        """Frees undelivered objects older than so many seconds (None: the group's
        data_expiration). Returns their number."""
        return self._core.expire_data(older_than)

    @property
    def member(self) -> str:
        """This member's name."""
        return self._facts()[1]

    # --- Agreement.

    def barrier(self, *, name: str = '', participants: Sequence[int] = (),
                timeout: Timeout = None) -> None:
        """Blocks until all participants have called it.

        It takes one round trip and leaves nothing behind. DeadlineExceeded ends the barrier for all
        that wait in it.
        """
        participants = self._check('barrier', name, participants, wrong_timeout(timeout))
        self._core.barrier(name, participants, timeout)

    def cancel_barrier(self, name: str = '', reason: str = '') -> None:
        """Ends the open barrier `name` with Cancelled for all that wait in it."""
        self._core.cancel_barrier(name, reason)

    def vote(self, value: int, op: VoteOp, *, name: str = '', participants: Sequence[int] = (),
             timeout: Timeout = None) -> VoteResult:
        """Returns the combined value of all participants. All call it with the same `op`."""
        participants = self._check('vote', name, participants,
                                   wrong_vote(value, op) or wrong_timeout(timeout))
        return VoteResult(*self._core.vote(value, VoteOp(op), name, participants, timeout))

    def agree_alive(self, timeout: Timeout = 30) -> Tuple[int, ...]:
        """Returns the ranks that are alive; each of them gets the same answer. Works after a
        loss."""
        self._check('agree_alive', 'alive', (), wrong_timeout(timeout))
        return self._core.agree_alive(seconds(timeout, 30))

    # --- Unique ids of communicators, one set for each name and generation.

    def publish_unique_ids(self, name: str, ids: Sequence[BytesLike]) -> None:
        """Publishes ids, such as NCCL's. They are freed when all other members have fetched them."""
        self._core.publish_unique_ids(name, ids)

    def fetch_unique_ids(self, name: str, timeout: Timeout = None) -> List[bytes]:
        """Returns the ids that another member has published, or publishes within `timeout`."""
        return self._core.fetch_unique_ids(name, timeout)

    # --- Membership.

    def describe(self) -> GroupInfo:
        """Returns the group's members and state, fresh from the coordinator."""
        return read_group_info(self._core.describe())

    def who_is_missing(self) -> List[OpenWait]:
        """Returns the open waits of the group, each with the ranks that it misses."""
        return [OpenWait(*wait) for wait in self._core.who_is_missing()]

    def propose_view(self, *, remove: Sequence[int] = (), add: Sequence[str] = (),
                     timeout: Timeout = 30, drop_silent: bool = False) -> View:
        """Proposes the next view: without the ranks `remove`, and with the candidates `add`. Blocks
        until all members that stay have called `ack_view`. Raises Aborted at once if another proposal
        is in flight; the text names its proposer.

        Args:
          drop_silent: members that do not answer within `timeout` are removed as well.
        """
        return View(*self._core.propose_view(remove, add, seconds(timeout, 30), drop_silent))

    def ack_view(self, proposal: int, *, accept: bool = True, reason: str = '',
                 timeout: Timeout = 30) -> View:
        """Accepts or refuses a proposal, whose id is in `describe().proposal`, and blocks until all
        members have done so."""
        return View(*self._core.ack_view(proposal, accept, reason, seconds(timeout, 30)))

    def report_progress(self, counter: int, operation: str = '') -> None:
        """Shows the working thread's progress; does not block."""
        self._core.report_progress(counter, operation)

    def report_error(self, detail: str, *, fatal: bool = False,
                     suspected: Sequence[int] = ()) -> None:
        """Tells all members. A fatal error ends the generation for all."""
        self._core.report_error(detail, fatal, suspected)

    def rejoin(self, timeout: Timeout = None) -> None:
        """Joins the next generation, after Aborted, and blocks until that is complete. The rank and
        the world size may change."""
        self._core.rejoin(timeout)

    def leave(self, reason: str = '') -> None:
        """Leaves the group. The objects that this member sent stay readable."""
        self._core.leave(reason)

    def close_for_all(self, reason: str = '') -> None:
        """Ends the group for all members."""
        self._core.close_for_all(reason)

    def close(self) -> None:
        """Leaves, if `leave` was not called, and frees the connection. It may be called twice.
        Name, rank, size and generation stay readable."""
        self._keep_facts()
        self._core.release()

    def _start_leaving(self, why: str) -> None:
        self._core.start_release(why)

    def __enter__(self) -> 'ProcessGroup':
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            self.close()
            return
        # The other members may wait for calls that this one will not make.
        self._keep_facts()
        self._core.start_release(f'{kind.__name__}: {error}')
        _core.await_departures(_SECONDS_TO_LEAVE)
