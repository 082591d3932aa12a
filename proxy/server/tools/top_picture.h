// What `spillway top` draws: a live document (exec/admin/live_status.h) as lines of text. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "cursor/bson_view.h"

namespace spillway::server {

struct PictureSize {
  std::size_t rows = 50, columns = 120;
};

// Rates are those between the two documents; without `before`, means since the start of the process. Fields may be
// missing or of any type: the answer may be another version's. Lines end with "\n", and none is wider than the
// screen.
std::string draw_top(DocView now, const DocView* before, PictureSize size);

}  // namespace spillway::server
