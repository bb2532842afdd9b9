"""The one way generated code enters the build: protoc with the C++ and gRPC plugins from Debian."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def cohort_proto_library(name, protos, visibility, grpc = [], deps = [], imports = [], import_root = "."):
    """Generates and compiles messages (and service stubs for the files named in `grpc`).

    Args:
      name: of the resulting cc_library.
      protos: .proto files of this package.
      visibility: as usual.
      grpc: those of `protos` that hold services.
      deps: cohort_proto_library targets whose files these import.
      imports: the .proto files (labels) these import, transitively.
      import_root: the folder that import paths start from; generated includes start there too.
    """
    package = native.package_name()
    stems = [proto[:-len(".proto")] for proto in protos]
    service_stems = [proto[:-len(".proto")] for proto in grpc]
    sources = [stem + ".pb.cc" for stem in stems] + [stem + ".grpc.pb.cc" for stem in service_stems]
    headers = [stem + ".pb.h" for stem in stems] + [stem + ".grpc.pb.h" for stem in service_stems]
    out = "$(GENDIR)" if import_root == "." else "$(GENDIR)/" + import_root
    command = "protoc -I%s --cpp_out=%s %s" % (import_root, out, " ".join([package + "/" + proto for proto in protos]))
    if grpc:
        command += " && protoc -I%s --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin) --grpc_out=%s %s" % (
            import_root,
            out,
            " ".join([package + "/" + proto for proto in grpc]),
        )
    native.genrule(
        name = name + "_generate",
        srcs = protos + imports,
        outs = sources + headers,
        cmd = command,
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        includes = [] if import_root == "." else ["."],
        visibility = visibility,
        deps = deps + ["@system//:protobuf"] + (["@system//:grpc"] if grpc else []),
    )
