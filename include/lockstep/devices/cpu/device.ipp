#pragma once

#include "lockstep/devices/cpu/device.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/contention.hpp"
#include "lockstep/core/process/cpu_quota.hpp"
#include "lockstep/core/process/openmp_places.hpp"

namespace lockstep::detail {

/// Logs, once per process, which setting keeps OpenMP's threads off some cores. `allowed`: the
/// cores on which they may run.
inline void warn_about_unused_cores(const Cores& allowed) {
  const int all = Cores::of_system().count();
  if (allowed.count() >= all) return;
  const char* setting = nullptr;
  if (omp_get_proc_bind() == omp_proc_bind_master) setting = "OMP_PROC_BIND";
  // Only explicit lists contain digits. Abstract names, as in OMP_PLACES=cores, exclude no core.
  for (const char* name : {"OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (const char* const value = std::getenv(name);
        setting == nullptr && value != nullptr && std::strpbrk(value, "0123456789") != nullptr)
      setting = name;
  static std::atomic_flag logged;
  if (setting == nullptr || logged.test_and_set()) return;
  log(LogLevel::warning,
      format_text(
          "cpu: {}={} restricts OpenMP's threads to {} of {} cores; unset it to compute on all of "
          "them",
          setting, std::getenv(setting), allowed.count(), all));
}

void check_bfloat16(bool processor, bool library) {
  if (!processor)
    throw DeviceError(
        "cpu: this processor has no instructions for bfloat16 (avx512_bf16 or AMX); use ls::Cpu, "
        "which computes in float32");
  if (!library)
    throw DeviceError(
        "cpu: oneDNN is not allowed to use this processor's bfloat16 instructions; remove "
        "ONEDNN_MAX_CPU_ISA from the environment, or use ls::Cpu, which computes in float32");
}

/// Logs, once per process, that OpenMP grants `each` threads instead of `wanted`.
inline void warn_about_smaller_team(int each, int wanted) {
  static std::atomic_flag logged;
  if (logged.test_and_set()) return;
  log(LogLevel::warning,
      format_text("cpu: OpenMP grants {}{} instead of {}, and the model computes with {}: {}", each,
                  each == 1 ? " thread" : " threads", wanted, each == 1 ? "that one" : "these",
                  team_shortfall(wanted)));
}
/// Logs, once per process, that the replicas' threads outnumber the cores.
inline void warn_about_oversubscription(int each, std::size_t replicas, int cores) {
  static std::atomic_flag logged;
  if (logged.test_and_set()) return;
  log(LogLevel::warning,
      format_text(
          "cpu: {}{}{}{}{} on the {} cores of this process will be slow; use fewer replicas, or "
          "set Cpu::threads to 0",
          replicas, replicas == 1 ? " replica with " : " replicas with ", each,
          each == 1 ? " thread" : " threads", replicas == 1 ? "" : " each", cores));
}

CpuHandles::CpuHandles(int threads, const std::optional<Cores>& cores)
    : threads_(threads),
      cores_(cores),
      waits_(TeamWaits::of_process()),
      engine_(onednn::make_engine()),
      stream_(onednn::make_stream(engine_)) {}
CpuHandles::CpuHandles(CpuHandles&&) noexcept = default;
CpuHandles& CpuHandles::operator=(CpuHandles&&) noexcept = default;
CpuHandles::~CpuHandles() = default;
ThreadScope CpuHandles::scope() {
  Contention& contention = Contention::of_process();
  contention.watch(cores_);
  const bool contended = contention.sample();
  if (threads_ > 1) waits_->follow(contended, threads_);
  return ThreadScope(threads_, contended && leaves_cores_ ? std::nullopt : cores_);
}
ThreadScope CpuHandles::brief_scope() {
  return threads_ > 1 || cores_ ? scope() : ThreadScope(threads_, std::nullopt);
}
void CpuHandles::synchronize() {
  onednn::Site{"synchronize", {}}.check(dnnl_stream_wait(stream()));
}

// Validates the options, then derives in this order: the cores that OpenMP's threads may use, the
// replica's share of them (bound only with an index, or where OpenMP binds threads anyway), the
// wanted number of threads, and the team that OpenMP grants.
CpuShare share_cpu(int index, int threads, bool needs_bfloat16, std::size_t replicas,
                   std::size_t replica) {
  Contention::of_process();  // refuses an invalid policy now, not in the first step
  if (threads < 0)
    throw UsageError("cpu: Cpu::threads is {}; it must be at least 1, or 0 for all cores", threads);
  if (threads > cpu_thread_limit)
    throw UsageError(
        "cpu: Cpu::threads is {}; the limit is {}; set it to the number of cores, or to 0 for all "
        "cores",
        threads, cpu_thread_limit);
  const std::size_t sharers = std::max<std::size_t>(replicas, 1);
  if (index < -1 || (index >= 0 && static_cast<std::size_t>(index) >= sharers))
    throw UsageError(
        "cpu: index {} is out of range for {} replicas; the devices of a list of {} are Cpu{{0}} "
        "to Cpu{{{}}}",
        index, sharers, sharers, sharers - 1);
  if (needs_bfloat16) check_bfloat16(has_bfloat16_vectors(), onednn::has_bfloat16());
  const bool shares = index >= 0 || (sharers > 1 && openmp_binds());
  const Cores all = shares || omp_get_proc_bind() != omp_proc_bind_master
                        ? Cores::of_process()
                        : Cores();  // OMP_PROC_BIND=master: the whole team is on the caller's place
  const auto quota = read_cpu_quota();
  const int usable = usable_cores(all, quota);
  std::optional<Cores> mine;
  if (shares)
    mine = all.share(sharers, index >= 0 ? static_cast<std::size_t>(index) : replica % sharers);
  const int even = std::max(1, usable / static_cast<int>(sharers));
  // A quota limits the process as a whole; the number of cores in a share is meaningless then.
  const int cores = mine && !quota ? mine->count() : even;
  const int wanted = threads > 0 ? threads : cores;
  if (omp_get_proc_bind() != omp_proc_bind_false) warn_about_unused_cores(all);
  const int each = team_of(wanted);
  if (each < wanted && (threads > 0 || omp_in_parallel() == 0))
    warn_about_smaller_team(each, wanted);
  // Replicas of one thread are exempt: they have no team that spins while it waits.
  if (each > 1 && static_cast<std::size_t>(each) * sharers > static_cast<std::size_t>(usable))
    warn_about_oversubscription(each, sharers, usable);
  return {each, mine};
}

}  // namespace lockstep::detail
