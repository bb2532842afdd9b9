"""The calls of the matrix: how a rank makes each of them, and the value that it must return.

A call is a function of a Context. The function has the same text on all ranks: rank 0 is the subject
of a pair, rank 1 the peer that the call needs, and rank 2, if there is one, a bystander. Arguments come
from the context, which makes a wrong one if the variant of the call says so.
"""

import signal
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

import cohort

TRACE_SIGNAL = signal.SIGRTMIN + 7
# The timeout of groups, in seconds: a call that should end otherwise must not need it.
PATIENCE = 5
JOIN_PATIENCE = 8

# --- The kinds of calls. The rules are about kinds.

# All ranks call it, in order, and it moves tensors from rank to rank.
COLLECTIVE = 'collective'
# As COLLECTIVE; only two ranks take part.
MESSAGE = 'message'
# A value of a MessageQueue.
QUEUE = 'queue'
# All ranks call it, and it moves objects through the coordinator.
ROUND = 'round'
# As ROUND; a rank needs the root alone.
ROOTED = 'rooted round'
# It waits for an object of the peer at the coordinator.
MAILBOX = 'mailbox'
# It waits for a key or a queue of the store, which any program may write.
KEY = 'key'
# It asks the coordinator, and waits for no rank.
REQUEST = 'request'
# It waits until the peer has joined the group.
JOIN = 'join'

KINDS = (COLLECTIVE, MESSAGE, QUEUE, ROUND, ROOTED, MAILBOX, KEY, REQUEST, JOIN)


class Context:
    """The state of a rank for its call: its place, its objects, and the arguments of this turn."""

    def __init__(self, spec: Dict[str, Any]):
        self.rank, self.size = spec['rank'], spec['size']
        self.name, self.address = spec['name'], spec['address']
        self.form, self.workers = spec['form'], spec['workers']
        self.folder = spec['folder']
        self.elements = spec['elements']
        self.ends_interpreter = spec['elements'] < 100
        self.mode = spec['mode']
        self.patience = spec.get('patience', PATIENCE)
        self.coordinator_goes = spec.get('gone', False)
        self.variant, self.timeout, self.step = 'right', None, 0
        self.started = False  # a call is started, and no thread waits for it
        self.made: Dict[str, Any] = {}  # objects beside the group
        self.group: Any = None

    def options(self, **more: Any) -> Dict[str, Any]:
        """The keywords `timeout` and `wait`, as far as they are set."""
        if self.timeout is not None:
            more['timeout'] = self.timeout
        if self.mode in ('pending', 'await'):
            more['wait'] = False
        return more

    def form_options(self) -> Dict[str, Any]:
        """How this rank takes its place."""
        if self.form == 'self':
            return {'address': self.address}
        return {'worker': self.workers[self.rank % len(self.workers)],
                'attached': self.form == 'attached'}

    def join(self, name: str = '') -> Any:
        """A cohort.Group of all ranks."""
        return cohort.Group(name or self.name, rank=self.rank, world_size=self.size,
                            timeout=self.patience, join_timeout=self.timeout or JOIN_PATIENCE,
                            **self.form_options())

    # --- Values that tell ranks and turns apart.

    def value(self, rank: int) -> int:
        """The value of a rank in this turn."""
        return rank + 1 + 10 * self.step

    @property
    def total(self) -> int:
        """The sum of the values of all ranks."""
        return sum(self.value(rank) for rank in range(self.size))

    def full(self, value: Any, elements: int = 0) -> np.ndarray:
        """An array of one value."""
        return np.full(elements or self.elements, value, np.float64)

    def array(self, elements: int = 0) -> Any:
        """This rank's array; a wrong one if the variant is "type" or "shape"."""
        if self.variant == 'type':
            return np.array([None] * 3)
        elements = elements or self.elements
        return self.full(self.value(self.rank), elements + 2 * (self.variant == 'shape'))

    def zeros(self, elements: int = 0) -> Any:
        """An array to receive into; a wrong one as `array`."""
        if self.variant == 'type':
            return np.array([None] * 3)
        return np.zeros((elements or self.elements) + 2 * (self.variant == 'shape'))

    def parts(self, values: Sequence[Any], elements: int = 0) -> np.ndarray:
        """Arrays of one value each, behind each other."""
        return np.concatenate([self.full(value, elements) for value in values])

    def object(self, rank: int = -1) -> Any:
        """The object of a rank, by default this one; no value if the variant is "type"."""
        if self.variant == 'type':
            return object()
        return b'object %d of rank %d' % (self.step, self.rank if rank < 0 else rank)

    def objects(self) -> List[bytes]:
        """The objects of all ranks."""
        return [self.object(rank) for rank in range(self.size)]

    def at(self, rank: int) -> int:
        """The rank; one that is not in the group if the variant is "rank"."""
        return 99 if self.variant == 'rank' else rank


class Call(NamedTuple):
    """A call in one mode and one form.

    Attributes:
      wrong: the variants of wrong arguments.
      waits: rank 0 waits in it until the others have called.
      peer_waits: so does rank 1.
      sender: the rank that sends a message or the objects of a round; None: all do.
      is_told: the receiver hears of a mistake of the sender at once.
      are_told: each of the two ranks of a message hears of a mistake of the other one at once.
      is_async: the functions return coroutines.
    """
    name: str
    front: str
    kind: str
    mode: str
    form: str
    run: Callable[[Context], Any]
    expect: Callable[[Context], Any]
    prepare: Callable[[Context], Any]
    follow: Callable[[Context], Any]
    follow_expected: Callable[[Context], Any]
    rejoin: Callable[[Context], Any]
    leave: Callable[[Context], Any]
    close: Callable[[Context, Any], Any]
    wrong: Tuple[str, ...] = ()
    waits: bool = True
    peer_waits: bool = True
    is_async: bool = False
    needs_torch: bool = False
    sender: Optional[int] = None
    is_told: bool = False
    are_told: bool = False

    @property
    def id(self) -> str:
        """The text that names it on the command line."""
        return f'{self.front}.{self.name}/{self.mode}@{self.form}'


def same(value: Any, wanted: Any) -> bool:
    """Whether a value is the right one: arrays by their elements, and the rest by ==."""
    if wanted is ANY:
        return True
    if hasattr(value, 'detach'):
        value = value.detach().numpy()
    if isinstance(wanted, np.ndarray):
        return isinstance(value, np.ndarray) and np.array_equal(value.reshape(-1), wanted.reshape(-1))
    if isinstance(wanted, (list, tuple)):
        return (isinstance(value, (list, tuple)) and len(value) == len(wanted)
                and all(same(*each) for each in zip(value, wanted)))
    if isinstance(wanted, dict):
        return (isinstance(value, dict) and list(value) == list(wanted)
                and all(same(value[key], wanted[key]) for key in wanted))
    if isinstance(value, np.ndarray):
        return False
    return value == wanted


# Any value is right.
ANY = object()

BY_NAME: Dict[str, Call] = {}


def add(**facts: Any) -> None:
    """Adds a call to the table."""
    call = Call(**facts)
    assert call.id not in BY_NAME, call.id
    assert call.kind in KINDS, call.kind
    BY_NAME[call.id] = call


def load() -> None:
    """Fills the table. The modules of calls import this one, so they are imported last."""
    # pylint: disable=import-outside-toplevel,unused-import,cyclic-import
    from matrix import calls_group, calls_objects, calls_torch, planted
    assert BY_NAME


load()
