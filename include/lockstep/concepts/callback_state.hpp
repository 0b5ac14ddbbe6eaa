/// \file
/// The state of a callback in a checkpoint. Invariant: what was set is read back with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// Named numbers, lists of numbers and bytes.
/// \code
///   struct Best : lockstep::Callback {
///     std::string_view state_name() const override { return "Best"; }
///     void save_state(lockstep::CallbackState& state) const override { state.set("loss", loss_); }
///     void load_state(const lockstep::CallbackState& state) override {
///       loss_ = state.number("loss");
///     }
///     void on_epoch_end(int, const lockstep::Logs& logs) override {
///       loss_ = std::min(loss_, logs["loss"]);
///     }
///     double loss_ = 1e9;
///   };
/// \endcode
class CallbackState {
 public:
  /// Any finite or infinite number, or NaN; integers up to 2^53.
  void set(std::string name, double value) { set(std::move(name), std::vector<double>{value}); }
  LOCKSTEP_COLD_DECL void set(std::string name, std::vector<double> values);
  LOCKSTEP_COLD_DECL void set(std::string name, std::vector<std::byte> bytes);
  /// The same without a copy: an elastic job saves the states before the hooks of each step.
  LOCKSTEP_COLD_DECL void set(std::string name,
                              std::shared_ptr<const std::vector<std::byte>> bytes);

  LOCKSTEP_COLD_DECL bool contains(std::string_view name) const;
  /// \throws UsageError if there is no single number of this name.
  LOCKSTEP_COLD_DECL double number(std::string_view name) const;
  /// \throws UsageError if there is no whole number from 0 to 2^53 of this name.
  LOCKSTEP_COLD_DECL std::uint64_t count(std::string_view name) const;
  /// \throws UsageError if there are no numbers of this name.
  LOCKSTEP_COLD_DECL const std::vector<double>& numbers(std::string_view name) const;
  /// \throws UsageError if there are no bytes of this name.
  LOCKSTEP_COLD_DECL const std::vector<std::byte>& bytes(std::string_view name) const;
  /// The same, shared with the state.
  LOCKSTEP_COLD_DECL std::shared_ptr<const std::vector<std::byte>> shared_bytes(
      std::string_view name) const;

  using Numbers = std::map<std::string, std::vector<double>, std::less<>>;
  using Bytes = std::map<std::string, std::shared_ptr<const std::vector<std::byte>>, std::less<>>;
  const Numbers& all_numbers() const { return numbers_; }
  const Bytes& all_bytes() const { return bytes_; }

 private:
  Numbers numbers_;
  Bytes bytes_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/concepts/callback_state.ipp"
#endif
