"""The repository @cuda: the first complete CUDA toolkit that deploy/cuda_toolkit.py finds.

The build fails if there is none, so that GPU code and its tests never drop out unnoticed. With COHORT_WITHOUT_GPU=1
wildcards skip the targets that need a toolkit, and if_cuda() leaves GPU code out of other targets.
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

_ENVIRON = ["CUDA_HOME", "COHORT_CUDA_CACHE", "COHORT_WITHOUT_GPU", "HOME"]

def _cuda_toolkit_impl(ctx):
    environment = {name: ctx.os.environ[name] for name in _ENVIRON if name in ctx.os.environ}
    result = ctx.execute(
        ["python3", ctx.path(Label("//deploy:cuda_toolkit.py")), "find"],
        environment = environment,
    )
    if result.return_code != 0:
        fail(result.stderr.strip())
    root = result.stdout.strip()
    found = root != ""
    if found:
        ctx.symlink(root + "/include", "include")
        ctx.symlink(root + "/lib64/libcudart_static.a", "libcudart_static.a")
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
    environ = _ENVIRON,
    local = True,
    doc = "Links a CUDA toolkit with NCCL's header, wherever this machine has it.",
)
