// The descriptors that the connections of a port may have.
#ifndef COHORT_BASE_PORT_SOCKET_DESCRIPTOR_LIMIT_H_
#define COHORT_BASE_PORT_SOCKET_DESCRIPTOR_LIMIT_H_

namespace cohort {

// The limit of open files, at most `most`, minus those that are open now and a reserve for files and
// metrics. At least `fewest`.
int DescriptorsForConnections(int fewest, int most);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_SOCKET_DESCRIPTOR_LIMIT_H_
