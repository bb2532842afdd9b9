// Text that a peer chose, made safe to show: in error texts, logs, tables and metrics.
#ifndef COHORT_BASE_PRINTABLE_H_
#define COHORT_BASE_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace cohort {

// Whether Printable would return `text` as it is. Plain ASCII costs one pass over the bytes.
bool IsPrintable(absl::string_view text);

// Returns `text` on one line that can neither steer a terminal nor change the order in which its
// neighbours are shown. Each byte of the following becomes \xNN: control characters (C0, DEL, C1),
// bidirectional controls (such as U+202E), line and paragraph separators, U+200B, U+FEFF, and bytes
// that are no UTF-8. Backslashes stay, so that text may pass several entrances: escaping it again
// changes nothing. The result has at most four times the bytes.
std::string Printable(absl::string_view text);

// Replaces `text` by Printable(text); allocates only where that differs.
void MakePrintable(std::string& text);

}  // namespace cohort

#endif  // COHORT_BASE_PRINTABLE_H_
