/// \file
/// A hyperparameter, for TensorBoard's tab "HPARAMS".
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {

/// A number, a truth value or a text.
class HParamValue {
 public:
  template <class Number>
    requires(std::is_arithmetic_v<Number> && !std::same_as<Number, bool>)
  HParamValue(Number number) : value_(static_cast<double>(number)) {}
  HParamValue(std::same_as<bool> auto is_set) : value_(is_set) {}
  HParamValue(const char* text) : value_(std::string(text)) {}
  HParamValue(std::string text) : value_(std::move(text)) {}

  const std::variant<double, bool, std::string>& get() const { return value_; }

 private:
  std::variant<double, bool, std::string> value_;
};

/// A hyperparameter of a run.
/// \code
///   std::vector<ls::HParam> hparams{{"optimizer", "adam"}, {"units", 64}, {"augment", true}};
/// \endcode
struct HParam {
  std::string name;
  HParamValue value;
};

}  // namespace lockstep
