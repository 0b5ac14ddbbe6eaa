#pragma once

#include "lockstep/devices/cpu/team_waits.hpp"

#include <algorithm>
#include <cstdlib>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/cores.hpp"
#include "lockstep/devices/cpu/team.hpp"

namespace lockstep::detail {

/// The cores that libgomp counts: those of the process when it was loaded, before any binding.
inline const int cores_when_loaded = Cores::of_process().count();

inline bool is_in_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

ParkedTeam::ParkedTeam(int threads)
    : thread_(start_thread("cpu", [this, threads] { park(threads); })) {}

ParkedTeam::~ParkedTeam() {
  {
    const std::scoped_lock lock(mutex_);
    has_ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ParkedTeam::park(int threads) {
  try {
    check_thread_creation(static_cast<std::size_t>(threads - 1));
  } catch (const DeviceError&) {
    return;
  }
  const TeamSettings settings(threads);
  GOMP_parallel([](void*) {}, nullptr, static_cast<unsigned>(threads), 0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_ended_; });
}

std::shared_ptr<TeamWaits> TeamWaits::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<TeamWaits> shared;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<TeamWaits> waits = shared.lock();
  if (!waits) shared = waits = std::make_shared<TeamWaits>();
  return waits;
}

void TeamWaits::change(bool contended, int threads) {
  static const bool chosen_by_user =
      is_in_environment("OMP_WAIT_POLICY") || is_in_environment("GOMP_SPINCOUNT");
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || chosen_by_user || contended == are_short()) return;
  // libgomp manages `threads` at least; the first thread of the parked team is not counted.
  const int parked = std::max(cores_when_loaded - threads + 1, 1);
  if (parked > max_parked) return;
  try {
    parked_ = Parked(contended ? new ParkedTeam(parked + 1) : nullptr);
    are_short_.store(contended, std::memory_order_relaxed);
  } catch (const Error&) {
    // Without another thread, waits stay long.
  }
}

}  // namespace lockstep::detail
