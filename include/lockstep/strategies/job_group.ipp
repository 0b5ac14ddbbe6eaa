#pragma once

#include "lockstep/strategies/job_group.hpp"

#include <cstring>
#include <utility>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

JobGroup::JobGroup(ProcessGroup data, std::chrono::nanoseconds timeout, Rendezvous* job,
                   std::string name)
    : ProcessGroup(std::move(data)),
      job_(job),
      name_(std::move(name)),
      timeout_(std::chrono::ceil<std::chrono::milliseconds>(timeout)) {}

void JobGroup::share_secret(std::byte* p, std::size_t n) {
  barrier();
  if (size() == 1) return;
  const std::string name = format_text("{} {}", name_, shared_++);
  if (rank() == 0) return job_->set(name, {reinterpret_cast<const char*>(p), n});
  const std::string secret = get(name);
  if (secret.size() != n) {
    abort();
    throw UsageError(
        "share_secret: rank 0 shares {} bytes, rank {} expects {}; all ranks must make the same "
        "calls in the same order",
        secret.size(), rank(), n);
  }
  if (n > 0) std::memcpy(p, secret.data(), n);
}

std::string JobGroup::get(const std::string& name) {
  try {
    return job_->get(name, timeout_);
  } catch (const CollectiveTimeout& e) {
    throw CollectiveTimeout(0, "share_secret: rank 0 did not share its secret: {}", e.what());
  }
}

}  // namespace lockstep::detail
