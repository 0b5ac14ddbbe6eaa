/// \file
/// Where the processes of a Gloo mesh find each other's addresses. Invariant: nothing here knows
/// how the store reaches the others.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

/// A key-value store that all processes of a job share.
/// \code
///   struct RendezvousStore : lockstep::GlooStore {
///     void set(const std::string& key, const std::string& bytes) override { client.set(key,
///     bytes); } std::optional<std::string> get(const std::string& key, Deadline deadline) override
///     {
///       return client.get(key, deadline);
///     }
///     Client& client;
///   };
/// \endcode
class GlooStore {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~GlooStore() = default;
  /// Any bytes, zeros too. Each key is set once.
  virtual void set(const std::string& key, const std::string& bytes) = 0;
  /// Waits until somebody has set the key; nothing if that has not happened by the deadline.
  virtual std::optional<std::string> get(const std::string& key, Deadline deadline) = 0;
  /// Calls `lost` as soon as a process of the job is lost, from any thread, which it must not hold
  /// up; at once if one is already. Replaces the one before: when this returns, that one runs no
  /// more. A store that hears of no losses does nothing.
  virtual void on_loss(std::function<void()> lost) { static_cast<void>(lost); }
};

}  // namespace lockstep
