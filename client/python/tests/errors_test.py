"""The exceptions, without a coordinator."""

import pickle

import pytest

import cohort


@pytest.mark.parametrize('kind', [getattr(cohort, name) for name in cohort.__all__
                                  if isinstance(getattr(cohort, name), type)
                                  and issubclass(getattr(cohort, name), cohort.Error)])
def test_errors_travel_to_other_processes(kind):
    error = kind('rank 1 is gone', missing=(1, 2), culprit=1, operation='barrier', generation=3)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == 'rank 1 is gone'
    assert (copy.missing, copy.culprit, copy.generation) == ((1, 2), 1, 3)
    assert isinstance(copy, RuntimeError)
