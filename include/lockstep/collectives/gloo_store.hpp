/// \file
/// The key-value store through which the processes of a Gloo mesh exchange addresses. Invariant:
/// nothing here depends on how the store reaches the other processes.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

/// A key-value store that all processes of a job share.
/// \code
///   struct ClientStore : lockstep::GlooStore {
///     void set(const std::string& key, const std::string& bytes) override {
///       client.set(key, bytes);
///     }
///     std::optional<std::string> get(const std::string& key, Deadline deadline) override {
///       return client.get(key, deadline);
///     }
///     Client& client;
///   };
/// \endcode
class GlooStore {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~GlooStore() = default;
  /// Stores a value of any bytes, including zeros. Each key is set once.
  virtual void set(const std::string& key, const std::string& bytes) = 0;
  /// Waits until a process has set the key. \return nullopt if none has by the deadline.
  virtual std::optional<std::string> get(const std::string& key, Deadline deadline) = 0;
  /// Registers a callback for the loss of a process of the job; it is called immediately if one is
  /// already lost. `lost` may run in any thread and must not block. It replaces the previous
  /// callback, which no longer runs when this returns. A store without loss detection ignores it.
  virtual void on_loss(std::function<void()> lost) { static_cast<void>(lost); }
};

}  // namespace lockstep
