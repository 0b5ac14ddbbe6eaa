/// \file
/// Writes the logs of each epoch as a line of a CSV file. Invariants: only the chief writes; when
/// an epoch has ended, its complete line is in the file.
#pragma once

#include <memory>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' CSVLogger: a header, then one line per epoch.
///
/// The columns are "epoch" and the values sorted by name, as in Keras' files: those of the first
/// epoch and, with validation data, val_... of each metric, even if the first epoch has no
/// validation. Keras adds columns val_... also without validation data. A value that an epoch does
/// not log is NA; one that only later epochs log has no column, which a warning reports.
///
/// An existing file is overwritten or, with `append` and when `fit` continues from a checkpoint,
/// continued under its own header, after removing a torn last line.
/// Source: keras/src/callbacks/csv_logger.py.
/// \code
///   model.fit(train, test, {.epochs = 3, .callbacks = {lockstep::CSVLogger{"training.csv"}}});
/// \endcode
struct CSVLogger {
  std::string filename;         ///< relative to the working directory
  std::string separator = ",";  ///< one character
  bool append = false;          ///< continue an existing file

  /// The callback for `fit`. \throws UsageError if the separator is not one character. `fit` throws
  /// FileError before the first step if the file cannot be written, and UsageError if the file to be
  /// continued has no header, or lacks a column of a value that `fit` logs.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/csv_logger.ipp"
#endif
