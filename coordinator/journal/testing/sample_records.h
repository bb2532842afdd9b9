// Rows for tests and benchmarks of journals.
#ifndef COHORT_COORDINATOR_JOURNAL_TESTING_SAMPLE_RECORDS_H_
#define COHORT_COORDINATOR_JOURNAL_TESTING_SAMPLE_RECORDS_H_

#include <string>
#include <vector>

#include "coordinator/core/interface/record.h"

namespace cohort::coordinator {

// For every kind one value with no field at its default, bytes that are not UTF-8 among them, and
// one value with as little in it as a journal keeps. In the order of RecordKind.
std::vector<RecordValue> SampleValues();

// A stored key: the smallest row that carries a user's value.
Record SampleKey(const std::string& group, const std::string& key, std::string value);

// Whether every field is equal, payloads by presence and bytes. Cause::at, which is not kept, is
// left out.
bool SameValue(const RecordValue& a, const RecordValue& b);
bool SameRecord(const Record& a, const Record& b);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_TESTING_SAMPLE_RECORDS_H_
