#pragma once

#include "lockstep/concepts/callback_state.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

void CallbackState::set(std::string name, std::vector<double> values) {
  numbers_.insert_or_assign(std::move(name), std::move(values));
}

void CallbackState::set(std::string name, std::vector<std::byte> bytes) {
  set(std::move(name), std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
}

void CallbackState::set(std::string name, std::shared_ptr<const std::vector<std::byte>> bytes) {
  bytes_.insert_or_assign(std::move(name), std::move(bytes));
}

bool CallbackState::contains(std::string_view name) const {
  return numbers_.find(name) != numbers_.end() || bytes_.find(name) != bytes_.end();
}

double CallbackState::number(std::string_view name) const {
  const std::vector<double>& values = numbers(name);
  if (values.size() != 1)
    throw UsageError("callback state: '{}' has {} numbers, not one; use numbers()", name,
                     values.size());
  return values[0];
}

std::uint64_t CallbackState::count(std::string_view name) const {
  const double value = number(name);
  if (!(value >= 0 && value <= 0x1p53) ||
      value != static_cast<double>(static_cast<std::uint64_t>(value)))
    throw UsageError("callback state: '{}' is {}; it must be a whole number from 0 to 2^53", name,
                     value);
  return static_cast<std::uint64_t>(value);
}

const std::vector<double>& CallbackState::numbers(std::string_view name) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end())
    throw UsageError("callback state: it has no numbers named '{}'; save_state must set them",
                     name);
  return found->second;
}

const std::vector<std::byte>& CallbackState::bytes(std::string_view name) const {
  return *shared_bytes(name);
}

std::shared_ptr<const std::vector<std::byte>> CallbackState::shared_bytes(
    std::string_view name) const {
  const auto found = bytes_.find(name);
  if (found == bytes_.end())
    throw UsageError("callback state: it has no bytes named '{}'; save_state must set them", name);
  return found->second;
}

}  // namespace lockstep
