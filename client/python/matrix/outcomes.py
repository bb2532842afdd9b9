"""The common steps of events: calls begin, outcomes are compared with the rule, ranks end."""

import time

from matrix import rules
from matrix.calls import COLLECTIVE, ROOTED, ROUND
from matrix.scene import RankHandle, Scene

# Seconds to wait for an outcome: more than the timeout of the groups, so that a late error is seen.
PATIENCE = 8


class Violation(Exception):
    """An outcome that the rule does not allow."""


def outcome_of(rank: RankHandle, kind: str = 'outcome', seconds: float = PATIENCE) -> dict:
    """The outcome of a call; the end of the process if that came first."""
    message = rank.wait(kind, seconds, 'end its call')
    if message['kind_of_message'] == 'ended':
        return end_of(rank)
    return message


def end_of(rank: RankHandle) -> dict:
    """The end of the process. The time when the handlers of atexit have run counts."""
    status, at = rank.end(PATIENCE)
    closed = rank.poll('closed', 2)
    if closed is None or closed['kind_of_message'] == 'ended':
        closed = {'at': at, 'waited': 0}
    return {'kind': 'ended', 'status': status, 'at': closed['at'], 'waited': closed['waited']}


def judge(who: str, pattern, outcome: dict, since: float, rank=None) -> None:
    """Raises Violation if the outcome is not one that the pattern allows."""
    if pattern is None:
        return
    found = pattern.check(outcome, since)
    if found is not None:
        log = f'\n{rank.log()}' if rank is not None and outcome['kind'] == 'ended' else ''
        raise Violation(f'{who} {found}{log}')


def judge_call(rank: RankHandle, pattern, since: float) -> None:
    """The same for the call of a rank, whose outcome it waits for."""
    if pattern is not None:
        judge(f'rank {rank.rank}', pattern, outcome_of(rank), since, rank)


def enter(rank: RankHandle, waits: bool, **arguments) -> None:
    """Lets a rank make its call; returns when it is in it, if the call waits for others."""
    rank.call(**arguments)
    if waits:
        rank.await_in_call()
    else:
        rank.wait('calling', 10, 'begin its call')


def let_others_call(scene: Scene, **arguments) -> list:
    """Lets the ranks call that the subject needs, and returns them."""
    ranks = [rank for rank in scene.ranks[1:] if not rank.has_ended()]
    if scene.call.kind not in (COLLECTIVE, ROUND, ROOTED):
        ranks = ranks[:1]
    for rank in ranks:
        rank.call(**arguments)
    return ranks


def complete(scene: Scene, row) -> None:
    """The others call, and the outcomes are judged."""
    since = time.monotonic()
    others = let_others_call(scene)
    try:
        judge_call(scene.ranks[0], row.subject, since)
    except Violation as violation:
        seen = [rank.poll('outcome') for rank in others]
        raise Violation(f'{violation}; the others: ' + ', '.join(
            'still in the call' if outcome is None else
            outcome.get('text') or outcome.get('kind', 'ended') for outcome in seen)) from None
    for rank in others:
        judge_call(rank, row.peer, since)


def follow(scene: Scene, row) -> None:
    """A later call on all ranks."""
    if row.after is None:
        return
    if row.after == 'again':
        for rank in scene.ranks:
            rank.call(step=1)
        for rank in scene.ranks:
            judge(f'the same call again, rank {rank.rank}', rules.COMPLETES, outcome_of(rank), 0, rank)
    for rank in scene.ranks:
        rank.tell('follow', step=2, rejoin=row.after == 'rejoin')
    for rank in scene.ranks:
        judge(f'a later call{" after a rejoin" * (row.after == "rejoin")}, rank {rank.rank}',
              rules.COMPLETES, outcome_of(rank), 0, rank)


def end_all(scene: Scene, row) -> None:
    """All ranks that are still there return from their programs."""
    ranks = [rank for rank in scene.ranks if not rank.has_ended()]
    since = time.monotonic()
    for rank in ranks:
        rank.tell('exit', status=0)
    for rank in ranks:
        judge(f'at its end, rank {rank.rank}', row.end, end_of(rank), since, rank)
