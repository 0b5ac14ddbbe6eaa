/// \file
/// The exceptions that lockstep throws. Invariants: a message is one paragraph of lower-case facts
/// that states what is wrong, where, and how to fix it; errors are reported by exceptions only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep {

/// Base class of all errors that lockstep throws.
/// \code
///   throw lockstep::UsageError("fit: epochs is {}; it must be at least 1", epochs);
/// \endcode
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// Formats the message by format_text. Braces in a text without values are left as they are.
  template <class... Args>
    requires(sizeof...(Args) > 0)
  [[gnu::cold]] Error(FormatText<Args...> message, const Args&... args)
      : std::runtime_error(format_text<Args...>(message, args...)) {}
};

/// The caller passed an invalid option, size or name, or called functions in the wrong order.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A signal asked this worker of an elastic job to end, and it has left the job: after a step, if the
/// others go on, or while it waited for them.
class Evicted : public Error {
 public:
  LOCKSTEP_COLD_DECL explicit Evicted(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// A file is missing, cannot be read or cannot be written.
class FileError : public Error {
 public:
  /// `path` can be queried by `path()`.
  LOCKSTEP_COLD_DECL FileError(std::string path, std::string_view fact);
  template <class... Args>
    requires(sizeof...(Args) > 0)
  [[gnu::cold]] FileError(std::string path, FormatText<Args...> fact, const Args&... args)
      : FileError(std::move(path), std::string_view(format_text<Args...>(fact, args...))) {}
  /// An error that another process reported with this message; its path is unknown.
  explicit FileError(const std::string& what) : Error(what) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The contents of a data file are invalid (wrong magic number, truncated, a label out of range).
class DataError : public FileError {
 public:
  using FileError::FileError;
};

/// A weights file is damaged, or its tensors do not fit the model.
class WeightsError : public FileError {
 public:
  using FileError::FileError;
};

/// A checkpoint is damaged, or does not belong to the model or the run that it is loaded into.
class CheckpointError : public FileError {
 public:
  using FileError::FileError;
};

/// A device operation failed, such as a call of a library.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A device does not have enough free memory.
class OutOfMemory : public DeviceError {
 public:
  template <class... Args>
  [[gnu::cold]] OutOfMemory(std::size_t bytes, std::size_t free, FormatText<Args...> message,
                            const Args&... args)
      : DeviceError(format_text<Args...>(message, args...)), bytes_(bytes), free_(free) {}
  /// Bytes requested, and bytes free.
  std::size_t bytes() const { return bytes_; }
  std::size_t free() const { return free_; }

 private:
  std::size_t bytes_, free_;
};

/// A collective operation ended without a result: it timed out or was aborted.
class CollectiveError : public Error {
 public:
  using Error::Error;
  template <class... Args>
  [[gnu::cold]] CollectiveError(std::size_t peer, FormatText<Args...> message, const Args&... args)
      : Error(format_text<Args...>(message, args...)), peer_(peer) {}
  /// The rank that failed or did not arrive, if known.
  const std::optional<std::size_t>& peer() const { return peer_; }

 private:
  std::optional<std::size_t> peer_;
};

/// A member did not arrive at a collective operation before the timeout.
class CollectiveTimeout : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

/// A collective operation was aborted because another member failed. That member reports the cause.
class CollectiveAborted : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

/// The connection between two members failed while both are alive.
class LinkFailed : public CollectiveError {
 public:
  /// `fact` completes "the connection between replicas 0 and 1 failed: ".
  LOCKSTEP_COLD_DECL LinkFailed(std::string_view operation, std::size_t peer, std::size_t other,
                                std::string fact);
  /// The member at the other end, next to `peer()`.
  std::size_t other() const { return other_; }
  const std::string& fact() const { return fact_; }

 private:
  std::size_t other_;
  std::string fact_;
};

/// The replicas' weights or optimizer states are no longer equal.
class ReplicasDiverged : public Error {
 public:
  LOCKSTEP_COLD_DECL ReplicasDiverged(std::size_t replica, std::string tensor,
                                      std::string_view sentence);
  /// The replica that differs from the majority or, without a majority, from replica 0.
  std::size_t replica() const { return replica_; }
  /// The first tensor that differs.
  const std::string& tensor() const { return tensor_; }

 private:
  std::size_t replica_;
  std::string tensor_;
};

/// The description of the cluster (its members, and the rank of this process) is wrong or
/// contradictory. Thrown before anything is started.
class ClusterError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// A peer died, left, timed out, stalled, or never joined. Every survivor names the same peer.
class PeerLost : public Error {
 public:
  /// `how` completes "rank 2 (10.0.0.3:12345) ", as in "closed its connection". `last_step`,
  /// counted from 0, is the last step that all ranks finished.
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
