/// \file
/// The numbers of each epoch as a line of a CSV file. Invariants: only the chief writes; a line is
/// in the file, whole, when its epoch has ended.
#pragma once

#include <memory>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Keras' CSVLogger: a header, then "epoch" and the values in the order of their names, so that
/// both libraries' files have the same columns. Without validation in the first epoch there are
/// columns val_... all the same; what an epoch does not have is NA.
///
/// An existing file is replaced, or with `append` continued: it gets a header only if it is empty.
/// Source: keras/src/callbacks/csv_logger.py.
/// \code
///   model.fit(train, test, {.epochs = 3, .callbacks = {lockstep::CSVLogger{"training.csv"}}});
/// \endcode
struct CSVLogger {
  std::string filename;
  std::string separator = ",";
  bool append = false;

  /// \throws UsageError if the separator is not one character. `fit` throws FileError if the file
  /// cannot be written.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/csv_logger.ipp"
#endif
