#pragma once

#include "lockstep/testing/simulated_network.hpp"

#include <utility>

namespace lockstep::testing {

Fault kill(std::size_t rank) { return {.kind = Fault::Kind::kill, .first = {rank}}; }
Fault restart(std::size_t rank) { return {.kind = Fault::Kind::restart, .first = {rank}}; }
Fault freeze(std::size_t rank) { return {.kind = Fault::Kind::freeze, .first = {rank}}; }
Fault thaw(std::size_t rank) { return {.kind = Fault::Kind::thaw, .first = {rank}}; }
Fault partition(std::vector<std::size_t> some, std::vector<std::size_t> others) {
  // A factor of 2 stands for both directions.
  return {
      .kind = Fault::Kind::cut, .first = std::move(some), .second = std::move(others), .factor = 2};
}
Fault cut(std::size_t from, std::size_t to) {
  return {.kind = Fault::Kind::cut, .first = {from}, .second = {to}};
}
Fault heal() { return {.kind = Fault::Kind::heal}; }
Fault slow(std::size_t rank, double factor) {
  return {.kind = Fault::Kind::slow, .first = {rank}, .factor = factor};
}
Fault jump_clock(std::size_t rank, std::chrono::nanoseconds by) {
  return {.kind = Fault::Kind::jump_clock, .first = {rank}, .time = by};
}
Fault set_loss(double probability) { return {.kind = Fault::Kind::loss, .factor = probability}; }
Fault set_latency(std::chrono::nanoseconds latency) {
  return {.kind = Fault::Kind::latency, .time = latency};
}
Fault set_jitter(std::chrono::nanoseconds jitter) {
  return {.kind = Fault::Kind::jitter, .time = jitter};
}

}  // namespace lockstep::testing
