#!/usr/bin/env python3
"""Counts sentences in comments, texts and test names that a reader has to read twice.

  tests/check_sentences.py           counts each pattern; exits 1 if one has more places than it may
  tests/check_sentences.py --list    prints the places, too

The limits below only go down: a change that rewrites sentences lowers them.
"""

import re
import subprocess
import sys

# name: (pattern, the most lines that may have it, the advice to the writer)
# The patterns are for one comment or one string literal, as far as it is in one line.
SENTENCES = {
    'begins with "Of"': (
        r'^\s*Of [A-Za-z]', 0, 'begin with the subject'),
    '"who" as a subject': (
        r'(^\s*|[.;:] )Who(ever)? [a-z]', 0, 'name the actor: the root, a rank that timed out'),
    '"what is" for a noun': (
        r'\b[Ww]hat (is|comes|came|was|has|are|it|they|this)\b', 0, 'use the noun'),
    '"what" as a subject': (
        r'(^\s*|[.;:] )What [a-z]', 0, 'use a noun for the subject'),
    '"is none"': (
        r'\b(is|are|was|were) none\b', 0, 'say what does not exist'),
    '"nobody", "nowhere"': (
        r'\b([Nn]obody|[Nn]owhere)\b', 0, 'say which rank or place does not'),
    '"somebody", "everybody", "those who"': (
        r'\b(([Ss]ome|[Ee]very|[Aa]ny)(body|one)|[Ww]hoever|([Tt]hose|[Aa]ll) who)\b', 0,
        'name the ranks, members, clients or threads'),
}
TEST_NAMES = {
    'test names with "What", "Who", "Nobody" or "Of" for a subject': (
        r'^((What|Who|Whom|Whose|Whoever|Of|None)[A-Z]'
        r'|\w*(Nobody|Nowhere|(Some|Every|Any)(body|one)))', 0,
        'state a plain fact: the subject first, then what it does'),
}
C_FILES = ('.h', '.cc', '.proto')
SCRIPTS = ('.sh', '.py')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"' r"|'((?:[^'\\]|\\.)*)'")
C_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
TEST = re.compile(r'^(?:TYPED_)?TEST(?:_[FP])?\(\s*\w+,\s*(\w+)\)', re.MULTILINE)


def texts_of(path, lines):
    """Yields (line number, text) for each comment and string literal."""
    in_c = path.endswith(C_FILES)
    string = C_STRING if in_c else STRING
    comment = re.compile(r'(?:^|\s)//+ ?(.*)' if in_c else r'(?:^|\s)# ?(.*)')
    in_docstring = False
    for number, line in enumerate(lines, 1):
        if path.endswith('.py'):
            quotes = line.count('"""')
            if quotes or in_docstring:
                yield number, line.replace('"""', '').strip()
                in_docstring ^= quotes % 2 == 1
                continue
        code = string.sub(lambda match: '_' * len(match[0]), line)
        for match in string.finditer(line):
            yield number, next((group for group in match.groups() if group), '')
        found = comment.search(code)
        if found:
            yield number, line[found.start(1):].strip()


def main():
    names = subprocess.run(['git', 'ls-files', *('*' + end for end in C_FILES + SCRIPTS)],
                           check=True, capture_output=True, text=True).stdout.split()
    places = {name: [] for name in {**SENTENCES, **TEST_NAMES}}
    for path in names:
        if path == 'tests/check_sentences.py':
            continue
        with open(path, encoding='utf-8') as source:
            content = source.read()
        lines = content.splitlines()
        for number, text in texts_of(path, lines):
            for name, (pattern, _, _) in SENTENCES.items():
                place = f'{path}:{number}: {lines[number - 1].strip()}'
                if re.search(pattern, text) and place not in places[name]:
                    places[name].append(place)
        for test in TEST.finditer(content) if path.endswith('.cc') else ():
            for name, (pattern, _, _) in TEST_NAMES.items():
                if re.search(pattern, test[1]):
                    number = content.count('\n', 0, test.start()) + 1
                    places[name].append(f'{path}:{number}: {test[1]}')
    failed = False
    for name, (_, limit, advice) in {**SENTENCES, **TEST_NAMES}.items():
        count = len(places[name])
        print(f'{name}: {count} places, at most {limit}')
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
