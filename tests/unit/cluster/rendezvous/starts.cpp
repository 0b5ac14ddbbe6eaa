/// Processes of a job that start late, again, or again and again.
#include <filesystem>
#include <iterator>

#include "unit/cluster/rendezvous/processes.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

std::ptrdiff_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

/// Starts and ends a job of two at one address, `jobs` times. The number of descriptors and threads
/// must be the same afterwards.
void start_and_end(int jobs, bool secured) {
  Lines lines;
  const std::uint16_t port = free_port();
  const auto run = [&] {
    std::vector<std::future<Member>> futures;
    for (const std::size_t rank : {0u, 1u}) {
      auto o = options(rank, 2, port, lines);
      o.cluster.job_id = "job";
      if (secured) o.secret = lockstep::Secret("0123456789abcdef");
      futures.push_back(
          std::async(std::launch::async, [o]() mutable { return join(std::move(o)); }));
    }
    std::vector<Member> members;
    for (auto& future : futures) members.push_back(future.get());
    if (members[0]->size() != 2 || members[1]->rank() != 1) FAIL("wrong ranks");
    leave_all(members);
  };
  run();
  const auto descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  for (int i = 0; i < jobs; ++i) run();
  CHECK(entries_of("/proc/self/fd") == descriptors);
  CHECK(entries_of("/proc/self/task") == threads);
  CHECK(lines.text().empty());
}

}  // namespace

TEST_CASE("a worker that is killed while the job forms and starts again joins") {
  Processes job(4, 3);  // rank 3 is missing
  for (int restart = 0; restart < 3; ++restart) {
    std::this_thread::sleep_for(milliseconds(100 + 150 * restart));
    job.kill(2);
    if (restart == 1) std::this_thread::sleep_for(100ms);
    job.start(2);
  }
  std::this_thread::sleep_for(300ms);
  job.start(3);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(job.line(rank, 20s) == "ready");
  for (std::size_t rank = 0; rank < 4; ++rank)
    CHECK(job.line(rank, 100ms).empty());  // none is lost
}

TEST_CASE("workers that start seconds apart join", "[.slow]") {
  for (const std::size_t last : {0u, 2u}) {
    CAPTURE(last);
    Processes job(3, std::size_t{0});
    job.start(2 - last);
    std::this_thread::sleep_for(4s);
    job.start(1);
    std::this_thread::sleep_for(6s);
    job.start(last);
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK(job.line(rank, 20s) == "ready");
  }
}

TEST_CASE("jobs at one address follow each other, and leave no descriptor and no thread") {
  start_and_end(20, true);
  start_and_end(20, false);
}

TEST_CASE("ten thousand jobs at one address leave no descriptor and no thread", "[.slow]") {
  start_and_end(5000, true);
  start_and_end(5000, false);
}
