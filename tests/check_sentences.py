#!/usr/bin/env python3
"""Counts sentences in comments and texts that a reader has to read twice.

  tests/check_sentences.py           counts each pattern; exits 1 if one has more places than it may
  tests/check_sentences.py --list    prints the places, too

The limits below only go down: a change that rewrites sentences lowers them.
"""

import re
import subprocess
import sys

# name: (pattern, the most lines that may have it, what to write instead)
PATTERNS = {
    'begins with "Of"': (
        r'^\s*//\s*Of [A-Za-z]', 0, 'begin with the subject'),
    '"who" as a subject': (
        r'(^\s*//\s*|[.;:] )Who(ever)? [a-z]', 0, 'name the actor: the root, a rank that timed out'),
    '"what is" for a noun': (
        r'\b[Ww]hat (is|comes|came|was|has|are|it|they|this) ', 29, 'use the noun'),
    '"is none"': (
        r'\b(is|are|was|were) none\b', 30, 'say what does not exist'),
    '"nobody", "nowhere"': (
        r'\b([Nn]obody|[Nn]owhere)\b', 76, 'say which rank or place does not'),
}
FILES = ['*.h', '*.cc', '*.proto']


def main():
    names = subprocess.run(['git', 'ls-files', *FILES], check=True, capture_output=True,
                           text=True).stdout.split()
    places = {name: [] for name in PATTERNS}
    for path in names:
        with open(path, encoding='utf-8') as source:
            for number, line in enumerate(source, 1):
                if '//' not in line and '"' not in line:
                    continue
                for name, (pattern, _, _) in PATTERNS.items():
                    if re.search(pattern, line):
                        places[name].append(f'{path}:{number}: {line.strip()}')
    failed = False
    for name, (_, limit, advice) in PATTERNS.items():
        count = len(places[name])
        print(f'{name}: {count} lines, at most {limit}')
        if '--list' in sys.argv:
            print('\n'.join(places[name]))
        if count > limit:
            failed = True
            print(f'  {count - limit} more than before; {advice} (--list shows the places)')
        elif count < limit:
            print(f'  lower the limit in {sys.argv[0]} to {count}')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
