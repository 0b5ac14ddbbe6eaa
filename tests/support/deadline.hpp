/// \file
/// Ends a hanging test program with a message.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace testing {

/// Ends the program unless destroyed before the deadline.
class Deadline {
 public:
  explicit Deadline(std::string what = "the test",
                    std::chrono::seconds limit = std::chrono::seconds(20))
      : thread_([this, what = std::move(what), limit] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, limit, [&] { return ended_; })) return;
          std::fprintf(stderr, "%s hangs: not done after %d s\n", what.c_str(),
                       static_cast<int>(limit.count()));
          std::abort();
        }) {}
  explicit Deadline(std::chrono::seconds limit) : Deadline("the test", limit) {}
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  ~Deadline() {
    {
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace testing
