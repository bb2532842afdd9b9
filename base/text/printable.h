// Makes text of a peer safe for error texts, logs, tables and metrics.
#ifndef COHORT_BASE_TEXT_PRINTABLE_H_
#define COHORT_BASE_TEXT_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace cohort {

// Returns true if Printable would not change `text`. Plain ASCII costs one pass over the bytes.
bool IsPrintable(absl::string_view text);

// Returns `text` on one line that can neither steer a terminal nor change the order in which its
// neighbours are shown. Each byte of the following becomes \xNN: control characters (C0, DEL, C1),
// bidirectional controls (such as U+202E), line and paragraph separators, U+200B, U+FEFF, and bytes
// that are not UTF-8. Backslashes stay, so escaping a text twice gives the same result as once. The
// result has at most four times the bytes.
std::string Printable(absl::string_view text);

// Replaces `text` by Printable(text); allocates only where that differs.
void MakePrintable(std::string& text);

}  // namespace cohort

#endif  // COHORT_BASE_TEXT_PRINTABLE_H_
