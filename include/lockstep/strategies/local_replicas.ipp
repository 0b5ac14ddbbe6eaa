#pragma once

#include "lockstep/strategies/local_replicas.hpp"

#include "lockstep/collectives/spin.hpp"

namespace lockstep::detail {

WaitPolicy WaitPolicy::for_replicas(std::size_t replicas, std::size_t threads) {
  const auto cores = static_cast<std::size_t>(usable_cores());
  return {.spins = threads <= cores ? short_spins : 0, .overlap = threads + replicas <= cores};
}

/// The higher the weight, the closer the exception is to the cause.
inline int failure_weight(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveAborted&) {
    return 1;
  } catch (const CollectiveTimeout&) {
    return 2;
  } catch (...) {
    return 3;
  }
}

std::exception_ptr cause_of_failure(std::span<const std::exception_ptr> errors) {
  std::exception_ptr cause;
  int best = 0;
  for (const std::exception_ptr& error : errors)
    if (error && failure_weight(error) > best) {
      cause = error;
      best = failure_weight(error);
    }
  return cause;
}

}  // namespace lockstep::detail
