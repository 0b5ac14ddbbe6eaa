#include "lockstep/strategies/planes/tcp_plane.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/strategies/job/shared_job.hpp"
#include "unit/cluster/rendezvous/support.hpp"

namespace ls = lockstep;
using namespace std::chrono_literals;

TEST_CASE("a worker waits for those of its lane, whatever those of another lane do") {
  constexpr std::size_t workers = 4;
  const std::uint16_t port = rendezvous_test::free_port();
  const std::vector<std::vector<std::size_t>> lanes{{0, 2}, {1, 3}};
  std::atomic<int> done{0};
  std::atomic<bool> is_late{false};
  std::vector<int> was_early(workers);
  std::vector<std::string> errors(workers);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < workers; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ls::ResolvedCluster where;
        where.source = "test";
        where.world_size = workers;
        where.rank = rank;
        where.chief = ls::HostPort{"127.0.0.1", port};
        ls::detail::JobSession session(
            where, {}, [&] { return ls::RendezvousOptions{.cluster = where, .secret = {}}; });
        const std::vector<ls::detail::WorkerPlace> places(workers);
        bool peers_know = false;
        const ls::JobLinks links{.where = where,
                                 .session = session,
                                 .places = places,
                                 .start_timeout = 5s,
                                 .peers_know = peers_know};
        if (rank == 2) {  // the last one
          for (int i = 0; i < 5000 && done < 2; ++i) std::this_thread::sleep_for(1ms);
          std::this_thread::sleep_for(30ms);
          is_late = true;
        }
        ls::detail::wait_for_connected(links, "", lanes[rank % 2]);
        was_early[rank] = is_late ? 0 : 1;
        ++done;
        session.leave();
      } catch (const std::exception& e) {
        errors[rank] = e.what();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(errors == std::vector<std::string>(workers));
  CHECK(was_early == std::vector<int>{0, 1, 0, 1});
}
