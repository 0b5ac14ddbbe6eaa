/// \file
/// The secret of a job. Invariants: it is never written into a message or a log; between machines
/// there is one, unless LOCKSTEP_INSECURE=1 says that there shall be none.
#pragma once

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/host_port.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep {

/// What all processes of a job know, and no stranger: at least 16 bytes, or nothing. \code
///   auto secret = lockstep::read_secret(lockstep::process_environment(), cluster);
/// \endcode
class Secret {
 public:
  static constexpr std::size_t shortest = 16, longest = 4096;

  Secret() = default;
  /// `origin` is for messages. \throws ClusterError for fewer than 16 bytes or more than 4096.
  explicit Secret(std::string bytes, std::string_view origin = "the secret")
      : bytes_(std::move(bytes)) {
    if (bytes_.size() >= shortest && bytes_.size() <= longest) return;
    const std::size_t size = bytes_.size();
    wipe();
    throw ClusterError({origin, " holds ", size, " bytes; a secret has ", shortest, " to ", longest,
                        "; make one with: openssl rand -hex 32"});
  }
  Secret(const Secret&) = default;
  Secret(Secret&& other) noexcept : bytes_(std::move(other.bytes_)) { other.bytes_.clear(); }
  Secret& operator=(Secret other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  ~Secret() { wipe(); }

  bool empty() const { return bytes_.empty(); }

  /// The key for one job: HKDF-SHA256(secret, "lockstep/1|" + job).
  std::array<unsigned char, 32> key(std::string_view job) const {
    const std::string info = std::string("lockstep/1|").append(job);
    const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(
        EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), &EVP_PKEY_CTX_free);
    std::array<unsigned char, 32> result{};
    std::size_t size = result.size();
    const auto* const bytes = reinterpret_cast<const unsigned char*>(bytes_.data());
    const auto* const label = reinterpret_cast<const unsigned char*>(info.data());
    if (!context || EVP_PKEY_derive_init(context.get()) != 1 ||
        EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) != 1 ||
        EVP_PKEY_CTX_set1_hkdf_key(context.get(), bytes, static_cast<int>(bytes_.size())) != 1 ||
        EVP_PKEY_CTX_add1_hkdf_info(context.get(), label, static_cast<int>(info.size())) != 1 ||
        EVP_PKEY_derive(context.get(), result.data(), &size) != 1)
      throw Error("rendezvous: OpenSSL refused HKDF with SHA-256; check its configuration");
    return result;
  }

 private:
  void wipe() {
    if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
  }

  std::string bytes_;
};

namespace detail {

/// The secret in a file that only its owner may read. A newline at the end does not belong to it.
/// \throws ClusterError that names the file.
inline Secret read_secret_file(const std::string& path) {
  const std::string origin = text({"LOCKSTEP_SECRET_FILE=", shown(path)});
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw ClusterError({origin, " cannot be read: ", std::strerror(errno)});
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } closer{file};
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
    throw ClusterError({origin, " is no regular file; write the secret into one"});
  if ((status.st_mode & 077) != 0)
    throw ClusterError({origin, " may be read or written by others than its owner; chmod 600 it"});
  std::string bytes(Secret::longest + 3, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const auto got = ::read(file, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ClusterError({origin, " cannot be read: ", std::strerror(errno)});
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  bytes.resize(size);
  if (bytes.ends_with('\n')) bytes.pop_back();
  if (bytes.ends_with('\r')) bytes.pop_back();
  return Secret(std::move(bytes), origin);
}

/// The first address of the job that other machines could reach.
inline std::optional<std::string> reachable_address(const ResolvedCluster& cluster) {
  if (cluster.bind && !is_loopback(cluster.bind->host)) return cluster.bind->host;
  if (cluster.chief && !is_loopback(cluster.chief->host)) return to_string(*cluster.chief);
  for (std::size_t r = 0; cluster.cluster && r < cluster.world_size; ++r)
    if (!is_loopback(cluster.cluster->address(r).host))
      return to_string(cluster.cluster->address(r));
  return std::nullopt;
}

}  // namespace detail

/// LOCKSTEP_SECRET_FILE, else LOCKSTEP_SECRET, else none: on one machine, or by
/// LOCKSTEP_INSECURE=1. \throws ClusterError that names the variable; for a job between machines
/// without a secret.
inline Secret read_secret(const Environment& environment, const ResolvedCluster& cluster) {
  const auto file = detail::variable(environment, "LOCKSTEP_SECRET_FILE");
  const auto value = detail::variable(environment, "LOCKSTEP_SECRET");
  const auto insecure = detail::variable(environment, "LOCKSTEP_INSECURE");
  if (insecure && *insecure != "0" && *insecure != "1")
    throw ClusterError({"LOCKSTEP_INSECURE=", detail::shown(*insecure),
                        " is neither 0 nor 1; unset it, or write 1 to go without a secret"});
  if (file && value)
    throw ClusterError("LOCKSTEP_SECRET_FILE and LOCKSTEP_SECRET are both set; unset one of them");
  if (file) return detail::read_secret_file(*file);
  if (value) {
    log(LogLevel::warning,
        "LOCKSTEP_SECRET can be read by root and this user in /proc; prefer LOCKSTEP_SECRET_FILE");
    return Secret(*value, "LOCKSTEP_SECRET");
  }
  const auto open = detail::reachable_address(cluster);
  if (cluster.world_size == 1 || !open || insecure == "1") return Secret();
  throw ClusterError({"the job has no secret, and ", *open,
                      " can be reached by other machines; write one into a file of mode 0600 "
                      "(openssl rand -hex 32) and set LOCKSTEP_SECRET_FILE to it on all ranks, or "
                      "set LOCKSTEP_INSECURE=1 on a network that you trust"});
}

}  // namespace lockstep
