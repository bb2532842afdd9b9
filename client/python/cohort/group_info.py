"""Descriptions of groups, from the coordinator."""

from typing import Dict, List, NamedTuple, Optional, Tuple


class Member(NamedTuple):
    """A member of a group. A candidate, which waits to be added to a view, has rank -1."""
    name: str
    rank: int
    state: str
    host: str
    labels: Dict[str, str]
    last_heard: float  # seconds ago
    progress_operation: str


class OpenWait(NamedTuple):
    """A wait that members have not ended yet."""
    operation: str
    missing: Tuple[int, ...]  # the ranks that have not come
    arrived: Tuple[int, ...]
    age: float  # seconds
    remaining: float  # seconds until it ends with DeadlineExceeded


class ViewProposal(NamedTuple):
    """The next view, which all members that stay have to acknowledge."""
    id: int
    proposer: str
    remove: Tuple[int, ...]
    add: List[str]
    world_size: int


class View(NamedTuple):
    """A view after a proposal. This member has rank -1 if it is no longer in it."""
    generation: int
    rank: int
    world_size: int


class GroupInfo(NamedTuple):
    """A group: its members by rank, and then its candidates."""
    name: str
    generation: int
    state: str  # "forming", "active", "broken" or "closed"
    min_world_size: int
    max_world_size: int
    world_size: int
    members: List[Member]
    proposal: Optional[ViewProposal]

    @property
    def candidates(self) -> List[Member]:
        """The members that wait to be added to a view."""
        return [member for member in self.members if member.rank < 0]


def read_group_info(facts: tuple) -> GroupInfo:
    """Returns the info of the module's tuple."""
    *first, members, proposal = facts
    return GroupInfo(*first, [Member(*member) for member in members],
                     None if proposal is None else ViewProposal(*proposal))
