"""Repositories that make Debian's copies of the Bazel rules load in Debian's Bazel 4.2."""

def _debian_rules_cc_impl(ctx):
    source = "/usr/share/bazel/rules/cc"
    result = ctx.execute(["cp", "-rL", source + "/.", "."])
    if result.return_code != 0:
        fail("cannot copy %s (package bazel-rules-cc): %s" % (source, result.stderr))

    # Two files ask bazel_tools for a helper that only later Bazel versions have; in Bazel 4 the
    # toolchain list is written out.
    for path in [
        "cc/private/rules_impl/cc_flags_supplier.bzl",
        "cc/private/rules_impl/compiler_flag.bzl",
    ]:
        text = ctx.read(path)
        text = text.replace(', "use_cpp_toolchain"', "")
        text = text.replace("use_cpp_toolchain()", '["@bazel_tools//tools/cpp:toolchain_type"]')
        ctx.file(path, text)

debian_rules_cc = repository_rule(
    implementation = _debian_rules_cc_impl,
    local = False,
    doc = "Debian's rules_cc, adjusted to load in Bazel 4.2.",
)

def _no_coverage_tools_impl(ctx):
    ctx.file("WORKSPACE", 'workspace(name = "remote_coverage_tools")\n')
    ctx.file("BUILD", "\n".join([
        'package(default_visibility = ["//visibility:public"])',
        'filegroup(name = "coverage_report_generator", srcs = [])',
        "",
    ]))

no_coverage_tools = repository_rule(
    implementation = _no_coverage_tools_impl,
    doc = "`bazel test` resolves a coverage tool at analysis even when coverage is off; this is an empty one.",
)
