"""One source file that includes every header of some libraries, to see that they fit together."""

def _public_headers_source_impl(ctx):
    headers = {}
    for dep in ctx.attr.deps:
        for header in dep[CcInfo].compilation_context.direct_public_headers:
            headers[header.short_path] = True
    lines = ["#include \"%s\"" % header for header in sorted(headers)]
    ctx.actions.write(ctx.outputs.out, "\n".join(lines) + "\n")

public_headers_source = rule(
    implementation = _public_headers_source_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "out": attr.output(mandatory = True),
    },
)
