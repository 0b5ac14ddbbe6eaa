#pragma once

#include "lockstep/core/process/cores.hpp"

#include <algorithm>
#include <thread>

#include "lockstep/core/process/openmp_places.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

Cores::Cores() {
  CPU_ZERO(&set_);
  is_known_ = sched_getaffinity(0, sizeof set_, &set_) == 0;
}

Cores Cores::of_process() {
  Cores result;
  if (!openmp_binds()) return result;
  for (const int core : cores_of_openmp_places())
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(core), &result.set_);
  const Cores system = of_system();  // places may list cores that the machine does not have
  CPU_AND(&result.set_, &result.set_, &system.set_);
  return result;
}

Cores Cores::of_system() {
  const Cores before;
  Cores every = before;
  if (!every.is_known_) return before;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &every.set_);
  every.bind();
  const Cores result;
  before.bind();
  return result;
}

int Cores::count() const {
  return std::max(
      1, is_known_ ? CPU_COUNT(&set_) : static_cast<int>(std::thread::hardware_concurrency()));
}

Cores Cores::share(std::size_t parts, std::size_t index) const {
  const auto cores = static_cast<std::size_t>(count());
  const Slice mine = parts <= cores ? slice_of(cores, parts, index) : Slice{index % cores, 1};
  Cores result = *this;
  std::size_t nth = 0;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set_)) {
      if (nth < mine.first || nth >= mine.first + mine.count) CPU_CLR(core, &result.set_);
      ++nth;
    }
  return result;
}

std::string Cores::bits() const {
  std::string result;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (!is_known_ || CPU_ISSET(core, &set_)) {
      result.resize(core, '0');
      result += '1';
    }
  return result;
}

void Cores::bind() const {
  if (is_known_) sched_setaffinity(0, sizeof set_, &set_);
}

int usable_cores(const Cores& cores, const std::optional<CpuQuota>& quota) {
  return quota ? std::clamp(quota->cores, 1, cores.count()) : cores.count();
}

int usable_cores() { return usable_cores(Cores::of_process(), read_cpu_quota()); }

void leave_openmp_place() {
  if (openmp_binds()) Cores::of_process().bind();
}

}  // namespace lockstep::detail
