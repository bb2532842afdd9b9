// A library that reports a version and has no other function; the loader rejects it.
extern "C" int ncclGetVersion(int* version) {
  *version = STUB_VERSION;
  return 0;
}
