/// \file
/// Which layers train, and with which multiples of the learning rate and of weight decay, as a
/// program sets it while a model lives. Invariants: the same in all replicas, which compare it; a
/// part of a checkpoint; empty lists, and no other cost, for a program that sets nothing.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/model/plan/places.hpp"
#include "lockstep/training/export/load_options.hpp"

namespace lockstep::detail {

/// Multiples for one parameter.
struct ParameterMultipliers {
  double rate = 1, decay = 1;
};

enum class Multiplier { rate, decay };

/// The settings by name, as a checkpoint has them: only those that differ from the defaults.
struct NamedSettings {
  std::vector<std::string> held{};        ///< layers
  std::vector<std::string> parameters{};  ///< with multipliers
  std::vector<double> multipliers{};      ///< rate and decay of each
  bool is_default() const { return held.empty() && parameters.empty(); }
};

/// The settings of a model's layers.
///
///     pattern            selects
///     backbone/*         layers of the block         and parameters of these
///     backbone           the same
///     conv2d_1           a layer                     and its parameters
///     */bias             -                           parameters
class LayerSettings {
 public:
  bool has_held() const { return !held_.empty(); }
  bool is_default() const { return held_.empty() && rate_.empty() && decay_.empty(); }
  /// Whether a node is held.
  bool is_held(std::size_t node) const { return !held_.empty() && held_[node] == '1'; }
  /// The multipliers of a parameter.
  ParameterMultipliers multipliers(std::size_t parameter) const {
    return {rate_.empty() ? 1 : rate_[parameter], decay_.empty() ? 1 : decay_[parameter]};
  }

  /// These settings where the layers that the patterns select train, or do not. \throws UsageError for a pattern that selects
  /// no layer with parameters, or a frozen one.
  LOCKSTEP_COLD_DECL LayerSettings with_trainable(std::span<const Node> nodes,
                                                  const NamePatterns& layers, bool on) const;
  /// These settings with another multiplier of the parameters that the patterns select. \throws UsageError for a
  /// pattern that selects no parameter with a gradient, and for a negative or infinite value.
  LOCKSTEP_COLD_DECL LayerSettings with_multiplier(const char* call,
                                                   std::span<const NamedParameter> parameters,
                                                   const NamePatterns& names, Multiplier which,
                                                   double value) const;

  LOCKSTEP_COLD_DECL NamedSettings named(std::span<const Node> nodes,
                                         std::span<const NamedParameter> parameters) const;
  /// Names that the model does not have are left out: those of a checkpoint of another network.
  LOCKSTEP_COLD_DECL void load(const NamedSettings& from, std::span<const Node> nodes,
                               std::span<const NamedParameter> parameters);
  /// The weights of layers that are held.
  LOCKSTEP_COLD_DECL std::size_t held_weights(std::span<const Node> nodes) const;
  /// A character for each step of a plan, '1' if its weights are held; empty if none are. \throws
  /// UsageError if a step computes layers of which only some are.
  LOCKSTEP_COLD_DECL std::string held_steps(std::span<const PlacedStep> steps,
                                            std::span<const Node> nodes) const;
  LOCKSTEP_COLD_DECL bool operator==(const LayerSettings& other) const;

 private:
  // Of types that the library has anyway: each other vector costs a program compile time.
  std::string held_;                  // by node, '1' if it is held; empty: none
  std::vector<double> rate_, decay_;  // by parameter; empty: all 1
};

/// The settings as text: "dense held; dense_1/kernel rate 0.1, decay 1".
LOCKSTEP_COLD_DECL std::string to_string(const NamedSettings& settings);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/layer_settings.ipp"
#endif
