/// Processes of a job that start late, again, or again and again.
#include <fmt/format.h>
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

/// A socket of another program: connections are queued, and nobody answers.
class Listening {
 public:
  explicit Listening(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(socket_, 64) == 0);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() { ::close(socket_); }

 private:
  int socket_;
};

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

TEST_CASE("two jobs with the same first port form at the same time, whatever their order") {
  const Deadline deadline(60s);
  for (const bool secured : {false, true}) {
    CAPTURE(secured);
    Lines lines;
    const std::uint16_t shared = free_port(), foreign = free_port();
    const Listening other_program(foreign);  // accepts, and never answers
    const auto start = [&](const std::string& id, std::size_t rank,
                           const std::vector<std::uint16_t>& more) {
      auto o = options(rank, 2, shared, lines);
      o.cluster.job_id = id;
      o.cluster.more_ports = more;
      if (secured) o.secret = lockstep::Secret("0123456789abcdef");
      return std::async(std::launch::async, [o]() mutable { return join(std::move(o)); });
    };
    // B's second port has another program, so its chief uses the third.
    const std::vector<std::uint16_t> a{free_port()}, b{foreign, free_port()};
    auto chief_of_a = start("a", 0, a);
    while (!Stranger(shared).connected()) std::this_thread::yield();
    auto worker_of_b = start("b", 1, b);  // finds A's chief first, which must not admit it
    auto chief_of_b = start("b", 0, b);
    std::vector<Member> members;
    members.push_back(chief_of_b.get());
    members.push_back(worker_of_b.get());
    in_each(members, [](Rendezvous& job) { job.barrier("b", 5s); });
    auto worker_of_a = start("a", 1, a);
    members.push_back(chief_of_a.get());
    members.push_back(worker_of_a.get());
    leave_all(members);
    CHECK(
        lines.contain(fmt::format("port {} is in use by another process; the chief listens at "
                                  "port {}",
                                  shared, b[1])));
  }
}

TEST_CASE("a job forms at its next port if the first one has a job with another secret") {
  const Deadline deadline(60s);
  const lockstep::Secret theirs("0123456789abcdef");
  for (const lockstep::Secret& own : {lockstep::Secret(), lockstep::Secret("fedcba9876543210")}) {
    CAPTURE(own.empty());
    Lines lines;
    const std::uint16_t shared = free_port();
    const auto start = [&](const std::string& id, std::size_t rank, const lockstep::Secret& secret,
                           std::uint16_t more) {
      auto o = options(rank, 2, shared, lines);
      o.cluster.job_id = id;
      o.cluster.more_ports = {more};
      o.secret = secret;
      return std::async(std::launch::async, [o]() mutable { return join(std::move(o)); });
    };
    const std::uint16_t a = free_port(), b = free_port();
    auto chief_of_a = start("a", 0, theirs, a);
    while (!Stranger(shared).connected()) std::this_thread::yield();
    auto worker_of_b = start("b", 1, own, b);
    CHECK(
        lines.contain(own.empty() ? "is a worker without a secret" : "did not prove that it has"));
    auto chief_of_b = start("b", 0, own, b);
    std::vector<Member> members;
    members.push_back(chief_of_b.get());
    members.push_back(worker_of_b.get());
    auto worker_of_a = start("a", 1, theirs, a);
    members.push_back(chief_of_a.get());
    members.push_back(worker_of_a.get());
    leave_all(members);
  }
}

TEST_CASE("a worker without a secret ends with that reason if its job has no chief at any port") {
  Lines lines;
  const std::uint16_t port = free_port();
  auto o = options(0, 2, port, lines);
  o.cluster.job_id = "a";
  o.cluster.more_ports = {free_port()};
  o.secret = lockstep::Secret("0123456789abcdef");
  auto chief = std::async(std::launch::async, [o]() mutable { return join(std::move(o)); });
  while (!Stranger(port).connected()) std::this_thread::yield();
  auto other = o;
  other.cluster.rank = 1;
  other.secret = lockstep::Secret();
  other.cluster.rendezvous_timeout = 500ms;
  CHECK(sentence<lockstep::ClusterError>([&] {
          join(other);
        }).find("the chief has a secret, but this process has none") != std::string::npos);
  o.cluster.rank = 1;
  std::vector<Member> members;
  members.push_back(join(o));
  members.push_back(chief.get());
  leave_all(members);
}

TEST_CASE("a worker whose job has no chief names the other job that refused it") {
  const Deadline deadline(60s);
  Lines lines;
  const std::uint16_t shared = free_port();
  const auto make = [&](const char* id, std::size_t rank, milliseconds limit) {
    auto o = options(rank, 2, shared, lines, limit);
    o.cluster.job_id = id;
    o.cluster.more_ports = {free_port()};
    return o;
  };
  auto chief = std::async(std::launch::async, [&] { return join(make("a", 0, 20s)); });
  while (!Stranger(shared).connected()) std::this_thread::yield();
  const auto sentence_of_b = sentence<PeerLost>([&] { join(make("b", 1, 1s)); });
  CAPTURE(sentence_of_b);
  CHECK(
      sentence_of_b.find("rank 1 (127.0.0.1) belongs to the job \"b\", but the chief runs the job "
                         "\"a\"") != std::string::npos);
  auto worker = std::async(std::launch::async, [&] { return join(make("a", 1, 20s)); });
  std::vector<Member> members;
  members.push_back(chief.get());
  members.push_back(worker.get());
  leave_all(members);
}
