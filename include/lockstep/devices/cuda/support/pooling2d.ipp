#pragma once

#include "lockstep/devices/cuda/support/pooling2d.hpp"

namespace lockstep::detail::cuda {

std::array<Define, 12> pooling2d_defines(const Pooling2DWindow& window) {
  const Window rows = window.rows(), columns = window.columns();
  // Without padding the kernels skip the bounds of windows.
  const bool padded = rows.before() + rows.after() > 0 || columns.before() + columns.after() > 0;
  return {{{"IN_ROWS", rows.in},
           {"IN_COLUMNS", columns.in},
           {"CHANNELS", window.in[2]},
           {"OUT_ROWS", rows.out()},
           {"OUT_COLUMNS", columns.out()},
           {"POOL_ROWS", rows.kernel},
           {"POOL_COLUMNS", columns.kernel},
           {"ROW_STRIDE", rows.stride},
           {"COLUMN_STRIDE", columns.stride},
           {"ROWS_BEFORE", rows.before()},
           {"COLUMNS_BEFORE", columns.before()},
           {"PADDED", padded ? 1 : 0}}};
}

}  // namespace lockstep::detail::cuda
