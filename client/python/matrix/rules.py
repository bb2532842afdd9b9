"""The table of the matrix: what each rank may do in each pair of a kind of call and an event.

    python3 -m matrix.run --rules          # prints it

Rank 0 is the subject: it makes the call, and it is in the call when the event happens if the call
waits. Rank 1 is the peer that the call needs, and rank 2 a bystander. A rank that is not named in a row
is not judged. A pair without a row is not in the matrix.
"""

from typing import Any, List, NamedTuple, Optional, Sequence

from matrix.calls import (COLLECTIVE, JOIN, KEY, MAILBOX, MESSAGE, QUEUE, REQUEST, ROOTED, ROUND)

# Seconds: an event is known to the others, and a process has ended.
AT_ONCE = 1.0
END = 2.0
# The timeouts of the pairs that have one.
SHORT = 0.4
WITHOUT_COORDINATOR = 1.5
# A call that waits at a coordinator that does not answer gives up so long after its timeout.
MARGIN = 2.0
# Added to each limit, because the machine is busy.
SLACK = 1.0


class Pattern:
    """The allowed outcomes."""

    def check(self, outcome: dict, since: float) -> Optional[str]:
        """Returns None, or how the outcome differs. `since`: when the event happened."""
        raise NotImplementedError


def _shown(outcome: dict) -> str:
    if outcome['kind'] == 'value':
        return 'returns' + ('' if outcome['right'] else f' a wrong value: {outcome["value"]}')
    if outcome['kind'] == 'ended':
        return f'ends with the status {outcome["status"]}'
    return f'raises {outcome["class"]}: {outcome["text"][:300]}'


class Completes(Pattern):
    """The call returns the right value."""

    def check(self, outcome, since):
        if outcome['kind'] == 'value' and outcome['right']:
            return None
        return f'{_shown(outcome)}; it must complete with the right value'

    def __str__(self):
        return 'completes'


class Raises(Pattern):
    """The call raises one of these exceptions in time, with the name of a rank if one is given."""

    def __init__(self, *classes: str, names: Optional[int] = None, within: float = AT_ONCE):
        self.classes, self.names, self.within = classes, names, within

    def check(self, outcome, since):
        if outcome['kind'] != 'error':
            return f'{_shown(outcome)}; it must raise {" or ".join(self.classes)}'
        # A future of PyTorch raises a RuntimeError of its own, with the text.
        if not set(self.classes) & set(outcome['classes']) and not any(
                f'{name}: ' in outcome['text'] for name in self.classes):
            # PyTorch promises that of its monitored barrier.
            if not outcome['text'].startswith('monitored_barrier of process group'):
                return f'{_shown(outcome)}; it must raise {" or ".join(self.classes)}'
        if self.names is not None and not _names(outcome, self.names):
            return f'{_shown(outcome)}; it must name rank {self.names}'
        late = _late(outcome, since)
        if late > self.within + SLACK:
            return f'late: {late:.1f} s, allowed {self.within:g} s: {_shown(outcome)}'
        return None

    def __str__(self):
        text = '|'.join(self.classes)
        if self.names is not None:
            text += f' naming rank {self.names}'
        return f'{text} in {self.within:g} s'


def _late(outcome: dict, since: float) -> float:
    """How long the rank took, without the time for which it waited for a processor."""
    return outcome['at'] - since - min(outcome.get('waited', 0), outcome['at'] - since)


def _names(outcome: dict, rank: int) -> bool:
    text = outcome['text'].lower()
    return (outcome['culprit'] == rank or rank in outcome['missing'] or f'rank {rank}' in text
            or f'rank-{rank}' in text or (f'ranks {rank}' in text))


class Exits(Pattern):
    """The process ends with one of these statuses in time."""

    def __init__(self, *statuses: int, within: float = END):
        self.statuses, self.within = statuses, within

    def check(self, outcome, since):
        if outcome['kind'] != 'ended' or outcome['status'] not in self.statuses:
            return (f'{_shown(outcome)}; the process must end with the status '
                    f'{" or ".join(map(str, self.statuses))}')
        late = _late(outcome, since)
        if late > self.within + SLACK:
            return f'late: the process ends after {late:.1f} s, allowed {self.within:g} s'
        return None

    def __str__(self):
        return f'exits with {"|".join(map(str, self.statuses))} in {self.within:g} s'


class Either(Pattern):
    """One of several."""

    def __init__(self, *patterns: Pattern):
        self.patterns = patterns

    def check(self, outcome, since):
        found = [pattern.check(outcome, since) for pattern in self.patterns]
        return None if None in found else found[-1]

    def __str__(self):
        return ', or '.join(map(str, self.patterns))


class Ends(Pattern):
    """The call ends in any way in time."""

    def __init__(self, within: float = AT_ONCE):
        self.within = within

    def check(self, outcome, since):
        if outcome['kind'] == 'value' and not outcome['right']:
            return _shown(outcome)
        late = _late(outcome, since)
        if late > self.within + SLACK:
            return f'late: {late:.1f} s, allowed {self.within:g} s: {_shown(outcome)}'
        return None

    def __str__(self):
        return f'ends in {self.within:g} s'


COMPLETES = Completes()
# The errors of a rank's own mistake there: PyTorch checks some arguments itself.
_MISTAKE = ('InvalidArgument', 'ValueError', 'TypeError', 'RuntimeError')


def names(rank: int, within: float = AT_ONCE) -> Pattern:
    """The call ends, and its error names the rank that is gone."""
    return Raises('Aborted', 'Cancelled', names=rank, within=within)


def times_out(rank: int, timeout: float) -> Pattern:
    """The timeout ends the call, and its error names the missing rank."""
    return Raises('DeadlineExceeded', names=rank, within=timeout + AT_ONCE)


def refused(rank: int) -> Pattern:
    """The error of another rank's wrong argument."""
    return Raises('InvalidArgument', names=rank)


def mismatched(rank: int) -> Pattern:
    """The end of a round in which another rank has a wrong root."""
    return Raises('FailedPrecondition', 'InvalidArgument', names=rank)


MISTAKE = Raises(*_MISTAKE)
HANDLER = Raises('Stop')
# A watch that is closed ends without an error.
CLOSED = Raises('Cancelled', 'FailedPrecondition', 'Aborted', 'StopIteration', 'StopAsyncIteration')
FORKED = Raises('FailedPrecondition')
AWAY = Raises('Unavailable', 'DeadlineExceeded', within=WITHOUT_COORDINATOR + AT_ONCE)
SILENT = Raises('Unavailable', 'DeadlineExceeded', within=SHORT + MARGIN + AT_ONCE)


class Row(NamedTuple):
    """A row of the table.

    Attributes:
      events: names of events; "wrong_here" stands for all variants of it that have no row before.
      subject, peer, other: what ranks 0, 1 and 2 may do. `other` means that there is a rank 2.
      child: what a call in the forked child may do.
      after: "in step": a later call completes on all ranks; "rejoin": so it does after a rejoin;
        "again": the same call with the right arguments completes on all ranks, and a later one.
      end: how the processes that are still there end when they return.
    """
    events: Sequence[str]
    kinds: Sequence[str]
    subject: Optional[Pattern] = None
    peer: Optional[Pattern] = None
    other: Optional[Pattern] = None
    child: Optional[Pattern] = None
    after: Optional[str] = None
    end: Pattern = Exits(0)


_ALL_CALL = (COLLECTIVE, ROUND, ROOTED)
_PAIR = (MESSAGE, QUEUE, MAILBOX)
_NEED_PEER = (COLLECTIVE, ROUND, ROOTED, MESSAGE, QUEUE, MAILBOX)
_WAIT = (COLLECTIVE, ROUND, ROOTED, MESSAGE, QUEUE, MAILBOX, KEY, JOIN)
_COORDINATOR = (ROUND, ROOTED, MAILBOX, KEY, REQUEST, JOIN)
_OWN = (ROUND, ROOTED, MAILBOX, KEY, REQUEST, QUEUE)

TABLE: List[Row] = [
    # --- A rank is gone, or silent.
    Row(['peer_killed'], _NEED_PEER, subject=names(1)),
    Row(['peer_killed'], (REQUEST,), subject=Either(COMPLETES, names(1))),
    Row(['other_killed'], _ALL_CALL, subject=names(2), peer=Either(COMPLETES, names(2))),
    Row(['other_killed'], _PAIR, subject=Either(COMPLETES, names(2)),
        peer=Either(COMPLETES, names(2), names(0))),
    Row(['other_killed'], (KEY,), subject=COMPLETES, peer=COMPLETES),
    Row(['peer_left'], _NEED_PEER, subject=names(1)),
    Row(['peer_left'], (REQUEST,), subject=Either(COMPLETES, names(1))),
    Row(['other_left'], (COLLECTIVE, ROUND), subject=names(2), peer=Either(COMPLETES, names(2))),
    Row(['other_left'], _PAIR + (ROOTED, KEY), subject=COMPLETES, peer=COMPLETES, other=Exits(0)),
    Row(['peer_raised'], _NEED_PEER, subject=names(1), peer=Exits(1)),
    Row(['peer_stopped', 'timeout'], (COLLECTIVE,), subject=times_out(1, SHORT), after='rejoin'),
    Row(['peer_stopped', 'timeout'], (MESSAGE, QUEUE, ROUND, ROOTED, MAILBOX),
        subject=times_out(1, SHORT)),
    Row(['timeout'], (KEY,), subject=COMPLETES, after='in step'),
    Row(['peer_stopped', 'timeout'], (JOIN,), subject=times_out(1, SHORT)),

    # --- A wrong argument of one rank. In a round, an object that cannot be sent and a wrong root take
    # their turn, and are an error of all ranks that wait.
    Row(['wrong_here-type'], (ROUND, ROOTED), subject=MISTAKE, peer=refused(0), after='in step'),
    Row(['wrong_there-type'], (ROUND, ROOTED), subject=refused(1), peer=MISTAKE, after='in step'),
    Row([f'wrong_here-{variant}' for variant in ('rank', 'name', 'participants')], (ROUND, ROOTED),
        subject=MISTAKE, peer=mismatched(0), after='in step'),
    Row([f'wrong_there-{variant}' for variant in ('rank', 'name', 'participants')], (ROUND, ROOTED),
        subject=mismatched(1), peer=MISTAKE, after='in step'),
    Row(['wrong_here'], (COLLECTIVE,), subject=MISTAKE, peer=refused(0), after='in step'),
    Row(['wrong_there'], (COLLECTIVE,), subject=refused(1), peer=MISTAKE, after='in step'),
    # Two ranks take part in a message. The other one is refused, too. In cohort.Group it may also wait
    # until the rank that made the mistake calls again. For sizes that do not fit, the sender may have
    # returned.
    Row(['wrong_here'], (MESSAGE,), subject=MISTAKE, peer=Either(refused(0), COMPLETES),
        after='in step'),
    Row(['wrong_there'], (MESSAGE,), subject=Either(refused(1), COMPLETES), peer=MISTAKE,
        after='in step'),
    Row(['wrong_here'], _OWN, subject=MISTAKE, after='again'),
    Row(['wrong_there'], _OWN, peer=MISTAKE, after='again'),

    # --- Signals. Python's handler decides.
    Row(['handler_returns'], _WAIT, subject=COMPLETES, peer=COMPLETES, after='in step'),
    Row(['handler_raises'], (COLLECTIVE,), subject=HANDLER, peer=Either(names(0), COMPLETES),
        after='rejoin'),
    Row(['handler_raises'], (MESSAGE,), subject=HANDLER, peer=Either(names(0), COMPLETES)),
    Row(['handler_raises'], (QUEUE, ROUND, ROOTED, MAILBOX, KEY), subject=HANDLER, after='again'),
    Row(['handler_raises'], (JOIN,), subject=HANDLER),
    Row(['ctrl_c'], _ALL_CALL, subject=Exits(-2, 130), peer=Either(names(0), COMPLETES)),
    Row(['ctrl_c'], _PAIR + (KEY, JOIN), subject=Exits(-2, 130)),

    # --- The end of the call, of the object or of the process.
    Row(['close_on_thread'], _ALL_CALL, subject=CLOSED, peer=Either(names(0), COMPLETES)),
    Row(['close_on_thread'], _PAIR + (KEY,), subject=CLOSED),
    Row(['exit_during'], _ALL_CALL, subject=Exits(7), peer=Either(names(0), COMPLETES)),
    Row(['exit_during'], _PAIR + (KEY, JOIN), subject=Exits(7)),
    Row(['raise_during'], _ALL_CALL, subject=Exits(1), peer=Either(names(0), COMPLETES)),
    Row(['raise_during'], _PAIR + (KEY, JOIN), subject=Exits(1)),

    # --- A forked child is no rank.
    Row(['fork_before'], (COLLECTIVE, ROUND, ROOTED, MESSAGE, QUEUE, MAILBOX, KEY, REQUEST),
        subject=COMPLETES, peer=COMPLETES, child=FORKED, after='in step'),
    Row(['fork_during'], (COLLECTIVE, ROUND, ROOTED, MESSAGE, QUEUE, MAILBOX, KEY), subject=COMPLETES,
        peer=COMPLETES, child=FORKED, after='in step'),
    Row(['killed_with_child'], (COLLECTIVE, ROUND, ROOTED), peer=names(0)),

    # --- The coordinator is gone, or it does not answer any more.
    Row(['coordinator_gone', 'coordinator_stopped'], (COLLECTIVE, MESSAGE, QUEUE), subject=COMPLETES,
        peer=COMPLETES),
    Row(['coordinator_gone'], _COORDINATOR, subject=AWAY),
    Row(['coordinator_stopped'], _COORDINATOR, subject=SILENT),
]

# The events in which no coordinator answers.
WITHOUT = ('coordinator_gone', 'coordinator_stopped')
# These requests change the group, so nothing follows them.
_ENDING = ('group.abort',)
# They take no timeout, so only the group's timeout ends them.
_WITHOUT_TIMEOUT = ('regions.reduce_from', 'regions.all_to_all', 'vllm.all_reduce', 'vllm.broadcast',
                    'vllm.gather', 'vllm.broadcast_obj', 'vllm.all_gather_obj', 'vllm.recv_obj',
                    'vllm.recv', 'Store.watch', 'aio.Store.watch')
# Collectives that form groups, and so need the coordinator.
FORMING = ('cohort.create_groups', 'cohort.create_layout', 'MessageQueue.create')
# They take a message of any rank, so their timeout names none.
_ANY_SOURCE = ('torch.recv_any', 'ProcessGroup.receive_any', 'aio.ProcessGroup.receive_any')
# They need nothing but this process.
_LOCAL = ('group.facts', 'group.abort', 'report_progress')


def rule(call: Any, event: str) -> Optional[Row]:
    """Returns the row of a call and an event; None if the pair is not in the matrix."""
    name, _, variant = event.partition('-')
    full = f'{call.front}.{call.name}'
    if name in ('wrong_here', 'wrong_there'):
        if variant not in call.wrong:
            return None
        # Rank 1 has no wrong argument in a call that is another one there.
        if name == 'wrong_there' and call.kind in (REQUEST, KEY, MAILBOX, QUEUE):
            return None
        # The receiver of a pipeline or a map passes no array.
        if call.is_told and (name == 'wrong_here') != (call.sender == 0):
            return None
    if full in _ENDING and name not in WITHOUT:
        return None
    if full in _WITHOUT_TIMEOUT and name in ('timeout', 'peer_stopped'):
        return None
    # A watch tells silence by the bookmarks that do not come: it takes longer than a pair may.
    if name == 'coordinator_stopped' and full in ('Store.watch', 'aio.Store.watch'):
        return None
    # torch.futures.Future.wait of PyTorch blocks in C++, where no handler runs.
    if call.mode == 'future' and name in ('handler_returns', 'handler_raises', 'ctrl_c'):
        return None
    if name == 'killed_with_child' and not call.peer_waits:
        return None
    if name in ('peer_killed', 'peer_left') and full.startswith(('Store', 'aio.Store')):
        return None
    # The other ranks' objects are ignored.
    if call.kind in (ROUND, ROOTED) and variant == 'type' and call.sender is not None \
            and (name == 'wrong_here') != (call.sender == 0):
        return None
    for row in TABLE:
        if (name in row.events or event in row.events) and call.kind in row.kinds:
            if full in _ANY_SOURCE and name in ('timeout', 'peer_stopped'):
                return row._replace(subject=Raises('DeadlineExceeded', within=SHORT + AT_ONCE))
            if full in FORMING and name in WITHOUT:
                # A call that forms groups waits seven times, as its docstring says.
                away = Raises('Unavailable', 'DeadlineExceeded',
                              within=7 * WITHOUT_COORDINATOR + MARGIN)
                return row._replace(subject=away, peer=away)
            if call.name in _LOCAL or full in _LOCAL:
                if name in WITHOUT:
                    return row._replace(subject=COMPLETES)
                if name == 'fork_before':
                    return None
            return row
    return None


def print_table() -> None:
    """Prints the table, a line for each row."""
    for row in TABLE:
        print(f'{", ".join(row.events)}  x  {", ".join(row.kinds)}')
        for who, pattern in (('rank 0', row.subject), ('rank 1', row.peer), ('rank 2', row.other),
                             ('child', row.child), ('afterwards', row.after), ('end', row.end)):
            if pattern is not None:
                print(f'    {who}: {pattern}')
