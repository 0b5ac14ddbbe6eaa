/// \file
/// An elastic job in one process: each member in its own thread, over loopback.
#pragma once

#include <asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/cluster/elastic/elastic_core.hpp"
#include "lockstep/cluster/elastic/elastic_member.hpp"
#include "unit/cluster/rendezvous/support.hpp"

namespace lockstep::detail {

/// Operations on a member that only tests need.
struct ElasticAccess {
  /// Closes the sockets without a message and answers nobody, as a killed process does.
  static void kill(ElasticMember& member) {
    asio::post(member.core_->io, [core = member.core_.get()] {
      core->links.close();
      core->ticker.cancel();
    });
  }
  /// Runs `action` on the member's thread.
  template <class F>
  static auto call(ElasticMember& member, F action) {
    std::packaged_task<decltype(action(*member.core_))()> task(
        [&] { return action(*member.core_); });
    auto result = task.get_future();
    asio::post(member.core_->io, [&] { task(); });
    return result.get();
  }
  /// Blocks the member's thread, as in a stopped process.
  static void freeze(ElasticMember& member, std::chrono::milliseconds time) {
    asio::post(member.core_->io, [time] { std::this_thread::sleep_for(time); });
  }
};

}  // namespace lockstep::detail

namespace elastic_test {

using lockstep::ClusterError;
using lockstep::PeerLost;
using lockstep::detail::ElasticAccess;
using lockstep::detail::ElasticMember;
using lockstep::detail::ElasticSettings;
using lockstep::detail::Generation;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

/// A temporary folder.
class Folder {
 public:
  Folder() { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_ = "/tmp/lockstep_elastic_XXXXXX";
};

/// The described processes of a job, of which each may run as a member.
class Job {
 public:
  explicit Job(std::size_t size, std::size_t min_workers = 1) : min_workers_(min_workers) {
    for (std::size_t i = 0; i < size; ++i)
      spec_.worker("127.0.0.1:" + std::to_string(rendezvous_test::free_port()));
    members_.resize(size);
    machines_.resize(size);
    for (auto& machine : machines_) machine = shared_;
  }
  ~Job() {
    std::vector<std::thread> threads;
    for (auto& member : members_) threads.emplace_back([&member] { member.reset(); });
    for (auto& thread : threads) thread.join();
  }

  /// Puts a process on a machine of its own.
  void separate(std::size_t index) { machines_[index] = std::make_shared<Folder>(); }
  Folder& machine(std::size_t index) { return *machines_[index]; }

  lockstep::ResolvedCluster described(std::size_t index) const {
    lockstep::ResolvedCluster result;
    result.source = "test";
    result.job_id = "elastic-test";
    result.world_size = spec_.world_size();
    result.rank = index;
    result.chief = spec_.address(0);
    result.cluster = spec_;
    result.rendezvous_timeout = patience;
    result.timeouts.silence = milliseconds(1000);
    if (describe) describe(result);
    return result;
  }

  ElasticMember& start(std::size_t index) {
    ElasticSettings settings;
    settings.options = {min_workers_, machines_[index]->path()};
    settings.fields = {{"wire", "plain"}};
    settings.fits = fits;
    if (change) change(index, settings);
    members_[index] =
        std::make_unique<ElasticMember>(described(index), secret, std::move(settings));
    return *members_[index];
  }
  ElasticMember& operator[](std::size_t index) { return *members_[index]; }
  void kill(std::size_t index) {
    ElasticAccess::kill(*members_[index]);
    killed_.push_back(std::move(members_[index]));
  }
  void end(std::size_t index) { members_[index].reset(); }

  /// Starts all and waits for generation 0.
  std::vector<Generation> begin() {
    std::vector<std::future<Generation>> all;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      start(i);
      all.push_back(join(i));
    }
    return get(all);
  }
  std::future<Generation> join(std::size_t index) {
    return std::async(std::launch::async, [this, index] { return members_[index]->join(); });
  }
  std::future<Generation> next(std::size_t index) {
    return std::async(std::launch::async, [this, index] { return members_[index]->next("test"); });
  }
  /// The next generation, as these see it.
  std::vector<Generation> next_of(const std::vector<std::size_t>& indices) {
    std::vector<std::future<Generation>> all;
    for (const std::size_t index : indices) all.push_back(next(index));
    return get(all);
  }
  static std::vector<Generation> get(std::vector<std::future<Generation>>& all) {
    std::vector<Generation> result;
    for (auto& one : all) result.push_back(one.get());
    return result;
  }

  lockstep::Secret secret{};
  milliseconds patience{10'000};
  std::function<bool(std::size_t)> fits{};
  std::function<void(std::size_t, ElasticSettings&)> change{};
  std::function<void(lockstep::ResolvedCluster&)> describe{};

 private:
  std::size_t min_workers_;
  lockstep::ClusterSpec spec_{};
  std::shared_ptr<Folder> shared_ = std::make_shared<Folder>();
  std::vector<std::shared_ptr<Folder>> machines_;
  std::vector<std::unique_ptr<ElasticMember>> members_, killed_;
};

/// Waits until `holds` is true.
template <class F>
bool eventually(F holds, milliseconds limit = milliseconds(5000)) {
  for (const auto end = Clock::now() + limit; Clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

/// Checks that all see the same generation, each at its own rank.
inline void check_same(const std::vector<Generation>& all, std::uint64_t number,
                       std::size_t workers) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].number == number);
    CHECK(all[i].cluster.world_size == workers);
    CHECK(all[i].cluster.job_id == all[0].cluster.job_id);
    CHECK(all[i].cluster.chief == all[0].cluster.chief);
    CHECK(all[i].cluster.cluster == all[0].cluster.cluster);
    CHECK(all[i].is_new == all[0].is_new);
    CHECK(all[i].former == all[0].former);
    for (std::size_t j = 0; j < i; ++j) CHECK(all[i].cluster.rank != all[j].cluster.rank);
  }
}

}  // namespace elastic_test
