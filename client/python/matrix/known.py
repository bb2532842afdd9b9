"""Pairs that are known to break a rule, by pattern, with the reason. Each line is work to be done:
a mend takes its line away. `python3 -m matrix.run --all` judges these pairs, too."""

import fnmatch
from typing import Dict


KNOWN: Dict[str, str] = {
}


def is_known(pair: str) -> bool:
    """Whether a pattern names the pair."""
    return any(fnmatch.fnmatchcase(pair, pattern) for pattern in KNOWN)
