/// \file
/// A time series, cut into windows of values, each with the value after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/options.hpp"
#include "support/parts.hpp"

namespace support {

/// 3,000 hours with the periods of a day and a week, a trend, and noise; the phases and the noise
/// depend on the seed.
std::vector<double> drawn_series(std::uint64_t seed);

/// Reads the last column of a CSV file, plain or gzip, whose first line names the columns. The other
/// columns, such as dates, may be any text.
/// \throws lockstep::FileError, or lockstep::DataError with line and column
std::vector<double> read_series(const std::string& path);

/// The windows of a series. The values are scaled by mean and deviation of the part to train on,
/// which is the first four fifths of the series.
struct Windows {
  /// Features of shape (steps, 1), and targets of shape (1): the next value.
  Parts parts;
  double deviation;  ///< one unit of the scaled values
  double
      naive_error;  ///< mean squared error on the test part if each value is forecast as the last one

  /// \throws lockstep::Error if the series is too short or constant; `name` describes it.
  static Windows of(const std::vector<double>& series, int steps, const std::string& name);
};

/// Prints the error on the test part, `scaled_error` in scaled values, next to the naive one, except
/// under --progress json and none.
void print_errors(const Options& options, const Windows& windows, double scaled_error);

}  // namespace support
