/// \file
/// Loading a part of a weights file. Invariants: a report names every parameter of the model in one
/// of its lists, and every tensor of the file that was not loaded.
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// Patterns of names: `*` stands for any text, also one with slashes, and `?` for one character.
/// \code
///   ls::NamePatterns{"conv2d*", "*/bias"}
/// \endcode
class NamePatterns {
 public:
  NamePatterns() = default;
  NamePatterns(const char* pattern) : all_{pattern} {}
  NamePatterns(std::string pattern) : all_{std::move(pattern)} {}
  NamePatterns(std::initializer_list<std::string> patterns) : all_(patterns) {}
  NamePatterns(std::vector<std::string> patterns) : all_(std::move(patterns)) {}

  bool empty() const { return all_.empty(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  /// Whether one of the patterns matches the whole name.
  LOCKSTEP_COLD_DECL bool match(std::string_view name) const;

 private:
  std::vector<std::string> all_;
};

/// Which parameters `load_weights` takes from a file, and their names there.
/// \code
///   model.load_weights("big.safetensors", {.only = "conv2d*"});
///   model.load_weights("big.safetensors", {.skip = {"dense_1/*"}, .prefix = "backbone/"});
///   decoder.load_weights("vae.safetensors", {.prefix = "decoder/"});  // a block of a file
///   vae.load_weights("decoder.safetensors", {.only = "decoder/*", .strip = "decoder/"});
/// \endcode
struct LoadOptions {
  NamePatterns only{};   ///< parameters of the model to load; empty: all
  NamePatterns skip{};   ///< parameters of the model to leave as they are
  std::string strip{};   ///< beginning of the model's names that the file's names do not have
  std::string prefix{};  ///< beginning of the file's names that the model's names do not have
};

/// The result of `load_weights` with options. Prints as one line per list.
struct LoadReport {
  std::vector<std::string> loaded;   ///< parameters of the model that now have the file's values
  std::vector<std::string> missing;  ///< selected parameters that the file does not have
  std::vector<std::string> skipped;  ///< parameters that were not selected
  std::vector<std::string> unused;   ///< tensors of the file that no selected parameter asked for
};

/// The report as text: the number and the names of each list that is not empty.
LOCKSTEP_COLD_DECL std::string to_string(const LoadReport& report);
LOCKSTEP_COLD_DECL std::ostream& operator<<(std::ostream& out, const LoadReport& report);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/export/load_options.ipp"
#endif
