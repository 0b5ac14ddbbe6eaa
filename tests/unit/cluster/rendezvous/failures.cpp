/// \file
/// The reports of the members when one of them dies, falls silent, stalls, leaves or fails. The
/// asserted limits are three times the guaranteed ones.
#include <fmt/format.h>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

/// The survivors, each in a call that cannot complete, and the messages that they then throw.
struct Report {
  std::mutex mutex;
  std::vector<PeerLost> losses;
  Clock::duration slowest{};

  /// `victim` does not wait.
  void collect(std::vector<Member>& members, std::size_t victim, Clock::time_point began) {
    in_each(members, [&](Rendezvous& job) {
      if (job.rank() == victim) return;
      try {
        if (job.rank() % 2 == 0)
          job.get("never", 20s);
        else
          job.barrier("never", 20s);
      } catch (const PeerLost& loss) {
        const std::scoped_lock lock(mutex);
        losses.push_back(loss);
        slowest = std::max(slowest, Clock::now() - began);
      }
    });
  }
  void check(std::size_t survivors, std::size_t rank, const std::string& how) {
    REQUIRE(losses.size() == survivors);
    for (const PeerLost& loss : losses) {
      CAPTURE(loss.what());
      CHECK(loss.rank() == rank);
      CHECK(loss.how().find(how) == 0);
      CHECK(loss.address() == losses.front().address());
      CHECK_FALSE(loss.address().empty());
    }
  }
};

}  // namespace

TEST_CASE("when any rank dies, every survivor names it within a second") {
  const Deadline deadline(100s);
  for (std::size_t victim = 0; victim < 4; ++victim) {
    CAPTURE(victim);
    Lines lines;
    auto members = join_all(4, lines);
    for (Member& member : members) member->note_progress(17, Phase::forward);
    std::atomic<int> called{0};
    for (Member& member : members)
      if (member->rank() != victim)
        member->on_loss([&](const PeerLost& loss) { called += loss.rank() == victim ? 1 : 100; });
    Report report;
    const auto began = Clock::now();
    Access::kill(*members[victim]);
    report.collect(members, victim, began);
    report.check(3, victim, "closed its connection");
    for (const PeerLost& loss : report.losses) CHECK(loss.last_step() == 16);
    CHECK(report.slowest < 3s);
    for (int i = 0; i < 100 && called < 3; ++i) std::this_thread::sleep_for(10ms);
    CHECK(called == 3);
    const auto end = Clock::now();
    leave_all(members);
    CHECK(Clock::now() - end < 6s);
  }
}

TEST_CASE("a rank frozen for a second is not lost, but one frozen for good is, and all name it") {
  const Deadline deadline(100s);
  for (const std::size_t victim : {0u, 2u}) {
    CAPTURE(victim);
    Lines lines;
    auto members = join_all(3, lines);
    Access::freeze(*members[victim], 1000ms);
    std::this_thread::sleep_for(1500ms);
    for (Member& member : members) CHECK_FALSE(member->verdict());

    Report report;
    const auto began = Clock::now();
    Access::freeze(*members[victim], 4000ms);
    report.collect(members, victim, began);
    report.check(2, victim, "was silent for 2 s");
    CHECK(report.slowest > 1700ms);
    CHECK(report.slowest < 9s);
    // The frozen rank learns about its loss when it wakes up.
    const auto own = members[victim]->verdict(5s);
    REQUIRE(own);
    CHECK(own->rank() == victim);
    leave_all(members);
  }
}

TEST_CASE("with a longer silence timeout, a rank frozen for 2.5 s is not lost") {
  Lines lines;
  const auto patient = [](RendezvousOptions& o) { o.cluster.timeouts.silence = 30s; };
  std::vector<Member> jobs[2] = {join_all(3, lines, patient), join_all(3, lines, patient)};
  Access::freeze(*jobs[0][0], 2500ms);  // the chief of one job, a worker of the other
  Access::freeze(*jobs[1][2], 2500ms);
  std::this_thread::sleep_for(2600ms);
  for (auto& members : jobs) {
    in_each(members, [](Rendezvous& job) { job.barrier("on", 20s); });
    for (Member& member : members) CHECK_FALSE(member->verdict());
    leave_all(members);
  }
}

TEST_CASE("ranks with different timeouts do not start") {
  Lines lines;
  const auto port = free_port();
  std::vector<std::future<std::string>> message;
  for (const std::size_t rank : {0u, 1u})
    message.push_back(std::async(std::launch::async, [&, rank] {
      auto o = options(rank, 2, port, lines, 1500ms);
      if (rank == 1) o.cluster.timeouts.silence = 5s;
      return sentence<lockstep::Error>([&] { join(std::move(o)); });
    }));
  for (auto& each : message) {
    const std::string what = each.get();
    CAPTURE(what);
    CHECK(what.find("LOCKSTEP_SILENCE_TIMEOUT") != std::string::npos);
    CHECK(what.find("2000 ms") != std::string::npos);
    CHECK(what.find("5000 ms") != std::string::npos);
  }
}

TEST_CASE("the verdict timeout grows with the measured round trip", "[alone]") {
  Lines lines;
  auto members =
      join_all(3, lines, [](RendezvousOptions& o) { o.cluster.timeouts.verdict = 100ms; });
  const auto all_within = [&](milliseconds least, milliseconds most, milliseconds limit = 30s) {
    const auto are = [&] {
      return std::all_of(members.begin(), members.end(), [&](const Member& member) {
        return member->verdict_timeout() >= least && member->verdict_timeout() <= most;
      });
    };
    for (const auto end = Clock::now() + limit; Clock::now() < end;
         std::this_thread::sleep_for(5ms))
      if (are()) return true;
    return false;
  };
  CHECK(all_within(101ms, 10s));
  // One long round trip concerns all: reports may travel on that link. It is not measured if it comes
  // before the first heartbeat of the rank.
  bool is_measured = false;
  for (int freeze = 0; freeze < 5 && !is_measured; ++freeze) {
    Access::freeze(*members[2], 900ms);
    is_measured = all_within(400ms, 10s, 3s);
  }
  CHECK(is_measured);
  // The sample decays.
  milliseconds peak{0};
  for (const Member& member : members) peak = std::max(peak, member->verdict_timeout());
  CHECK(all_within(100ms, peak * 3 / 4));
  leave_all(members);
}

TEST_CASE("time during which a job was stopped is not a round trip") {
  using lockstep::detail::RoundTrip;
  RoundTrip here, there;
  Clock::time_point now = Clock::now();
  const auto exchange = [&](milliseconds way) {
    const auto sent = here.stamps(now, here.longest());
    now += way;
    there.update(sent, now, 2s);
    here.update(there.stamps(now, there.longest()), now, 2s);
  };
  exchange(40ms);
  CHECK(here.longest() >= 39ms);
  CHECK(here.longest() <= 41ms);
  exchange(10min);  // stopped by Ctrl-Z meanwhile
  CHECK(here.longest() <= 41ms);
  exchange(1900ms);
  CHECK(here.longest() >= 1899ms);
}

TEST_CASE("all ranks name the root cause, not the ranks that left because of it") {
  const Deadline deadline(100s);
  for (int round = 0; round < 5; ++round) {
    Lines lines;
    auto members = join_all(4, lines);
    Access::kill(*members[2]);
    std::mutex mutex;
    std::set<std::size_t> named;
    in_each(members, [&](Rendezvous& job) {
      if (job.rank() == 2) return;
      // Rank 1 sees rank 2 leave, rank 3 sees rank 1 leave, rank 0 sees rank 3 leave.
      const std::size_t suspect = job.rank() == 1 ? 2 : job.rank() == 3 ? 1 : 3;
      const auto began = Clock::now();
      const PeerLost loss = job.blame(suspect, "connection reset");
      check_in_thread(Clock::now() - began < 3s);
      const std::scoped_lock lock(mutex);
      named.insert(loss.rank());
    });
    CHECK(named == std::set<std::size_t>{2});
    leave_all(members);
  }
}

TEST_CASE("a failed exchange between two live ranks is attributed to the accused one") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(3, lines);
  const PeerLost loss = members[2]->blame(1, "no route\nto host");
  CHECK(loss.rank() == 1);
  CHECK(loss.how().find("does not answer: its exchange with rank 2 (") == 0);
  CHECK(loss.how().find("failed: no route\\x0ato host") != std::string::npos);
  for (Member& member : members) CHECK(member->verdict(3s)->how() == loss.how());
  leave_all(members);
}

TEST_CASE("of two live ranks that accuse each other the higher one is lost") {
  const Deadline deadline(60s);
  struct Accused {
    std::size_t by, rank;
  };
  // In order of time; a third rank may accuse one of them first, if another one accuses the other.
  for (const auto& order :
       {std::vector<Accused>{{2, 0}, {0, 2}}, {{3, 0}, {2, 0}, {0, 2}, {1, 2}}}) {
    Lines lines;
    auto members = join_all(order.size() == 2 ? 3 : 4, lines);
    std::vector<std::thread> threads;
    for (const auto& [by, rank] : order) {
      threads.emplace_back([&, by = by, rank = rank] { members[by]->blame(rank, "no answer"); });
      std::this_thread::sleep_for(15ms);
    }
    for (std::thread& thread : threads) thread.join();
    for (Member& member : members) CHECK(member->verdict(3s)->rank() == 2);
    leave_all(members);
  }
}

TEST_CASE("a failed connection between two live ranks is reported with both ends") {
  for (const std::size_t other : {0u, 1u}) {  // including a link to the chief
    Lines lines;
    auto members = join_all(3, lines);
    std::mutex mutex;
    std::set<std::string> sentences;
    in_each(members, [&](Rendezvous& job) {
      // Each end accuses the other; the third rank reports it from one of them.
      const std::size_t peer = job.rank() == 2 ? other : 2;
      const lockstep::LinkFailed failure("all_reduce", peer, 2 + other - peer, "nothing came");
      const PeerLost loss = job.blame(failure);
      const std::scoped_lock lock(mutex);
      sentences.insert(loss.what());
    });
    REQUIRE(sentences.size() == 1);
    const std::string& sentence = *sentences.begin();
    CAPTURE(sentence);
    for (const std::size_t end : {other, std::size_t{2}})
      CHECK(sentence.find(fmt::format("rank {} (", end)) != std::string::npos);
    CHECK(sentence.find(", which is alive too, failed: nothing came; check") != std::string::npos);
    leave_all(members);
  }
}

TEST_CASE("a connection that fails is the cause even if the peer has left in the meantime") {
  Lines lines;
  auto members = join_all(3, lines);
  std::thread gone([&] { members[2]->leave(10s); });
  std::this_thread::sleep_for(200ms);
  const PeerLost loss =
      members[1]->blame(lockstep::LinkFailed("gather", 2, 1, "data were changed"));
  CHECK(loss.how().find("data were changed") != std::string::npos);
  gone.join();
  leave_all(members);
}

TEST_CASE("a silent rank is lost itself, not its link to another") {
  Lines lines;
  auto members = join_all(3, lines, [](RendezvousOptions& o) { o.cluster.timeouts.silence = 1s; });
  Access::freeze(*members[2], 3s);
  const PeerLost loss = members[1]->blame(lockstep::LinkFailed("all_reduce", 2, 1, "nothing came"));
  CHECK(loss.rank() == 2);
  CHECK(loss.how().find("was silent for 1 s") == 0);
  leave_all(members);
}

TEST_CASE("a rank that has lost its own connections does not make another one the verdict") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(4, lines);
  std::thread hasty([&] { members[2]->blame(1, "network is unreachable"); });
  std::this_thread::sleep_for(30ms);
  in_each(members, [](Rendezvous& job) {
    if (job.rank() != 2) job.blame(2, "connection reset");
  });
  hasty.join();
  for (Member& member : members) CHECK(member->verdict(3s)->rank() == 2);
  leave_all(members);
}

TEST_CASE("a chief whose log is not read is not considered silent") {
  const Deadline deadline(60s);
  Lines lines;
  std::promise<void> reads, stuck;
  const auto read = reads.get_future().share();
  auto members = join_all(2, lines, [&](RendezvousOptions& o) {
    if (o.cluster.rank != 0u) return;
    o.log = [read, &stuck, is_first = true](lockstep::LogLevel, std::string_view) mutable {
      if (std::exchange(is_first, false)) stuck.set_value();
      read.wait();
    };
  });
  members[0]->log(lockstep::LogLevel::info, "a line");
  stuck.get_future().wait();
  CHECK_FALSE(members[1]->verdict(3s));  // longer than the silence timeout
  reads.set_value();
  leave_all(members);
}

TEST_CASE("a reported failure reaches all ranks") {
  const Deadline deadline(60s);
  for (const std::size_t speaker : {0u, 1u}) {
    Lines lines;
    auto members = join_all(3, lines);
    members[speaker]->fail("bad data in batch 7");
    for (Member& member : members) {
      const auto loss = member->verdict(3s);
      REQUIRE(loss);
      CHECK(loss->rank() == speaker);
      CHECK(loss->how() == "failed: bad data in batch 7");
    }
    leave_all(members);
  }
}

TEST_CASE("a rank that leaves early is named, with its last step") {
  const Deadline deadline(60s);
  for (const std::size_t leaver : {0u, 2u}) {
    CAPTURE(leaver);
    Lines lines;
    auto members = join_all(3, lines);
    members[leaver]->note_progress(40, Phase::callback);
    std::thread gone([&] { members[leaver]->leave(10s); });
    Report report;
    report.collect(members, leaver, Clock::now());
    // Rank 0 waits in get, which needs no particular rank; the barrier of rank 1 needs all.
    report.check(2, leaver, "left after step 40");
    CHECK(report.slowest < 3s);
    gone.join();
    leave_all(members);
  }
}

TEST_CASE("all ranks leave in any order, and none is lost") {
  const Deadline deadline(60s);
  for (int round = 0; round < 6; ++round) {
    Lines lines;
    auto members = join_all(3, lines);
    const auto began = Clock::now();
    in_each(members, [&](Rendezvous& job) {
      const auto place = (job.rank() + static_cast<std::size_t>(round)) % 3;
      std::this_thread::sleep_for(milliseconds(40 * place));
      job.leave(10s);
      check_in_thread(!job.verdict());
    });
    leave_all(members);
    CHECK(Clock::now() - began < 3s);
    CHECK(lines.text().empty());
  }
}

TEST_CASE("the destructor returns in bounded time while the others continue") {
  const Deadline deadline(60s);
  for (const std::size_t first : {0u, 1u}) {
    Lines lines;
    auto members = join_all(2, lines);
    const auto began = Clock::now();
    members[first].reset();
    CHECK(Clock::now() - began < 4s);
    const std::string message =
        sentence<PeerLost>([&] { members[1 - first]->barrier("alone", 10s); });
    CHECK(message.find(fmt::format("rank {}", first)) == 0);
    CHECK(message.find("left") != std::string::npos);
    members[1 - first].reset();
    CHECK(Clock::now() - began < 8s);
  }
}

TEST_CASE("a live rank without progress is named, not the ranks that wait for it") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(3, lines, [](RendezvousOptions& o) { o.stall_limits = {1500ms, 60s}; });
  for (Member& member : members) member->note_progress(7, Phase::data);
  members[0]->note_progress(7, Phase::reduce);
  members[2]->note_progress(7, Phase::reduce);
  members[1]->note_progress(7, Phase::backward);
  for (Member& member : members) {
    const auto loss = member->verdict(8s);
    REQUIRE(loss);
    CHECK(loss->rank() == 1);
    CHECK(loss->how().find("is alive, but made no progress in backward of step 7 for ") == 0);
    CHECK(loss->how().find("raise the limits") != std::string::npos);
  }
  leave_all(members);
}

TEST_CASE("a rank that computes, or waits for another rank's callback, is not stalled") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(2, lines, [](RendezvousOptions& o) { o.stall_limits = {1000ms, 60s}; });
  members[0]->note_progress(7, Phase::callback);
  members[1]->note_progress(8, Phase::reduce);
  std::this_thread::sleep_for(2500ms);
  for (std::uint64_t step = 8; step < 16; ++step) {
    for (Member& member : members) member->note_progress(step, Phase::forward);
    std::this_thread::sleep_for(300ms);
  }
  for (Member& member : members) CHECK_FALSE(member->verdict());
  leave_all(members);
}
