#!/usr/bin/env python3
"""Checks that includes and the deps of BUILD files agree, and that each header compiles by itself.

  tests/check_includes.py              exits 1 if a place is wrong, which it prints
  tests/check_includes.py --jobs=2     the same; flags are for `bazel build`

Deps: a file includes headers of its own target and of its direct deps. A target includes something
from each of its direct deps. GCC lacks the layering_check of Clang, which does the first half.

Headers: x.cc is in the target of x.h and includes it first, so that compiling x.cc compiles x.h by
itself. Bazel compiles each other header with //third_party:header_check.bzl.
"""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', re.MULTILINE)

# Libraries whose headers are in no target: how an include begins, and the targets that bring it.
LIBRARIES = {
    'CLI/': ['@system//:cli11'],
    'Python.h': ['@system//:python'],
    'absl/': ['@system//:absl'],
    'benchmark/': ['@system//:benchmark'],
    'cuda.h': ['@cuda//:headers', '@cuda//:runtime'],
    'cuda_': ['@cuda//:headers', '@cuda//:runtime'],
    'dlpack/': ['@system//:dlpack'],
    'gloo/': ['@system//:gloo'],
    'gmock/': ['@system//:gmock'],
    'google/protobuf/': ['@system//:protobuf'],
    'grpc/': ['@system//:grpc'],
    'grpcpp/': ['@system//:grpc'],
    'gtest/': ['@system//:gtest', '@system//:gmock'],
    'hwy/': ['@system//:highway'],
    'mpi.h': ['@system//:openmpi'],
    'nccl.h': ['@cuda//:headers', '@cuda//:runtime'],
    'nlohmann/': ['@system//:nlohmann_json'],
    'openssl/': ['@system//:openssl'],
    'prometheus/': ['@system//:prometheus'],
    'spdlog/': ['@system//:spdlog'],
    'sqlite3.h': ['@system//:sqlite3'],
    'zlib.h': ['@system//:zlib'],
}
# cohort_cc_test adds these to each test; the runtime is linked for functions that a header declares.
NEVER_SUPERFLUOUS = {'@system//:gmock', '@system//:gtest_main', '@cuda//:runtime'}


class Target:
    """One cc_library, cc_binary or cc_test."""

    def __init__(self, rule):
        lists = {entry.get('name'): [label.get('value') for label in entry]
                 for entry in rule.findall('list')}
        self.label = rule.get('name')
        # Targets of one list comprehension have the same place, and deps in common.
        self.place = rule.get('location')
        self.deps = lists.get('deps', [])
        self.headers = lists.get('hdrs', []) + lists.get('textual_hdrs', [])
        self.files = self.headers + lists.get('srcs', [])
        # Headers of cohort_proto_library are included by their path below the package.
        self.root = path_of(self.label.split(':')[0] + ':') if lists.get('includes') else ''
        self.always_linked = any(entry.get('name') == 'alwayslink' and entry.get('value') == 'true'
                                 for entry in rule.findall('boolean'))

    def names(self, files):
        """The names by which an include finds these files."""
        return [path_of(file)[len(self.root):] for file in files]


def path_of(label):
    return label.lstrip('/').replace(':', '/').lstrip('/')


def read_targets():
    query = ['bazel', 'query', '--noshow_progress', '--output=xml', '--relative_locations',
             'kind("^cc_", //...)']
    xml_text = subprocess.run(query, check=True, stdout=subprocess.PIPE).stdout
    targets = [Target(rule) for rule in xml.etree.ElementTree.fromstring(xml_text).iter('rule')]
    return {target.label: target for target in targets}


def includes_of(path):
    """The (line, name) of each include in a file of the source tree."""
    try:
        with open(path, encoding='utf-8') as source:
            text = source.read()
    except FileNotFoundError:
        return []  # generated
    return [(text.count('\n', 0, found.start(1)) + 1, found[1]) for found in INCLUDE.finditer(text)]


def check_deps(targets):
    """Yields each include without a dep, and each dep without an include."""
    public = {}  # name of a header: the targets that have it in hdrs
    owners = {}  # name of a header: the targets that have it in hdrs or srcs
    for target in targets.values():
        for name in target.names(target.headers):
            public.setdefault(name, set()).add(target.label)
        for name in target.names(target.files):
            owners.setdefault(name, set()).add(target.label)

    used = set()  # (place of a target, dep) with an include
    for target in targets.values():
        # A target without files, such as //:cohort, stands for its deps.
        reachable = {}
        for dep in target.deps:
            if dep in targets and not targets[dep].files:
                reachable.update({inner: dep for inner in targets[dep].deps})
        reachable.update({dep: dep for dep in target.deps})
        for file, (line, name) in ((file, found) for file in target.files
                                   for found in includes_of(path_of(file))):
            if target.label in owners.get(name, ()):
                continue
            place = f'{path_of(file)}:{line}: includes {name}'
            homes = next((labels for start, labels in LIBRARIES.items() if name.startswith(start)),
                         sorted(public.get(name, ())))
            found = [reachable[label] for label in homes if label in reachable]
            used.update((target.place, dep) for dep in found)
            if homes and not found:
                yield f'{place}, but {target.label} has no dep {" or ".join(homes)}'
            elif not homes and name in owners:
                yield f'{place}, which is in the srcs of {" ".join(sorted(owners[name]))}'
            elif not homes and os.path.exists(name):
                yield f'{place}, which is in no target'

    # The program chooses one of several targets with the same header, and links it.
    chosen = {label for labels in public.values() if len(labels) > 1 for label in labels}
    for target in targets.values():
        if not all(os.path.exists(path_of(file)) for file in target.files):
            continue  # generated files, which may include anything
        for dep in target.deps:
            known = targets.get(dep)
            has_headers = known is None or known.headers or not known.files
            if (target.files and has_headers and not (known and known.always_linked)
                    and dep not in NEVER_SUPERFLUOUS | chosen and (target.place, dep) not in used):
                yield f'{target.place}: {target.label} includes nothing from its dep {dep}'


def check_first_includes(targets):
    """Yields each x.cc in the target of x.h that does not include x.h first."""
    for target in targets.values():
        files = {path_of(file) for file in target.files}
        for header in sorted(files):
            source = header.removesuffix('.h') + '.cc'
            if not header.endswith('.h') or source not in files or not os.path.exists(source):
                continue
            first = next(iter(includes_of(source)), (1, 'nothing'))
            if first[1] != header:
                yield f'{source}:{first[0]}: includes {first[1]} first, instead of {header}'


def compile_headers(flags):
    """Compiles the headers without such an x.cc; yields one line if that fails."""
    cache = os.environ.get('COHORT_BAZEL_CACHE', os.path.expanduser('~/.cache/cohort-bazel'))
    build = ['bazel', 'build', f'--disk_cache={cache}', '--keep_going', '--color=no', '--curses=no',
             '--noshow_progress', '--output_groups=header_check',
             '--aspects=//third_party:header_check.bzl%header_check', *flags, '//...']
    if subprocess.run(build, check=False).returncode != 0:
        yield 'a header above does not compile by itself'


def main():
    targets = read_targets()
    errors = [*check_deps(targets), *check_first_includes(targets),
              *compile_headers(sys.argv[1:])]
    print('\n'.join([*errors, f'{len(targets)} targets, {len(errors)} errors']))
    return 1 if errors else 0


if __name__ == '__main__':
    sys.exit(main())
