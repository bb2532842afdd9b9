// A library that tells a version and can do nothing else, to be refused.
extern "C" int ncclGetVersion(int* version) {
  *version = STUB_VERSION;
  return 0;
}
