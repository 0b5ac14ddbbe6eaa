/// \file
/// Window arithmetic shared by max and average pooling on a GPU. Invariant: forward has one thread
/// per output, backward one thread per input, which gathers from all windows that contain it; no
/// two threads add to one place, so the order of every sum is fixed.
#pragma once

#include <array>

#include "lockstep/devices/cuda/support/scalar_text.hpp"
#include "lockstep/layers/pooling/pooling2d.hpp"

namespace lockstep::detail::cuda {

/// `taps_at(i)`: for output i over all examples, the taps of its window inside the image, and the
/// input element at tap (0, 0). `windows_at(i)`: for input i, the windows that contain it, the
/// output of window (0, 0), and the input's coordinates in the padded image.
inline constexpr char pooling2d_functions[] = R"cuda(
struct Taps {
  i64 in;
  int top, bottom, left, right;
};
__device__ inline Taps taps_at(i64 i) {
  const i64 n = i / (OUT_ROWS * OUT_COLUMNS * CHANNELS);
  const u32 place = (u32)(i - n * (OUT_ROWS * OUT_COLUMNS * CHANNELS));
  const u32 pixel = place / CHANNELS;
  const int row = (int)(pixel / OUT_COLUMNS) * ROW_STRIDE - ROWS_BEFORE;
  const int column = (int)(pixel % OUT_COLUMNS) * COLUMN_STRIDE - COLUMNS_BEFORE;
  Taps t;
  t.in = ((n * IN_ROWS + row) * IN_COLUMNS + column) * CHANNELS + place % CHANNELS;
  t.top = PADDED ? max(0, -row) : 0;
  t.bottom = PADDED ? min(POOL_ROWS, IN_ROWS - row) : POOL_ROWS;
  t.left = PADDED ? max(0, -column) : 0;
  t.right = PADDED ? min(POOL_COLUMNS, IN_COLUMNS - column) : POOL_COLUMNS;
  return t;
}

struct Windows {
  i64 out;
  int row, column;  // in the padded image
  int top, bottom, left, right;
};
__device__ inline Windows windows_at(i64 i) {
  const i64 n = i / (IN_ROWS * IN_COLUMNS * CHANNELS);
  const u32 place = (u32)(i - n * (IN_ROWS * IN_COLUMNS * CHANNELS));
  const u32 pixel = place / CHANNELS;
  Windows w;
  w.row = (int)(pixel / IN_COLUMNS) + ROWS_BEFORE;
  w.column = (int)(pixel % IN_COLUMNS) + COLUMNS_BEFORE;
  w.out = n * (OUT_ROWS * OUT_COLUMNS * CHANNELS) + place % CHANNELS;
  w.top = w.row < POOL_ROWS ? 0 : (w.row - POOL_ROWS) / ROW_STRIDE + 1;
  w.bottom = min(OUT_ROWS, w.row / ROW_STRIDE + 1);
  w.left = w.column < POOL_COLUMNS ? 0 : (w.column - POOL_COLUMNS) / COLUMN_STRIDE + 1;
  w.right = min(OUT_COLUMNS, w.column / COLUMN_STRIDE + 1);
  return w;
}
)cuda";

/// The geometry of a pooling, as defines.
inline std::array<Define, 12> pooling2d_defines(const Pooling2DWindow& window) {
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
