"""A wrong argument of one rank of torch.distributed fails that call on all ranks: at once, in its
turn, with an error that names the rank. The group goes on in step."""

import itertools

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

from testing.torch_calls import WRONG  # pylint: disable=wrong-import-position

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def refused(rank, size, name):
    from testing.torch_calls import AT_THE_ROOT, Ranks, WRONG
    ranks = Ranks(dist.group.WORLD, rank, size)
    count, problems = 0, []
    for wrong in WRONG[name]:
        for culprit in range(1 if (name, wrong) in AT_THE_ROOT else size):
            for is_async in (False, True):
                for is_behind in (False, True):
                    case = f'{name}, {wrong} on rank {culprit}, async {is_async}, ' \
                           f'behind a pending call {is_behind}'
                    before = torch.full((3,), rank + 1.)
                    pending = dist.all_reduce(before, async_op=True) if is_behind else None
                    begin = time.monotonic()
                    try:
                        work, _ = ranks.start(name, wrong if rank == culprit else None, is_async)
                        work.wait()
                        problems.append(f'{case}: no error')
                    except cohort.InvalidArgument as error:
                        if f'rank {culprit}' not in str(error):
                            problems.append(f'{case}: {error}')
                    if time.monotonic() - begin > 10:
                        problems.append(f'{case}: {time.monotonic() - begin} s')
                    if is_behind:
                        pending.wait()
                        assert before.tolist() == [size * (size + 1) / 2] * 3, case
                    for later in (is_async, False):  # in step, and with the right values
                        work, check = ranks.start(name, None, later)
                        work.wait()
                        assert check(), f'after {case}'
                    count += 1
    return count, problems


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('name', WRONG)
def test_a_wrong_argument_of_one_rank_fails_the_call_on_all(address, name, size):
    results = run_torch_ranks(size, refused, address, name)
    assert not [problem for _, problems in results for problem in problems]
    assert all(count >= 4 for count, _ in results)
