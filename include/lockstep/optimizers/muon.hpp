/// \file
/// Muon: the momentum of a matrix, with all singular values near 1, is the step. Other parameters are
/// updated by AdamW. Invariant: which rule updates a parameter follows from its name and shape.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/optimizers/adam.hpp"
#include "lockstep/optimizers/muon_iteration.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/update_options.hpp"

namespace lockstep {

/// The published variants of Muon. u is the option `momentum`, r and c are rows and columns.
///
///     variant   m                    X                     divisor           scale   convolutions
///     keras     u m + g              g + u m               |X| + 1e-7        rms     AdamW
///     pytorch   u m + (1 - u) g      (1 - u) g + u m       max(|X|, 1e-7)    shape   AdamW
///     jordan    u m + (1 - u) g      (1 - u) g + u m       |X| + 1e-7        shape   matrices
///
/// A convolution's kernel is a matrix (h w in, out), and the kernel of a query, key or value one (in,
/// heads size), where Keras and PyTorch leave kernels of more than two axes to AdamW. Jordan's own code scales its step by h and w.
enum class MuonVariant : std::uint8_t { keras, pytorch, jordan };

/// The factor of a step: that of the variant; rms_rate sqrt(max(r, c)); sqrt(max(1, c / r)); or 1. The
/// rows of a kernel are its inputs, so that c / r is what PyTorch and Jordan call rows / columns.
enum class MuonScale : std::uint8_t { of_variant, rms, shape, none };

/// One update of Muon, of a parameter without a second slot; by `adam` of one with it. Needs whole
/// matrices. Slots: the momentum, and Adam's second moment.
struct MuonOp {
  static constexpr bool per_tensor = true;
  double rate = 0.001, momentum = 0.95, rms_rate = 0.2;
  bool nesterov = true;
  bool is_mean = false;      ///< m is a mean of gradients instead of a sum
  bool floors_norm = false;  ///< X is divided by max(|X|, 1e-7) instead of |X| + 1e-7
  MuonScale scale = MuonScale::rms;
  MuonIteration iteration = NewtonSchulz{};
  AdamOp adam{};

  static constexpr double epsilon = 1e-7;  ///< of the norm
  double step_size(std::size_t rows, std::size_t columns) const {
    const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
    if (scale == MuonScale::none) return rate;
    return rate * (scale == MuonScale::rms ? rms_rate * std::sqrt(std::max(r, c))
                                           : std::sqrt(std::max(1.0, c / r)));
  }
  bool operator==(const MuonOp&) const = default;
};

/// Keras' Muon (Jordan et al., 2024). m is the momentum, u the option `momentum`, r and c are the rows
/// and columns of a matrix, and N is `iteration`.
///
///     m = u m + g
///     X = g + u m                             without `nesterov` X = m
///     X = N(X / (|X| + 1e-7))                 singular values near 1
///     w -= rate rms_rate sqrt(max(r, c)) X
///
/// The scale is that of Liu et al., 2025, which gives steps the size of AdamW's; `.variant` and `.scale`
/// select others. The iteration is computed in the type of the weights.
///
/// AdamW updates, with `adam_lr_ratio` times the rate: what is not a matrix, names with "embedding"
/// unless `exclude_embeddings` is false, and names with a text of `exclude_layers`. The layer of the
/// output usually belongs there. On GPUs there is no kernel.
/// \code
///   ls::Muon{.learning_rate = 1e-3, .exclude_layers = {"logits"}}
///   ls::Muon{.learning_rate = 0.02, .weight_decay = 0, .variant = ls::MuonVariant::jordan}
/// \endcode
struct Muon {
  static constexpr std::string_view name = "muon";
  Schedule learning_rate = 0.001;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.004;
  NameList exclude_layers = {};
  bool exclude_embeddings = true;
  MuonVariant variant = MuonVariant::keras;
  MuonScale scale = MuonScale::of_variant;
  double rms_rate = 0.2;
  MuonIteration iteration = NewtonSchulz{};
  double adam_beta_1 = 0.9, adam_beta_2 = 0.999, adam_weight_decay = 0.004, epsilon = 1e-7;
  double adam_lr_ratio = 1;
  UpdateOptions with = {};

  /// \throws UsageError if the momentum is outside [0, 1), a rate or decay is negative, or as
  /// Adam::check does; see also UpdateOptions.
  void check() const {
    // Either decay is one that exclude_from_weight_decay may be for.
    detail::check_update_options(name, weight_decay != 0 ? weight_decay : adam_weight_decay, with);
    detail::check_adam(name, adam_beta_1, adam_beta_2, epsilon);
    detail::require(momentum >= 0 && momentum < 1, name, " momentum ", momentum,
                    ": must be in [0, 1); 0.95 is usual");
    const auto above_0 = [](const char* what, double value, bool or_0) {
      detail::require((value > 0 || (or_0 && value == 0)) && detail::is_finite(value), name, what,
                      value, or_0 ? ": must not be negative" : ": must be above 0");
    };
    above_0(" adam_weight_decay ", adam_weight_decay, true);
    above_0(" adam_lr_ratio ", adam_lr_ratio, true);
    above_0(" rms_rate ", rms_rate, false);
  }
  static constexpr std::size_t slot_count() { return 2; }
  static constexpr std::string_view slot_name(std::size_t i) { return detail::adam_slot_name(i); }
  /// Whether the parameter, such as "dense/kernel", is a matrix that Muon updates.
  bool updates(std::string_view parameter, const Shape& shape) const {
    const bool is_kernel = parameter == "kernel" || parameter.ends_with("/kernel");
    if (shape.rank != 2 && !(variant == MuonVariant::jordan && shape.rank > 2 && is_kernel))
      return false;
    constexpr std::string_view embedding = "embedding";
    const auto equal = [](char a, char b) {
      return a == std::tolower(static_cast<unsigned char>(b));
    };
    if (exclude_embeddings &&
        std::search(parameter.begin(), parameter.end(), embedding.begin(), embedding.end(),
                    [&](char a, char b) { return equal(b, a); }) != parameter.end())
      return false;
    for (const std::string& text : exclude_layers)
      if (parameter.find(text) != std::string_view::npos) return false;
    return true;
  }
  ParameterRule rule_of(std::string_view parameter, const Shape& shape) const {
    const bool is_matrix = updates(parameter, shape);
    ParameterRule rule{{shape.size(), is_matrix ? 0 : shape.size()},
                       is_matrix ? weight_decay : adam_weight_decay};
    rule.is_by_elements = !is_matrix;
    // The outputs of the projections of an attention layer are its last two axes.
    for (const std::string_view ending : {"query/kernel", "key/kernel", "value/kernel"})
      if (is_matrix && shape.rank == 3 && parameter.ends_with(ending))
        rule.shape = lockstep::shape(shape[0], shape[1] * shape[2]);
    return rule;
  }
  // A template, so that only programs that use it compile it.
  /// The hyperparameters except the rate and the decay of matrices, which the processes of a job
  /// compare.
  template <class Number = std::pair<std::string_view, double>>
  std::vector<Number> numbers() const {
    std::vector<Number> result{{"momentum", momentum},
                               {"nesterov", nesterov ? 1 : 0},
                               {"exclude_embeddings", exclude_embeddings ? 1 : 0},
                               {"variant", static_cast<double>(variant)},
                               {"scale", static_cast<double>(scale)},
                               {"rms_rate", rms_rate},
                               {"adam_beta_1", adam_beta_1},
                               {"adam_beta_2", adam_beta_2},
                               {"adam_weight_decay", adam_weight_decay},
                               {"epsilon", epsilon},
                               {"adam_lr_ratio", adam_lr_ratio}};
    for (const QuinticStep& s : iteration.steps())
      for (const double value : {s.a, s.b, s.c}) result.emplace_back("iteration", value);
    return result;
  }
  MuonOp op(double rate, std::uint64_t step) const {
    const bool is_keras = variant == MuonVariant::keras;
    const MuonScale usual = is_keras ? MuonScale::rms : MuonScale::shape;
    return {.rate = rate,
            .momentum = momentum,
            .rms_rate = rms_rate,
            .nesterov = nesterov,
            .is_mean = !is_keras,
            .floors_norm = variant == MuonVariant::pytorch,
            .scale = scale == MuonScale::of_variant ? usual : scale,
            .iteration = iteration,
            .adam = detail::adam_op(rate * adam_lr_ratio, step, adam_beta_1, adam_beta_2, epsilon,
                                    false)};
  }
};

static_assert(Optimizer<Muon> && HasParameterRules<Muon>);

}  // namespace lockstep
