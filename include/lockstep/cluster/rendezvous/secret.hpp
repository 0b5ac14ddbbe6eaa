/// \file
/// The secret of a job. Invariants: it is never written into a message or a log, and its page is
/// not in a core dump; between machines there is one, unless LOCKSTEP_INSECURE=1 says that there
/// shall be none.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

namespace detail {

/// Bytes on separate pages, which a core dump leaves out and the destructor wipes.
class SecretPages {
 public:
  LOCKSTEP_COLD_DECL explicit SecretPages(std::string_view bytes);
  SecretPages(const SecretPages&) = delete;
  SecretPages& operator=(const SecretPages&) = delete;
  LOCKSTEP_COLD_DECL ~SecretPages();
  std::string_view bytes() const { return {static_cast<const char*>(pages_), size_}; }

 private:
  std::size_t size_;
  void* pages_;
};

}  // namespace detail

/// What all processes of a job know, and no stranger: at least 16 random bytes, or nothing. Copies
/// share the bytes.
/// \code
///   auto secret = lockstep::read_secret(lockstep::process_environment(), cluster);
/// \endcode
class Secret {
 public:
  static constexpr std::size_t shortest = 16, longest = 4096;
  /// Random bytes of that length have more; "aaaaaaaaaaaaaaaa" and the like do not.
  static constexpr std::size_t fewest_distinct = 8;

  Secret() = default;
  /// `origin` is for messages. \throws ClusterError for fewer than 16 bytes or more than 4096, and
  /// for fewer than 8 distinct ones.
  LOCKSTEP_COLD_DECL explicit Secret(std::string bytes, std::string_view origin = "the secret");

  bool empty() const { return !pages_; }

  /// The key for one job: HKDF-SHA256(secret, "lockstep/1|" + job).
  LOCKSTEP_COLD_DECL std::array<unsigned char, 32> key(std::string_view job) const;

 private:
  std::shared_ptr<const detail::SecretPages> pages_;
};

namespace detail {

/// The secret in a file that only its owner may read. A newline at the end does not belong to it.
/// \throws ClusterError that names the file.
LOCKSTEP_COLD_DECL Secret read_secret_file(const std::string& path);

}  // namespace detail

/// LOCKSTEP_SECRET_FILE, else LOCKSTEP_SECRET, else none: on one machine, or by
/// LOCKSTEP_INSECURE=1. \throws ClusterError that names the variable; for a job between machines
/// without a secret.
LOCKSTEP_COLD_DECL Secret read_secret(const Environment& environment,
                                      const ResolvedCluster& cluster);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/secret.ipp"
#endif
