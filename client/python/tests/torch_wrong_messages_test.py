"""A wrong argument of one rank of a send or a recv fails that message on both ranks: at once, in
its turn, with an error that names the rank. Later messages arrive right."""

import pytest

from testing.fixtures import address_fixture
from testing.torch_ranks import run_torch_ranks

pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

_address = address_fixture()
# pylint: disable=undefined-variable  # the bodies run with the names of torch_ranks.py


def refused(rank, size, culprit, any_source):
    problems = []
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())

    def call(tensor, tag, is_async):
        if rank == 0:
            if is_async:
                return dist.isend(tensor, 1, tag=tag).wait()
            return dist.send(tensor, 1, tag=tag)
        source = None if any_source else 0
        if is_async:
            return dist.irecv(tensor, source, tag=tag).wait()
        return dist.recv(tensor, source, tag=tag)

    wrongs = {'device': torch.ones(3, device='meta'), 'layout': torch.ones(3).to_sparse(),
              'no tensor': 'no tensor'}
    if culprit == 1:
        wrongs['overlap'] = torch.zeros(1).expand(3)
    for wrong, given in wrongs.items():
        # PyTorch tells no one of a wrong argument of isend and irecv that it finds itself.
        for is_async in (False,) if wrong == 'no tensor' else (False, True):
            for is_late in (False, True):
                case = f'{wrong}, async {is_async}, after the other rank {is_late}'
                dist.barrier()
                if is_late == (rank == culprit):
                    await_sleep(pids[1 - rank])
                begin = time.monotonic()
                try:
                    call(given if rank == culprit else torch.ones(3), 4, is_async)
                    problems.append(f'{case}: no error')
                except (cohort.InvalidArgument, TypeError) as error:
                    if rank != culprit and (not isinstance(error, cohort.InvalidArgument)
                                            or error.culprit != culprit
                                            or f'rank {culprit} has a wrong' not in str(error)):
                        problems.append(f'{case}: {error!r}')
                if time.monotonic() - begin > 5:
                    problems.append(f'{case}: {time.monotonic() - begin} s')
                for tag in (4, 5):
                    x = torch.full((3,), 7. + tag) if rank == 0 else torch.zeros(3)
                    call(x, tag, is_async)
                    assert x.tolist() == [7. + tag] * 3, f'after {case}'
    back = torch.full((2,), 3.) if rank else torch.zeros(2)  # the other way
    dist.send(back, 0) if rank else dist.recv(back, 1)
    assert back.tolist() == [3.] * 2
    return problems


@pytest.mark.parametrize('any_source', [False, True])
@pytest.mark.parametrize('culprit', [0, 1])
def test_a_wrong_argument_of_one_rank_fails_the_message_on_both(address, culprit, any_source):
    assert run_torch_ranks(2, refused, address, culprit, any_source) == [[], []]


def both_refused(rank, size):
    wrong, errors = torch.ones(2, device='meta'), []
    work = dist.isend(wrong, 1) if rank == 0 else dist.irecv(wrong, 0)
    for each in (work, dist.isend(torch.ones(1), rank), dist.irecv(wrong, rank)):
        try:
            each.wait()
        except cohort.InvalidArgument as error:
            errors.append(error.culprit)
    x = torch.full((2,), 5.) if rank == 0 else torch.zeros(2)
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    return errors, x.tolist()


def test_both_ranks_and_a_rank_with_itself(address):
    for rank, (errors, values) in enumerate(run_torch_ranks(2, both_refused, address)):
        assert errors == [rank] * 3 and values == [5.] * 2


def kept_refusal(rank, size):
    if rank == 0:
        refused = dist.isend(torch.ones(2, device='meta'), 1, tag=1)
        dist.send(torch.ones(2), 1, tag=2)
        assert refused.is_completed()
        return None
    x = torch.zeros(2)
    dist.recv(x, 0, tag=2)               # the refusal comes first, and is kept
    assert x.tolist() == [1.] * 2
    try:
        dist.recv(x, 0, tag=1)
    except cohort.InvalidArgument as error:
        return error.culprit
    return 'no error'


def test_a_refusal_waits_for_its_recv(address):
    assert run_torch_ranks(2, kept_refusal, address)[1] == 0
