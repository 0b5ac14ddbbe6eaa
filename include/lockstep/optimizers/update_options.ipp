#pragma once

#include "lockstep/optimizers/update_options.hpp"

#include <utility>

#include "lockstep/core/count.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep {

NameList::NameList(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) names_.emplace_back(name);
}

NameList::NameList(const NameList&) = default;

NameList::NameList(NameList&&) noexcept = default;

NameList& NameList::operator=(NameList other) noexcept {
  names_.swap(other.names_);
  return *this;
}

NameList::~NameList() = default;

}  // namespace lockstep

namespace lockstep::detail {

void require(bool right, std::string_view name, const char* what, double value,
             const char* remedy) {
  if (!right) throw UsageError("{}{}{}{}", name, what, value, remedy);
}

void check_epsilon(std::string_view name, double epsilon) {
  require(epsilon > 0 && is_finite(epsilon), name, " epsilon ", epsilon,
          ": must be above 0; 1e-7 is usual");
}

void check_update_options(std::string_view name, double weight_decay, const UpdateOptions& o) {
  constexpr const char* positive = ": must be a number above 0, or 0 for none";
  const auto sized = [](double value) { return value >= 0 && value <= 1e300; };
  require(sized(weight_decay), name, " weight_decay ", weight_decay, positive);
  require(sized(o.clipnorm), name, " clipnorm ", o.clipnorm, positive);
  require(sized(o.block_clipnorm), name, " block_clipnorm ", o.block_clipnorm, positive);
  require(sized(o.global_clipnorm), name, " global_clipnorm ", o.global_clipnorm, positive);
  require(sized(o.clipvalue), name, " clipvalue ", o.clipvalue, positive);
  const int clips =
      (o.clipnorm > 0) + (o.block_clipnorm > 0) + (o.global_clipnorm > 0) + (o.clipvalue > 0);
  require(clips < 2, name, " clipnorm, block_clipnorm, global_clipnorm, clipvalue: ", clips,
          " of them; give one");
  require(o.exclude_from_weight_decay.empty() || weight_decay != 0, name, " weight_decay ",
          weight_decay, ": there is nothing to exclude_from_weight_decay; give it too");
  require(o.ema_momentum >= 0 && o.ema_momentum <= 1, name, " ema_momentum ", o.ema_momentum,
          ": must be in [0, 1]; 0.99 is usual");
  require(o.use_ema || o.ema_overwrite_frequency == 0, name, " ema_overwrite_frequency ",
          static_cast<double>(o.ema_overwrite_frequency),
          ": there is no average; write .use_ema = true");
  check_count(format_text("{} gradient_accumulation_steps", name), o.gradient_accumulation_steps);
  check_count(format_text("{} ema_overwrite_frequency", name), o.ema_overwrite_frequency, 0);
}

}  // namespace lockstep::detail
