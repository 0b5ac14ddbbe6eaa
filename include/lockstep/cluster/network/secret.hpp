/// \file
/// The secret of a job. Invariants: it never appears in a message or a log, and its pages are
/// excluded from core dumps; a job that spans machines has a secret unless LOCKSTEP_INSECURE=1.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

namespace detail {

/// Bytes on separate pages, excluded from core dumps and wiped by the destructor.
class SecretPages {
 public:
  /// Copies `bytes`. \throws Error if no page can be mapped.
  LOCKSTEP_COLD_DECL explicit SecretPages(std::string_view bytes);
  SecretPages(const SecretPages&) = delete;
  SecretPages& operator=(const SecretPages&) = delete;
  LOCKSTEP_COLD_DECL ~SecretPages();
  /// Valid while this object lives.
  std::string_view bytes() const { return {static_cast<const char*>(pages_), size_}; }

 private:
  std::size_t size_;
  void* pages_;
};

}  // namespace detail

/// Shared by the processes of a job and unknown to others: at least 16 random bytes, or empty.
/// Copies share the pages.
/// \code
///   auto secret = lockstep::read_secret(lockstep::process_environment(), cluster);
/// \endcode
class Secret {
 public:
  /// Bytes.
  static constexpr std::size_t shortest = 16, longest = 4096;
  /// 16 random bytes have more distinct values; "aaaaaaaaaaaaaaaa" and the like do not.
  static constexpr std::size_t fewest_distinct = 8;

  Secret() = default;
  /// `origin` begins the messages. \throws ClusterError for fewer than 16 or more than 4096 bytes,
  /// or fewer than 8 distinct ones.
  LOCKSTEP_COLD_DECL explicit Secret(std::string bytes, std::string_view origin = "the secret");

  /// True if the job has no secret.
  bool empty() const { return !pages_; }

  /// The key of one job: HKDF-SHA256(secret, info = "lockstep/1|" + job), RFC 5869.
  LOCKSTEP_COLD_DECL std::array<unsigned char, 32> key(std::string_view job) const;

 private:
  std::shared_ptr<const detail::SecretPages> pages_;
};

namespace detail {

/// Reads a file that only its owner can access; a final newline is not part of the secret. \throws
/// ClusterError that names the file.
LOCKSTEP_COLD_DECL Secret read_secret_file(const std::string& path);

}  // namespace detail

/// LOCKSTEP_SECRET_FILE, else LOCKSTEP_SECRET, else none if the job is on one machine or
/// LOCKSTEP_INSECURE=1. \throws ClusterError that names the variable, or if a job that spans
/// machines has no secret.
LOCKSTEP_COLD_DECL Secret read_secret(const Environment& environment,
                                      const ResolvedCluster& cluster);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/secret.ipp"
#endif
