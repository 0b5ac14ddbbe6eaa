/// \file
/// The errors that lockstep throws. Invariant: a message is one paragraph of lower-case facts that
/// says what is wrong, where, and how to mend it; no error is signalled in any other way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/core/fmt_core.hpp"

namespace lockstep {

/// Base of every error that lockstep throws. Catch this one to catch them all.
/// \code
///   throw lockstep::UsageError("fit: epochs is {}; it must be at least 1", epochs);
/// \endcode
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// The message is formatted by fmt; the braces of a text without arguments are left as they are.
  template <class... Args>
    requires(sizeof...(Args) > 0)
  [[gnu::cold]] Error(fmt::format_string<Args...> message, Args&&... args)
      : Error(fmt::string_view(message), fmt::format_args(fmt::make_format_args(args...))) {}

 protected:
  LOCKSTEP_COLD_DECL Error(fmt::string_view message, fmt::format_args args);
};

/// The caller asked for something that cannot be: a wrong option, size, name or order of calls.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A file is missing, cannot be read or cannot be written.
class FileError : public Error {
 public:
  /// `path` is kept, so that a program can tell the user which file it was.
  LOCKSTEP_COLD_DECL FileError(std::string path, std::string_view fact);
  template <class... Args>
    requires(sizeof...(Args) > 0)
  [[gnu::cold]] FileError(std::string path, fmt::format_string<Args...> fact, Args&&... args)
      : FileError(std::move(path), fmt::string_view(fact),
                  fmt::format_args(fmt::make_format_args(args...))) {}
  const std::string& path() const { return path_; }

 protected:
  LOCKSTEP_COLD_DECL FileError(std::string path, fmt::string_view fact, fmt::format_args args);

 private:
  std::string path_;
};

/// The bytes of a data set are not what they should be (wrong magic, truncated, a label out of
/// range).
class DataError : public FileError {
 public:
  using FileError::FileError;
};

/// A weights file is damaged, or its tensors do not fit the model.
class WeightsError : public FileError {
 public:
  using FileError::FileError;
};

/// The device cannot do what was asked of it (out of memory, a library call that failed).
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A device has not as much memory as was asked of it.
class OutOfMemory : public DeviceError {
 public:
  template <class... Args>
  [[gnu::cold]] OutOfMemory(std::size_t bytes, std::size_t free,
                            fmt::format_string<Args...> message, Args&&... args)
      : DeviceError(fmt::string_view(message), fmt::format_args(fmt::make_format_args(args...))),
        bytes_(bytes),
        free_(free) {}
  /// What was asked for, and what is there.
  std::size_t bytes() const { return bytes_; }
  std::size_t free() const { return free_; }

 private:
  std::size_t bytes_, free_;
};

/// An operation of a collective ended without a result: its deadline passed, or it was aborted.
class CollectiveError : public Error {
 public:
  using Error::Error;
  template <class... Args>
  [[gnu::cold]] CollectiveError(std::size_t peer, fmt::format_string<Args...> message,
                                Args&&... args)
      : Error(fmt::string_view(message), fmt::format_args(fmt::make_format_args(args...))),
        peer_(peer) {}
  /// The member that failed or did not come, as far as this one knows.
  const std::optional<std::size_t>& peer() const { return peer_; }

 private:
  std::optional<std::size_t> peer_;
};

/// A member did not come to an operation before the deadline.
class CollectiveTimeout : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

/// The operation was aborted, since another member failed: what failed is told by that member.
class CollectiveAborted : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

/// The connection between two members failed, while both of them live.
class LinkFailed : public CollectiveError {
 public:
  /// `fact` goes on after "the connection between replicas 0 and 1 failed: ".
  LOCKSTEP_COLD_DECL LinkFailed(std::string_view operation, std::size_t peer, std::size_t other,
                                std::string fact);
  /// The end that is not `peer()`.
  std::size_t other() const { return other_; }
  const std::string& fact() const { return fact_; }

 private:
  std::size_t other_;
  std::string fact_;
};

/// The replicas' weights, or what the optimizer keeps for them, are no longer equal.
class ReplicasDiverged : public Error {
 public:
  LOCKSTEP_COLD_DECL ReplicasDiverged(std::size_t replica, std::string tensor,
                                      std::string_view sentence);
  /// The replica that differs from most others or, if there is no majority, from replica 0.
  std::size_t replica() const { return replica_; }
  /// The first of its tensors that differs.
  const std::string& tensor() const { return tensor_; }

 private:
  std::size_t replica_;
  std::string tensor_;
};

/// The description of the cluster (who is in the job, and who this process is) is wrong or
/// contradicts itself. Nothing was started.
class ClusterError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// A peer died, left, fell silent, got stuck, or never came. Every survivor names the same one.
class PeerLost : public Error {
 public:
  /// `how` goes on after "rank 2 (10.0.0.3:12345) ": "closed its connection". `last_step`, counted
  /// from 0, is the last one that all finished.
  LOCKSTEP_COLD_DECL PeerLost(std::size_t rank, std::string address, std::string how,
                              std::optional<std::uint64_t> last_step);
  std::size_t rank() const { return rank_; }
  const std::string& address() const { return address_; }
  const std::string& how() const { return how_; }
  std::optional<std::uint64_t> last_step() const { return last_step_; }

 private:
  LOCKSTEP_DECL static std::string sentence(std::size_t rank, const std::string& address,
                                            const std::string& how,
                                            std::optional<std::uint64_t> last_step);

  std::size_t rank_;
  std::string address_, how_;
  std::optional<std::uint64_t> last_step_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/error.ipp"
#endif
