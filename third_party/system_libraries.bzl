"""One repository, @system, with a cc_library for each Debian library that Cohort links."""

# name -> pkg-config modules. Abseil modules are named one by one: Debian's grpc++ line does not
# bring those that only our own code calls.
_PKG_CONFIG = {
    "absl": [
        "absl_base",
        "absl_bits",
        "absl_btree",
        "absl_flat_hash_map",
        "absl_flat_hash_set",
        "absl_hash",
        "absl_random_random",
        "absl_span",
        "absl_status",
        "absl_statusor",
        "absl_str_format",
        "absl_strings",
        "absl_synchronization",
        "absl_time",
    ],
    "benchmark": ["benchmark"],
    "gmock": ["gmock"],
    "grpc": ["grpc++"],
    "gtest": ["gtest"],
    "gtest_main": ["gtest_main"],
    "highway": ["libhwy"],
    "openssl": ["openssl"],
    "prometheus": ["prometheus-cpp-pull", "prometheus-cpp-core"],
    "protobuf": ["protobuf"],
    "sqlite3": ["sqlite3"],
    "zlib": ["zlib"],
}

# Libraries without a pkg-config file, or made of headers alone: name -> (a header that must exist, flags).
_PLAIN = {
    "cli11": ("CLI/CLI.hpp", []),
    "dlpack": ("dlpack/dlpack.h", []),
    "nlohmann_json": ("nlohmann/json.hpp", []),
    # Its compiled library needs the libstdc++ of GCC 12, which RHEL 9 lacks.
    "spdlog": ("spdlog/spdlog.h", ["-lfmt"]),
}

# Debian's Python: name -> the folder of its headers. An extension module links nothing: the interpreter that loads it has
# the functions.
_HEADERS = {
    "python": "/usr/include/python3.11",
}

# What only benchmarks link: name -> (a folder of headers beside the system's own or "", a header, flags).
# Where a library is not installed, targets that need it are skipped by wildcards, and cannot be built.
_OPTIONAL = {
    "gloo": ("", "gloo/context.h", ["-lgloo"]),
    "openmpi": ("openmpi/include", "mpi.h", ["-lmpi"]),
}

# Linked from their archives in `-c opt`. Whoever wakes finds its caches cold; code that lies in one
# file, and is called without a jump through a table, is there sooner: 3 to 10 % of the time of a small
# hand-off, where sixty shared libraries were. `--define system_libraries=shared` takes those all the
# same: for many programs in one folder, which then have each library once.
_FROM_ARCHIVES = ["absl", "grpc", "protobuf"]

# What the system itself keeps up to date.
_ALWAYS_SHARED = ["-latomic", "-lcrypto", "-ldl", "-lrt", "-lssl", "-lz"]

_OPT = """
config_setting(
    name = "opt",
    values = {"compilation_mode": "opt"},
)

config_setting(
    name = "opt_shared",
    values = {
        "compilation_mode": "opt",
        "define": "system_libraries=shared",
    },
)
"""

_LIBRARY = """
cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
)
"""

_OPTIONAL_LIBRARY = """
cc_library(
    name = "{name}",
    hdrs = {hdrs},
    includes = {includes},
    linkopts = {linkopts},
    target_compatible_with = {constraints},
)
"""

_HEADER_LIBRARY = """
cc_library(
    name = "{name}",
    hdrs = glob(["{name}/**/*.h"]),
    includes = ["{name}"],
)
"""

_NOT_INSTALLED = """
constraint_setting(name = "installation")

constraint_value(
    name = "not_installed",
    constraint_setting = ":installation",
)
"""

def _flags(ctx, modules, kinds):
    result = ctx.execute(["pkg-config"] + kinds + modules)
    if result.return_code != 0:
        fail("pkg-config does not know %s; run deploy/bootstrap.sh first.\n%s" % (
            ", ".join(modules),
            result.stderr,
        ))
    return [flag for flag in result.stdout.strip().split(" ") if flag]

def _linkopts(ctx, name, modules, folder):
    shared = _unique(_flags(ctx, modules, ["--libs"]))
    if name not in _FROM_ARCHIVES:
        return repr(shared)
    archives = []
    others = []
    for flag in _unique(shared + _flags(ctx, modules, ["--libs", "--static"])):
        archive = "lib%s.a" % flag[2:]
        if flag.startswith("-l") and flag not in _ALWAYS_SHARED and ctx.path(folder + "/" + archive).exists:
            archives.append("-l:" + archive)
        else:
            others.append(flag)

    # The archives refer to each other in circles.
    static = ["-Wl,--start-group"] + archives + ["-Wl,--end-group"] + others
    return 'select({":opt": %r, ":opt_shared": %r, "//conditions:default": %r})' % (
        static,
        shared,
        shared,
    )

def _optional_library(ctx, folder, name, where, header, linkopts):
    beside = folder + "/" + where if where else "/usr/include"
    installed = ctx.path(beside + "/" + header).exists
    if installed and where:
        ctx.symlink(beside, name)
    return _OPTIONAL_LIBRARY.format(
        name = name,
        hdrs = 'glob(["%s/**"])' % name if installed and where else "[]",
        includes = repr([name] if installed and where else []),
        linkopts = repr(linkopts),
        constraints = repr([] if installed else [":not_installed"]),
    )

def _unique(flags):
    seen = {}
    for flag in flags:
        seen[flag] = True
    return seen.keys()

def _system_libraries_impl(ctx):
    folder = "/usr/lib/" + ctx.execute(["gcc", "-print-multiarch"]).stdout.strip()
    build = ['package(default_visibility = ["//visibility:public"])', _OPT]
    for name, modules in _PKG_CONFIG.items():
        build.append(_LIBRARY.format(
            name = name,
            defines = repr([flag[2:] for flag in _flags(ctx, modules, ["--cflags-only-other"]) if flag.startswith("-D")]),
            linkopts = _linkopts(ctx, name, modules, folder),
        ))
    for name, (header, linkopts) in _PLAIN.items():
        if not ctx.path("/usr/include/" + header).exists:
            fail("missing header %s; run deploy/bootstrap.sh first" % header)
        build.append(_LIBRARY.format(name = name, defines = "[]", linkopts = repr(linkopts)))
    for name, headers in _HEADERS.items():
        if not ctx.path(headers).exists:
            fail("missing folder %s; run deploy/bootstrap.sh first" % headers)
        ctx.symlink(headers, name)
        build.append(_HEADER_LIBRARY.format(name = name))
    build.append(_NOT_INSTALLED)
    for name, (where, header, linkopts) in _OPTIONAL.items():
        build.append(_optional_library(ctx, folder, name, where, header, linkopts))
    ctx.file("BUILD", "\n".join(build) + "\n")

system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    environ = ["PKG_CONFIG_PATH"],
    local = True,
    doc = "Asks pkg-config once for every Debian library; headers are in the default search path.",
)
