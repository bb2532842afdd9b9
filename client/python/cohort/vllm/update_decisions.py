"""Whether the receivers of a weight update load it: one answer for all of them.

    decisions = UpdateDecisions(store, 'job-17')
    decisions.decide(update, received=True)     # True: load it

A collective at the end of an update tells each rank that all have received it. If a rank is killed
then, the collective may succeed on some ranks and fail on others. So each of them proposes an answer to
the coordinator, and the first proposal is the answer for all.
"""

import cohort

_LOAD, _KEEP = b'load', b'keep'
# Longer than two ranks of an update are apart.
_EXPIRATION_SECONDS = 3600


class UpdateDecisions:
    """The decisions about the updates of one trainer. They are keys of the coordinator."""

    def __init__(self, store: cohort.Store, name: str):
        """`name` is the trainer's. Blocks in no method longer than the store's timeout."""
        self._store = store
        self._prefix = f'vllm/weights/{name}/updates/'

    def decide(self, update: str, received: bool) -> bool:
        """Returns whether all receivers load the update.

        `received`: this rank knows that all ranks have received it. False: it does not know.

        Raises Unavailable if the coordinator does not answer.
        """
        proposal = _LOAD if received else _KEEP
        try:
            result = self._store.put(self._prefix + update, proposal, expected_revision=0,
                                     expiration=_EXPIRATION_SECONDS)
        except cohort.Error as error:
            raise cohort.Unavailable(
                f'receive weights: the coordinator did not say whether the other ranks load update '
                f'{update}; this rank keeps the weights that it has: {error.message}') from error
        decision = proposal if result.written or result.current is None else result.current.value
        return decision == _LOAD
