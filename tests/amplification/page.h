// The table as a page of the documents.
#ifndef COHORT_TESTS_AMPLIFICATION_PAGE_H_
#define COHORT_TESTS_AMPLIFICATION_PAGE_H_

#include <string>
#include <vector>

#include "tests/amplification/measure.h"

namespace cohort::amplification {

// `about`: the date, the machine and the command.
std::string PageOf(const std::vector<Row>& rows, const std::string& about);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_PAGE_H_
