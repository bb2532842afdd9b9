"""Tests of the Python package, by pytest."""

def cohort_python_test(name, size = "small", data = []):
    """Runs the file `name`.py with a coordinator at hand.

    Args:
      name: of the test, and of its file.
      size: as usual.
      data: further files.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//client/python/testing:run_pytest.py"],
        args = ["$(location %s.py)" % name],
        data = data + [
            name + ".py",
            "//client/python/cohort",
            "//client/python/testing",
            "//coordinator:cohort-coordinator",
        ],
        # The interpreter is not instrumented.
        tags = ["nosan", "process"],
    )
