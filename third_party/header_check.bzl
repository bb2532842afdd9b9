"""Compiles each header that no .cc file of its target compiles by itself.

tests/check_includes.py runs this aspect, and sees that each other header is the first include of its .cc file.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _header_check_impl(target, ctx):
    attr = ctx.rule.attr
    if not ctx.rule.kind.startswith("cc_"):
        return []
    files = []
    for label in getattr(attr, "hdrs", []) + getattr(attr, "srcs", []):
        files += [file for file in label.files.to_list() if file.is_source]
    headers = [file for file in files if file.extension == "h"]
    compiled = {file.short_path[:-len("cc")] + "h": True for file in files if file.extension == "cc"}

    sources = []
    for header in headers:
        if header.short_path not in compiled:
            source = ctx.actions.declare_file("%s_header_check/%s.cc" % (target.label.name, header.basename))
            ctx.actions.write(source, "#include \"%s\"\n" % header.short_path)
            sources.append(source)
    if not sources:
        return []
    if [dep for dep in attr.deps if CcInfo not in dep]:
        return []  # it needs a library that is not installed, like Gloo

    toolchain = find_cpp_toolchain(ctx)
    _, outputs = cc_common.compile(
        actions = ctx.actions,
        name = target.label.name + "_header_check",
        feature_configuration = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features,
            unsupported_features = ctx.disabled_features,
        ),
        cc_toolchain = toolchain,
        srcs = sources,
        private_hdrs = headers,
        user_compile_flags = attr.copts,
        compilation_contexts = [dep[CcInfo].compilation_context for dep in attr.deps if CcInfo in dep],
    )
    return [OutputGroupInfo(header_check = depset(outputs.pic_objects or outputs.objects))]

header_check = aspect(
    implementation = _header_check_impl,
    attrs = {
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
