"""The events of the matrix: what happens to the ranks of a pair, and when.

An event is a function of the scene and the row of its rule. It raises Violation at the first outcome
that the row does not allow. Nothing here waits for a time: an event happens when a rank has said that
it is so far, and when its thread sleeps in the call. One file, though long: an event is a few lines.
"""

import os
import signal
import time
from typing import Callable, Dict

from matrix import rules
from matrix.calls import COLLECTIVE, MESSAGE, QUEUE, REQUEST, ROOTED, ROUND
from matrix.outcomes import (PATIENCE, Violation, complete, end_all, end_of, enter, follow, judge,
                             judge_call, let_others_call, outcome_of)
from matrix.rules import AT_ONCE, END, SHORT, SLACK, WITHOUT_COORDINATOR
from matrix.scene import Fault, RankHandle, Scene

# --- A rank is gone, or silent.


def _lose(scene: Scene, row, lost: int, lose: Callable[[RankHandle], float]) -> None:
    subject, gone = scene.ranks[0], scene.ranks[lost]
    if not scene.call.waits:
        since = lose(gone)
        subject.call()
        judge_call(subject, row.subject, max(since, time.monotonic()))
        return
    enter(subject, True)
    since = lose(gone)
    if row.other is not None:
        gone.tell('exit', status=0)
        judge(f'rank {lost}', row.other, end_of(gone), time.monotonic(), gone)
    all_call = scene.call.kind in (COLLECTIVE, ROUND, ROOTED)
    if lost == 2 and (not all_call or row.subject is rules.COMPLETES):
        complete(scene, row)
        return
    judge_call(subject, row.subject, since)
    if lost == 2 and row.peer is not None:
        since = time.monotonic()
        scene.ranks[1].call()
        judge_call(scene.ranks[1], row.peer, since)


def _kill(rank: RankHandle) -> float:
    since = rank.signal(signal.SIGKILL)
    rank.end(5)
    return since


def _leave(rank: RankHandle) -> float:
    # A process group of PyTorch waits for the others before it leaves.
    rank.ask('leave')
    return time.monotonic()


def peer_killed(scene, row):
    """SIGKILL for the rank that the call needs."""
    _lose(scene, row, 1, _kill)


def other_killed(scene, row):
    """SIGKILL for a bystander; the others call."""
    _lose(scene, row, 2, _kill)


def peer_left(scene, row):
    """The rank that the call needs closes its object."""
    _lose(scene, row, 1, _leave)


def other_left(scene, row):
    """A bystander closes its object and ends; the others call."""
    _lose(scene, row, 2, _leave)


def peer_raised(scene, row):
    """The rank that the call needs ends with an exception."""
    def fail(rank):
        since = time.monotonic()
        rank.ask('raise')
        return since
    subject, peer = scene.ranks
    enter(subject, scene.call.waits)
    since = fail(peer)
    judge_call(subject, row.subject, since)
    judge('rank 1', row.peer, end_of(peer), since, peer)


def peer_stopped(scene, row):
    """SIGSTOP for the rank that the call needs."""
    subject, peer = scene.ranks
    peer.signal(signal.SIGSTOP)
    subject.call(timeout=SHORT)
    began = subject.wait('calling', 10, 'begin its call')
    judge_call(subject, row.subject, began['at'])
    peer.signal(signal.SIGCONT)
    follow(scene, row)


def timeout(scene, row):
    """The others do not call."""
    subject = scene.ranks[0]
    subject.call(timeout=SHORT)
    began = subject.wait('calling', 10, 'begin its call')
    judge_call(subject, row.subject, began['at'])
    follow(scene, row)


# --- Wrong arguments.


def _judge_sizes(scene, wrong: int, since: float) -> None:
    """Each array of a message is a legal one, so only the receiver sees that they do not fit."""
    outcomes = [outcome_of(rank) for rank in scene.ranks]
    for rank, outcome in zip(scene.ranks, outcomes):
        judge(f'rank {rank.rank}', rules.Either(rules.COMPLETES, rules.refused(wrong),
                                                 rules.refused(1 - wrong)), outcome, since, rank)
    if all(outcome['kind'] == 'value' for outcome in outcomes):
        raise Violation('both ranks return; one must raise InvalidArgument')


def _judge_message(scene, wrong: int, since: float) -> None:
    """The other rank hears of the mistake at once, or it still waits: then the rank that made the
    mistake calls again, and both complete."""
    mistaken, other = scene.ranks[wrong], scene.ranks[1 - wrong]
    is_told = scene.call.are_told or (scene.call.is_told and scene.call.sender == wrong)
    judge_call(mistaken, rules.MISTAKE, since)
    outcome = other.poll('outcome', AT_ONCE + SLACK if is_told else 0)
    if is_told and outcome is None:
        raise Violation(f'rank {other.rank} does not hear of the mistake of rank {wrong}')
    if is_told or (outcome is not None and outcome['kind'] != 'value'):
        judge(f'rank {other.rank}', rules.refused(wrong), outcome, since, other)
        return
    mistaken.call()
    again = time.monotonic()
    if outcome is None:
        outcome = outcome_of(other)
    if outcome['kind'] == 'value':
        judge(f'rank {other.rank}', rules.COMPLETES, outcome, again, other)
        judge(f'the same call again, rank {wrong}', rules.COMPLETES, outcome_of(mistaken), again,
               mistaken)
    else:
        judge(f'rank {other.rank}', rules.refused(wrong), outcome, since, other)


def _wrong(scene, row, wrong: int, variant: str) -> None:
    """One rank's argument is wrong; the other is in the call before."""
    ranks, first = scene.ranks, 1 - wrong
    enter(ranks[first], scene.call.waits if first == 0 else scene.call.peer_waits)
    since = time.monotonic()
    ranks[wrong].call(variant=variant)
    if scene.call.kind == MESSAGE:
        if variant == 'shape':
            _judge_sizes(scene, wrong, since)
        else:
            _judge_message(scene, wrong, since)
        follow(scene, row)
        return
    outcomes = [outcome_of(rank) for rank in ranks]
    patterns = [row.subject, row.peer]
    # A rank that waits for no other has returned before. The ranks hear of the mistake in the next
    # call, both or neither.
    heard_later = (not scene.call.peer_waits and outcomes[1]['kind'] == 'value'
                   and (wrong == 0 or variant == 'shape'))
    for rank in (wrong, first):
        if not (heard_later and rank == 1):
            judge(f'rank {rank}', patterns[rank], outcomes[rank], since, ranks[rank])
    if heard_later:
        for rank in ranks:
            rank.tell('follow', step=3, rejoin=False)
        later = time.monotonic()
        heard = [outcome_of(rank) for rank in ranks]
        rule = (rules.COMPLETES if all(outcome['kind'] == 'value' for outcome in heard)
                else rules.Either(rules.refused(0), rules.refused(1)))
        for rank in ranks:
            judge(f'the next call, rank {rank.rank}', rule, heard[rank.rank], later, rank)
    follow(scene, row)


def _is_told_to_all(scene, variant: str) -> bool:
    """Whether the wrong argument takes its turn, and the other ranks of the call get its error."""
    return scene.call.kind in (COLLECTIVE, MESSAGE) or (
        scene.call.kind in (ROUND, ROOTED) and variant in ('type', 'rank', 'name', 'participants'))


def wrong_here(scene, row, variant):
    """The subject's argument is wrong; the peer is in the call before, if it is one of all ranks."""
    if _is_told_to_all(scene, variant):
        _wrong(scene, row, 0, variant)
        return
    scene.ranks[0].call(variant=variant)
    judge_call(scene.ranks[0], row.subject, time.monotonic())
    follow(scene, row)


def wrong_there(scene, row, variant):
    """The peer's argument is wrong; the subject is in the call before."""
    if _is_told_to_all(scene, variant):
        _wrong(scene, row, 1, variant)
        return
    subject, peer = scene.ranks
    enter(subject, scene.call.waits)
    since = time.monotonic()
    peer.call(variant=variant)
    # Its mistake is its own: it calls again.
    judge_call(peer, row.peer, since)
    peer.call()
    for rank in scene.ranks:
        judge_call(rank, rules.COMPLETES, since)
    follow(scene, row._replace(after='in step'))


# --- Signals.


def _set_handler(rank: RankHandle, number: int, raises: bool) -> None:
    rank.ask('handle', number=number, raises=raises)


def handler_returns(scene, row, name):
    """A handler of the subject runs during the call, and returns; then the others call."""
    subject = scene.ranks[0]
    number = getattr(signal, name)
    _set_handler(subject, number, False)
    enter(subject, scene.call.waits)
    subject.signal(number)
    handled = subject.poll('handled', AT_ONCE + SLACK)
    if handled is None:
        raise Violation(f'the handler of {name} does not run during the call')
    complete(scene, row)
    follow(scene, row)


def handler_raises(scene, row, name):
    """A handler of the subject raises during the call; then the others call."""
    subject = scene.ranks[0]
    number = getattr(signal, name)
    _set_handler(subject, number, True)
    enter(subject, scene.call.waits)
    since = subject.signal(number)
    judge_call(subject, row.subject, since)
    if row.peer is not None:
        since = time.monotonic()
        for rank in let_others_call(scene):
            judge_call(rank, row.peer, since)
    _set_handler(subject, number, False)
    follow(scene, row)


def _then_others(scene, row, since) -> None:
    """The others call after the subject has gone."""
    if row.peer is None:
        return
    for rank in let_others_call(scene):
        judge_call(rank, row.peer, max(since, time.monotonic()))


def ctrl_c(scene, row):
    """SIGINT; the program does not catch KeyboardInterrupt."""
    subject = scene.ranks[0]
    enter(subject, scene.call.waits)
    since = subject.signal(signal.SIGINT)
    judge('rank 0', row.subject, end_of(subject), since, subject)
    _then_others(scene, row, since)


# --- The end of the object, or of the process.


def close_on_thread(scene, row):
    """Another thread closes the object of the call."""
    subject = scene.ranks[0]
    subject.ask('helper')
    enter(subject, scene.call.waits)
    since = time.monotonic()
    subject.tell_helper('close')
    judge_call(subject, row.subject, since)
    closed = subject.wait_helper(PATIENCE, 'return from close()')
    if closed.get('error'):
        raise Violation(f'close() raises {closed["error"]["class"]}: {closed["error"]["text"]}')
    if closed['at'] - since > END + SLACK:
        raise Violation(f'late: close() returns after {closed["at"] - since:.1f} s')
    _then_others(scene, row, since)


def _end_during(scene, row, do, **arguments):
    subject = scene.ranks[0]
    if scene.call.mode in ('block', 'sync'):
        subject.tell('call_on_thread')
    else:
        subject.tell('start')
    # A call that was started leaves the main thread free, which then waits for commands.
    if not subject.await_in_call() and not subject.has_ended():
        outcome = subject.poll('outcome')
        if outcome is not None and outcome['kind_of_message'] == 'outcome':
            raise Violation(f'rank 0 does not wait: {outcome}')
    since = time.monotonic()
    subject.tell(do, **arguments)
    judge('rank 0', row.subject, end_of(subject), since, subject)
    _then_others(scene, row, since)


def exit_during(scene, row):
    """The main thread calls sys.exit: the call is pending, or a daemon thread is in it."""
    _end_during(scene, row, 'exit', status=7)


def raise_during(scene, row):
    """The main thread ends with an exception."""
    _end_during(scene, row, 'raise')


# --- Forks.


def _judge_child(row, rank: RankHandle, reply: dict) -> None:
    if 'child_status' not in reply:
        raise Fault(f'rank 0 does not come back from a fork: {reply}')
    outcome = rank.poll('child')
    if outcome is not None and outcome['kind_of_message'] == 'child':
        judge('the forked child', row.child, outcome, outcome['began'])
    if reply['child_status'] != 6:
        said = 'hangs in its call' if outcome is None else 'has made its call'
        raise Violation(f'the forked child {said}, and ends with {reply["child_status"]}, not 6\n'
                        f'{rank.log()}')
    if reply['seconds'] > AT_ONCE + END + SLACK:
        raise Violation(f'late: the forked child ends after {reply["seconds"]:.1f} s')


def fork_before(scene, row):
    """The subject forks; the child calls and exits; then all ranks call."""
    subject = scene.ranks[0]
    reply = subject.ask('fork', seconds=12)
    _judge_child(row, subject, reply)
    enter(subject, scene.call.waits)
    complete(scene, row)
    follow(scene, row)


def fork_during(scene, row):
    """Another thread forks while the subject is in the call; then the others call."""
    subject = scene.ranks[0]
    subject.ask('helper')
    enter(subject, scene.call.waits)
    subject.tell_helper('fork')
    reply = subject.wait_helper(12, 'come back from a fork')
    _judge_child(row, subject, reply)
    complete(scene, row)
    follow(scene, row)


def killed_with_child(scene, row):
    """SIGKILL for the subject, whose forked child lives on; the peer is in the call."""
    subject, peer = scene.ranks
    child = os.pidfd_open(subject.ask('fork', stays=True)['child'])
    try:
        enter(peer, True)
        since = _kill(subject)
        judge_call(peer, row.peer, since)
    finally:
        signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)


# --- The coordinator.


def _without_coordinator(scene, row, lose: Callable[[], None], limit: float) -> None:
    subject = scene.ranks[0]
    at_coordinator = scene.call.kind not in (COLLECTIVE, MESSAGE, QUEUE)
    if scene.call.kind == REQUEST:
        lose()
        since = time.monotonic()
        subject.call(timeout=limit)
        judge_call(subject, row.subject, since)
        return
    enter(subject, True, timeout=limit if at_coordinator else None)
    lose()
    if at_coordinator:
        judge_call(subject, row.subject, time.monotonic())
    else:
        complete(scene, row)


def coordinator_gone(scene, row):
    """SIGKILL for the coordinator of this pair."""
    _without_coordinator(scene, row, scene.servers.coordinator.kill, WITHOUT_COORDINATOR)


def coordinator_stopped(scene, row):
    """SIGSTOP for it."""
    _without_coordinator(scene, row, scene.servers.coordinator.pause, SHORT)


# --- The list.

EVENTS: Dict[str, Callable[..., None]] = {function.__name__: function for function in (
    peer_killed, other_killed, peer_left, other_left, peer_raised, peer_stopped, timeout, wrong_here,
    wrong_there, handler_returns, handler_raises, ctrl_c, close_on_thread, exit_during, raise_during,
    fork_before, fork_during, killed_with_child, coordinator_gone, coordinator_stopped)}

VARIANTS = {
    'wrong_here': ('type', 'shape', 'rank', 'list', 'op', 'name', 'participants'),
    'wrong_there': ('type', 'shape', 'rank', 'list', 'op', 'name', 'participants'),
    'handler_returns': ('SIGTERM', 'SIGINT', 'SIGUSR1'),
    'handler_raises': ('SIGTERM', 'SIGALRM'),
}

NAMES = [name if variant is None else f'{name}-{variant}'
         for name in EVENTS for variant in VARIANTS.get(name, (None,))]


def ranks_of(event: str) -> int:
    """How many ranks the pairs of an event have."""
    return 3 if event.startswith('other_') else 2


def play(scene: Scene, row, event: str) -> None:
    """Plays the event, and ends the ranks. Raises Violation or Hung."""
    name, _, variant = event.partition('-')
    EVENTS[name](scene, row, *([variant] if variant else []))
    end_all(scene, row)
