#pragma once

#include "lockstep/cluster/network/secret.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {

namespace detail {

SecretPages::SecretPages(std::string_view bytes)
    : size_(bytes.size()),
      pages_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  if (pages_ == MAP_FAILED)
    throw Error("rendezvous: no memory for the secret ({})", std::strerror(errno));
  (void)::madvise(pages_, size_, MADV_DONTDUMP);  // best effort
  std::memcpy(pages_, bytes.data(), size_);
}

SecretPages::~SecretPages() {
  OPENSSL_cleanse(pages_, size_);
  ::munmap(pages_, size_);
}

}  // namespace detail

Secret::Secret(std::string bytes, std::string_view origin) {
  struct Wiper {
    std::string& bytes;
    ~Wiper() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  } wiper{bytes};
  const std::size_t size = bytes.size();
  constexpr std::string_view remedy = "; make one with: openssl rand -hex 32";
  if (size < shortest || size > longest)
    throw ClusterError("{} holds {} bytes; a secret has {} to {}{}", origin, size, shortest,
                       longest, remedy);
  std::array<bool, 256> seen{};
  for (const char c : bytes) seen[static_cast<unsigned char>(c)] = true;
  const auto distinct = std::count(seen.begin(), seen.end(), true);
  if (distinct < static_cast<std::ptrdiff_t>(fewest_distinct))
    throw ClusterError("{} has only {} distinct bytes, so it can be guessed; use random bytes{}",
                       origin, static_cast<std::size_t>(distinct), remedy);
  pages_ = std::make_shared<const detail::SecretPages>(bytes);
}

std::array<unsigned char, 32> Secret::key(std::string_view job) const {
  const std::string info = std::string("lockstep/1|").append(job);
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), &EVP_PKEY_CTX_free);
  std::array<unsigned char, 32> result{};
  std::size_t size = result.size();
  const std::string_view secret = pages_ ? pages_->bytes() : std::string_view();
  const auto* const bytes = reinterpret_cast<const unsigned char*>(secret.data());
  const auto* const label = reinterpret_cast<const unsigned char*>(info.data());
  if (!context || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) != 1 ||
      EVP_PKEY_CTX_set1_hkdf_key(context.get(), bytes, static_cast<int>(secret.size())) != 1 ||
      EVP_PKEY_CTX_add1_hkdf_info(context.get(), label, static_cast<int>(info.size())) != 1 ||
      EVP_PKEY_derive(context.get(), result.data(), &size) != 1)
    throw Error("rendezvous: OpenSSL refused HKDF with SHA-256; check its configuration");
  return result;
}

namespace detail {

Secret read_secret_file(const std::string& path) {
  const std::string origin = format_text("LOCKSTEP_SECRET_FILE={}", quote(path));
  // O_NONBLOCK: opening a FIFO must not hang.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw ClusterError("{} cannot be read: {}", origin, std::strerror(errno));
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } closer{file};
  struct stat status{};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
    throw ClusterError("{} is not a regular file; store the secret in one", origin);
  if ((status.st_mode & 077) != 0)
    throw ClusterError("{} is accessible to users other than its owner; chmod 600 it", origin);
  // Room for "\r\n" and one byte more, so that a file that is too long is noticed.
  std::string bytes(Secret::longest + 3, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const auto got = ::read(file, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ClusterError("{} cannot be read: {}", origin, std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  bytes.resize(size);
  if (bytes.ends_with('\n')) bytes.pop_back();
  if (bytes.ends_with('\r')) bytes.pop_back();
  return Secret(std::move(bytes), origin);
}

/// The first address of the job that is reachable from other machines; nullopt if all are loopback.
inline std::optional<std::string> reachable_address(const ResolvedCluster& cluster) {
  if (cluster.bind && !is_loopback(cluster.bind->host)) return cluster.bind->host;
  if (cluster.chief && !is_loopback(cluster.chief->host)) return to_string(*cluster.chief);
  for (std::size_t r = 0; cluster.cluster && r < cluster.world_size; ++r)
    if (!is_loopback(cluster.cluster->address(r).host))
      return to_string(cluster.cluster->address(r));
  return std::nullopt;
}

}  // namespace detail

Secret read_secret(const Environment& environment, const ResolvedCluster& cluster) {
  const auto file = detail::variable(environment, "LOCKSTEP_SECRET_FILE");
  const auto value = detail::variable(environment, "LOCKSTEP_SECRET");
  const auto insecure = detail::variable(environment, "LOCKSTEP_INSECURE");
  if (insecure && *insecure != "0" && *insecure != "1")
    throw ClusterError(
        "LOCKSTEP_INSECURE={} is neither 0 nor 1; unset it, or write 1 to go without a secret",
        detail::quote(*insecure));
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
  const auto empty = [&](const char* name) {  // `variable` treats it as unset
    return environment(name) ? format_text(" ({} is empty)", name) : std::string();
  };
  throw ClusterError(
      "the job has no secret{}{}, and {} can be reached by other machines; write one into a file of "
      "mode 0600 (openssl rand -hex 32) and set LOCKSTEP_SECRET_FILE to it on all ranks, or set "
      "LOCKSTEP_INSECURE=1 on a network that you trust",
      empty("LOCKSTEP_SECRET_FILE"), empty("LOCKSTEP_SECRET"), *open);
}

}  // namespace lockstep
