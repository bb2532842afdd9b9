"""The matrix sees planted faults, each under its own name, and no fault in a right call."""

import pytest

from matrix import calls, events, rules, run

_FAULT_OF = {
    'hangs': ('peer_killed', 'hangs: rank 0 does not end its call'),
    'late': ('peer_killed', 'rank 0 late: 3.'),
    'nameless': ('peer_killed', 'it must name rank 1'),
    'other_class': ('peer_killed', 'it must raise Aborted or Cancelled'),
    'aborts': ('peer_killed', 'ends with the status -6'),
    'wrong_value': ('handler_returns-SIGTERM', 'returns a wrong value: 4, expected 3'),
    'skips_its_turn': ('wrong_here-type', 'rank 1 raises DeadlineExceeded'),
    'mixes_turns': ('wrong_there-type', 'a later call, rank '),
    'ends_by_signal': ('handler_returns-SIGTERM', 'rank 0 raises Cancelled'),
    'never_looks': ('handler_returns-SIGUSR1', 'does not run during the call'),
    'works_in_a_child': ('fork_before', 'the forked child returns'),
    'late_end': ('exit_during', 'rank 0 late: the process ends after'),
    'other_status': ('exit_during', 'ends with the status 3'),
    'early': ('timeout', 'returns; it must raise DeadlineExceeded'),
}


@pytest.fixture(scope='module', name='runner')
def _runner():
    with run.Runner() as runner:
        yield runner


@pytest.mark.parametrize('name', _FAULT_OF)
def test_a_planted_fault_is_seen(runner, name):
    event, text = _FAULT_OF[name]
    result = runner.run(f'planted.{name}/block@self:{event}')
    assert result.verdict == 'broken' and text in result.text, result


def test_a_hung_call_is_reported_with_its_stacks(runner):
    result = runner.run('planted.hangs/block@self:peer_killed')
    assert 'planted.py' in result.text and 'in _fail' in result.text, result


def test_a_fault_of_the_matrix_is_not_counted_as_a_broken_rule(runner):
    result = runner.run('planted.fault_of_the_matrix/block@self:timeout')
    assert result.verdict == 'fault' and 'planted' in result.text, result


@pytest.mark.parametrize('event', [
    event for event in events.NAMES
    if rules.rule(calls.BY_NAME['planted.none/block@self'], event) is not None])
def test_a_call_without_a_fault_keeps_every_rule(runner, event):
    result = runner.run(f'planted.none/block@self:{event}')
    assert result.verdict == 'kept', result
