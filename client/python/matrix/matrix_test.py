"""A sample of the matrix. COHORT_MATRIX_SEED chooses
another one."""

import os

import pytest

from matrix import calls, events, rules, run

# All calls and events are in the tables: a table that loses rows is seen.
_PAIRS = 2500
_SECONDS = 200


def _with_torch():
    try:
        import torch  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        return False
    return True


def test_the_matrix_has_its_size():
    assert len(run.all_pairs()) >= _PAIRS


def test_every_event_has_a_rule_and_every_rule_a_pair():
    events_of_pairs = {pair.split(':')[1] for pair in run.all_pairs()}
    assert events_of_pairs == set(events.NAMES)
    for row in rules.TABLE:
        for event in row.events:
            for kind in row.kinds:
                assert event.split('-')[0] in events.EVENTS
                assert any(call.kind == kind for call in calls.BY_NAME.values()), kind


def test_a_sample_keeps_the_rules():
    arguments = ['--pairs', '400', '--seconds', str(_SECONDS), '--again', '2', '--seed',
                 os.environ.get('COHORT_MATRIX_SEED', '1')]
    if not _with_torch():
        arguments.append('--without-torch')
    status = run.main(arguments)
    if status:
        pytest.fail('a rule was broken, or the matrix failed: see above', pytrace=False)
