"""Cohort's own C++ rules: the usual ones with the project's warnings set once."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    # Designated and partial initialisers are how options and calls are written here.
    "-Wno-missing-field-initializers",
]

def cohort_cc_library(name, copts = [], **kwargs):
    cc_library(name = name, copts = _COPTS + copts, **kwargs)

def cohort_cc_binary(name, copts = [], **kwargs):
    cc_binary(name = name, copts = _COPTS + copts, **kwargs)

def cohort_cc_test(name, copts = [], deps = [], size = "small", **kwargs):
    cc_test(
        name = name,
        size = size,
        copts = _COPTS + copts,
        deps = deps + ["@system//:gmock", "@system//:gtest_main"],
        **kwargs
    )
