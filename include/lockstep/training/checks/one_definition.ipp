#pragma once

#include "lockstep/training/checks/one_definition.hpp"

#include <mutex>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// The list. Constant-initialized, since the definitions register while the program starts;
/// libraries that are loaded later change it from any thread.
struct NetworkDefinitions {
  std::mutex mutex{};
  NetworkDefinition* first = nullptr;
};
inline constinit NetworkDefinitions network_definitions{};

NetworkDefinition::NetworkDefinition(const void* key, std::uint64_t layers)
    : key_(key), layers_(layers) {
  const std::scoped_lock lock(network_definitions.mutex);
  next_ = network_definitions.first;
  network_definitions.first = this;
}

NetworkDefinition::~NetworkDefinition() {
  const std::scoped_lock lock(network_definitions.mutex);
  NetworkDefinition** at = &network_definitions.first;
  while (*at != nullptr && *at != this) at = &(*at)->next_;
  if (*at == this) *at = next_;
}

void NetworkDefinition::check(std::string_view name) const {
  const std::scoped_lock lock(network_definitions.mutex);
  for (const NetworkDefinition* other = network_definitions.first; other != nullptr;
       other = other->next_)
    if (other->key_ == key_ && other->layers_ != layers_)
      throw UsageError(
          "model: two source files define a network named '{}' with different layers, and the "
          "linker has kept one of them for both; put each into an unnamed namespace, or rename one",
          name);
}

}  // namespace lockstep::detail
