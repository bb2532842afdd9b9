"""The repository @cuda: the toolkit in $CUDA_HOME, or else /usr/local/cuda, if there is one with nccl.h.

Where there is none, targets that need it are skipped by wildcards, and if_cuda() leaves them out of others.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

constraint_setting(name = "installation")

constraint_value(
    name = "not_installed",
    constraint_setting = ":installation",
)

# Headers of the toolkit and of NCCL; links nothing.
cc_library(
    name = "headers",
    hdrs = {headers},
    includes = {includes},
    target_compatible_with = {constraints},
)

# The runtime, from its archive: the driver alone is looked for at run time.
cc_library(
    name = "runtime",
    srcs = {archives},
    linkopts = [
        "-ldl",
        "-lpthread",
        "-lrt",
    ],
    target_compatible_with = {constraints},
    deps = [":headers"],
)
"""

_HEADERS = [
    "include/*.h",
    "include/*.hpp",
    "include/crt/*",
    # What cuda_fp16.h, and so nccl.h, includes; where it is depends on the toolkit.
    "include/nv/**",
    "include/cccl/nv/**",
]

_DEFS = """
def if_cuda(then, otherwise = []):
    return {choice}
"""

def _cuda_toolkit_impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    archive = root + "/lib64/libcudart_static.a"
    needed = [root + "/include/cuda_runtime.h", root + "/include/nccl.h", archive]
    found = all([ctx.path(file).exists for file in needed])
    if found:
        ctx.symlink(root + "/include", "include")
        ctx.symlink(archive, "libcudart_static.a")
    ctx.file("BUILD", _BUILD.format(
        # Not the folders of other libraries, which are thousands of files.
        headers = "glob(%s)" % repr(_HEADERS) if found else "[]",
        includes = repr(["include", "include/cccl"] if found else []),
        archives = repr(["libcudart_static.a"] if found else []),
        constraints = repr([] if found else [":not_installed"]),
    ))
    ctx.file("defs.bzl", _DEFS.format(choice = "then" if found else "otherwise"))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "Looks for a CUDA toolkit with NCCL's header on this machine.",
)
