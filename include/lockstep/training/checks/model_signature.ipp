#pragma once

#include "lockstep/training/checks/model_signature.hpp"

namespace lockstep::detail {

std::string describe_update_options(double weight_decay, const UpdateOptions& with) {
  std::string result;
  const auto add = [&result](std::string_view name, double value) {
    if (value != 0) result += text({", ", name, " ", json_number(value)});
  };
  add("weight_decay", weight_decay);
  for (const std::string& name : with.exclude_from_weight_decay)
    result += text({", not of '", name, "'"});
  add("clipnorm", with.clipnorm);
  add("global_clipnorm", with.global_clipnorm);
  add("clipvalue", with.clipvalue);
  if (with.use_ema) result += text({", ema_momentum ", json_number(with.ema_momentum)});
  add("ema_overwrite_frequency", static_cast<double>(with.ema_overwrite_frequency));
  if (with.gradient_accumulation_steps > 1)
    add("gradient_accumulation_steps", static_cast<double>(with.gradient_accumulation_steps));
  return result;
}

std::string describe_arithmetic(bool fast_math, bool fused, std::string_view compiler) {
  return text({fast_math ? "fast math" : "IEEE 754", fused ? ", fused multiply-add" : "",
               fast_math || fused ? " of " : "", fast_math || fused ? compiler : ""});
}

std::string arithmetic_of_library() { return arithmetic_of_build(); }

}  // namespace lockstep::detail
