/// \file
/// Stores and groups over loopback for the tests of Gloo. Invariant: every wait has a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/collectives/gloo_group.hpp"
#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/gloo_store.hpp"

namespace gloo_test {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// A store for threads of one process.
class MemoryStore : public lockstep::GlooStore {
 public:
  void set(const std::string& key, const std::string& bytes) override {
    {
      const std::scoped_lock lock(mutex_);
      values_[key] = bytes;
    }
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.count(key) > 0; }))
      return std::nullopt;
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

/// Runs f(rank) in a thread per rank. \return what each threw.
template <class F>
std::vector<std::exception_ptr> in_threads(std::size_t size, const F& f) {
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        f(r);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

/// The members of one mesh, each as in a separate process.
class Meshes {
 public:
  explicit Meshes(std::size_t size) : meshes(size) {
    const auto errors = in_threads(size, [&](std::size_t r) {
      meshes[r] =
          lockstep::form_gloo_mesh({.rank = r, .size = size, .run = "a test", .limit = 10s}, store);
    });
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
  }

  MemoryStore store;
  std::vector<std::shared_ptr<lockstep::GlooMesh>> meshes;
};

/// All members of a group in one process: a maker for the contract of collectives.
template <lockstep::SumOrder sum_order, std::size_t most = 8>
class Places {
 public:
  static constexpr std::size_t max_size = most;
  static constexpr lockstep::SumOrder order = sum_order;
  static constexpr bool can_end = true;

  Places(std::size_t size, std::chrono::milliseconds timeout) : all_(size) {
    for (const auto& mesh : all_.meshes)
      members_.emplace_back(
          mesh, lockstep::GlooGroup::Options{.channel = 0, .timeout = timeout, .order = order});
  }
  std::size_t size() const { return members_.size(); }
  lockstep::GlooGroup& member(std::size_t rank) { return members_[rank]; }

 private:
  Meshes all_;
  std::vector<lockstep::GlooGroup> members_;
};

}  // namespace gloo_test
