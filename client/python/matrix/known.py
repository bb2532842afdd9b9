"""Pairs that are known to break a rule, by pattern, with what is missing. Each line is work to be done:
a mend takes its line away. `python3 -m matrix.run --all` judges these pairs, too."""

import fnmatch
from typing import Dict

KNOWN: Dict[str, str] = {
    '*:other_left': 'a rank that left ends the tensor calls of all others, not only those that need it',
}


def is_known(pair: str) -> bool:
    """Whether a pattern names the pair."""
    return any(fnmatch.fnmatchcase(pair, pattern) for pattern in KNOWN)
