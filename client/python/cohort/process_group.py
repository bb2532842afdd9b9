"""Membership in a group, objects between its ranks, and barriers, through the coordinator."""

import enum
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from cohort import _core
from cohort import _lifetime
from cohort.facts import Facts
from cohort.group_info import GroupInfo, OpenWait, View, read_group_info

BytesLike = Union[bytes, bytearray, memoryview]


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


def membership_options(group: str, *, world_size: int, rank: Optional[int] = None,
                       address: str = '127.0.0.1:7700', tenant: str = '', min_world_size: int = 0,
                       member: str = '', timeout: float = 300, join_timeout: float = 300,
                       lease: float = 30, share_fate: bool = True, data_expiration: float = 3600,
                       parameters_digest: str = '', labels: Optional[Dict[str, str]] = None) -> dict:
    """The options as the extension module reads them."""
    return {
        'group': group, 'address': address, 'tenant': tenant, 'rank': rank,
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

    All methods may be called from any thread. They block for at most their timeout, in seconds, and
    release the GIL meanwhile. `timeout=None` stands for the group's timeout. On the main
    thread the handlers of signals run during a call, and one that raises ends it.

    Errors of all methods: DeadlineExceeded (`missing` has the ranks that did not come), Aborted (the
    generation ended: call `rejoin`), Unavailable, InvalidArgument, ResourceExhausted,
    FailedPrecondition (the members disagree, or this member has left).
    """

    def __init__(self, group: str, *, world_size: int, rank: Optional[int] = None,
                 address: str = '127.0.0.1:7700', tenant: str = '', min_world_size: int = 0,
                 member: str = '', timeout: float = 300, join_timeout: float = 300,
                 lease: float = 30, share_fate: bool = True, data_expiration: float = 3600,
                 parameters_digest: str = '', labels: Optional[Dict[str, str]] = None):
        """Joins and blocks until the group is complete, at most `join_timeout`.

        Args:
          group: the group's name.
          world_size: how many members the group has; with min_world_size, the most that it may have.
          rank: this member's rank. None: the coordinator assigns one.
          address: the coordinator: "host:port", "[::1]:port" or "unix:/path".
          tenant: the namespace of the group's name; empty: "default".
          min_world_size: not 0: the group is elastic, with at least so many members.
          member: a name that is unique in the group and stays the same after a restart. Empty:
            "rank-N", or "HOST-PID" without a rank.
          timeout: of calls without their own, in seconds.
          join_timeout: of joining, and of `rejoin` without a timeout, in seconds.
          lease: the silence in seconds after which a member is lost.
          share_fate: False: a lost member ends only the waits that need it.
          data_expiration: when unread objects expire, in seconds.
          parameters_digest: the same for all members.
          labels: shown by the coordinator beside the member.

        Raises:
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

    # --- Objects. The bytes are never interpreted.

    def send(self, obj: BytesLike, destination: int, tag: str = '',
             timeout: Optional[float] = None) -> None:
        """Puts an object into the mailbox of rank `destination`; does not wait for it.

        Objects from one rank to another arrive under one tag in the order of the calls. Source:
        StatelessProcessGroup.send_obj.
        """
        self._core.send(obj, destination, tag, timeout)

    def receive(self, source: int, tag: str = '', timeout: Optional[float] = None) -> bytes:
        """Returns the next object of rank `source`. Raises DataLoss if objects expired unread."""
        return self._core.receive(source, tag, timeout)

    def receive_any(self, tag: str = '',
                    timeout: Optional[float] = None) -> Tuple[bytes, int]:
        """Returns the oldest object from any rank, and that rank."""
        return self._core.receive_any(tag, timeout)

    def broadcast(self, obj: Optional[BytesLike], root: int, *, name: str = '',
                  participants: Sequence[int] = (), timeout: Optional[float] = None) -> bytes:
        """Returns the root's object on every participant. All participants call it; the root does
        not block. Other ranks' `obj` is ignored."""
        return self._core.broadcast(obj or b'', root, name, participants, timeout)

    def all_gather(self, obj: BytesLike, *, name: str = '', participants: Sequence[int] = (),
                   timeout: Optional[float] = None) -> List[bytes]:
        """Returns the objects of all participants, by rank. All participants call it."""
        return self._core.all_gather(obj, name, participants, timeout)

    def gather(self, obj: BytesLike, root: int, *, name: str = '',
               participants: Sequence[int] = (), timeout: Optional[float] = None) -> List[bytes]:
        """Like all_gather, at the root; the others get an empty list."""
        return self._core.gather(obj, root, name, participants, timeout)

    def scatter(self, objs: Sequence[BytesLike], root: int, *, name: str = '',
                participants: Sequence[int] = (), timeout: Optional[float] = None) -> bytes:
        """Returns this rank's object of the root's `objs`, which has one for each participant in
        order of rank. Other ranks pass an empty sequence."""
        return self._core.scatter(objs, root, name, participants, timeout)

    def expire_data(self, older_than: Optional[float] = None) -> int:
        """Frees undelivered objects older than so many seconds (None: the group's
        data_expiration). Returns their number."""
        return self._core.expire_data(older_than)

    # --- Agreement.

    def barrier(self, *, name: str = '', participants: Sequence[int] = (),
                timeout: Optional[float] = None) -> None:
        """Blocks until all participants have called it; by default at most 30 seconds.

        It takes one round trip and leaves nothing behind. DeadlineExceeded ends the barrier for all
        that wait in it.
        """
        self._core.barrier(name, participants, timeout)

    def cancel_barrier(self, name: str = '', reason: str = '') -> None:
        """Ends the open barrier `name` with Cancelled for all that wait in it."""
        self._core.cancel_barrier(name, reason)

    def vote(self, value: int, op: VoteOp, *, name: str = '', participants: Sequence[int] = (),
             timeout: Optional[float] = None) -> VoteResult:
        """Returns the combined value of all participants. All call it with the same `op`."""
        return VoteResult(*self._core.vote(value, VoteOp(op), name, participants, timeout))

    def agree_alive(self, timeout: float = 30) -> Tuple[int, ...]:
        """Returns the ranks that are alive; each of them gets the same answer. Works after a
        loss."""
        return self._core.agree_alive(timeout)

    # --- Unique ids of communicators, one set for each name and generation.

    def publish_unique_ids(self, name: str, ids: Sequence[BytesLike]) -> None:
        """Publishes ids, such as NCCL's. They are freed when all other members have fetched them."""
        self._core.publish_unique_ids(name, ids)

    def fetch_unique_ids(self, name: str, timeout: Optional[float] = None) -> List[bytes]:
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
                     timeout: float = 30, drop_silent: bool = False) -> View:
        """Proposes the next view: without the ranks `remove`, and with the candidates `add`. Blocks
        until all members that stay have called `ack_view`. Raises Aborted at once if another proposal
        is in flight; the text names its proposer.

        Args:
          drop_silent: members that do not answer within `timeout` are removed as well.
        """
        return View(*self._core.propose_view(remove, add, timeout, drop_silent))

    def ack_view(self, proposal: int, *, accept: bool = True, reason: str = '',
                 timeout: float = 30) -> View:
        """Accepts or refuses a proposal, whose id is in `describe().proposal`, and blocks until all
        members have done so."""
        return View(*self._core.ack_view(proposal, accept, reason, timeout))

    def report_progress(self, counter: int, operation: str = '') -> None:
        """Shows the working thread's progress; does not block."""
        self._core.report_progress(counter, operation)

    def report_error(self, detail: str, *, fatal: bool = False,
                     suspected: Sequence[int] = ()) -> None:
        """Tells all members. A fatal error ends the generation for all."""
        self._core.report_error(detail, fatal, suspected)

    def rejoin(self, timeout: Optional[float] = None) -> None:
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
        """Leaves, if `leave` was not called, and frees the connection. It may be called twice."""
        self._core.release()

    def _start_leaving(self, why: str) -> None:
        self._core.start_release(why)

    def __enter__(self) -> 'ProcessGroup':
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
